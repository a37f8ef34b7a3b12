use super::{HostedDriver, HostedScheduler};

/// An executor that polls the drivers of a [`HostedScheduler`](super::HostedScheduler), and knows more about its threads.
///
/// The drivers alone need no host: [`HostedScheduler::new`](super::HostedScheduler::new) returns them. A host can also tell
/// them when to yield, and replace a driver whose thread blocks.
///
/// Any of these methods may panic, or do nothing. A panic is reported by the panic hook, and has no other effect. Work may
/// then run later or on the global pool. It is neither lost nor run twice.
pub trait Host: Send + Sync + 'static {
    /// Polls the driver as a task of its own.
    ///
    /// A host that is ending drops the driver instead: see [`HostedDriver`].
    fn spawn(&self, driver: HostedDriver);

    /// Returns whether another thread of the host polls other tasks while the calling thread waits in
    /// [`block`](Host::block). A driver whose job waits is then replaced by a new one.
    fn replaces_blocked(&self) -> bool {
        false
    }

    /// Returns whether the task that a thread of the host wakes last waits for that thread, in a slot that no other thread takes
    /// it from. Asked once.
    ///
    /// Waking another driver for a single job is useless then, if a job of the host's own thread has queued it.
    fn keeps_woken_task(&self) -> bool {
        false
    }

    /// Returns whether the driver that runs on the calling thread should return to the host. Asked after each job.
    fn should_yield(&self) -> bool {
        false
    }

    /// Runs `wait`, which puts the calling thread to sleep in the middle of a job.
    ///
    /// A host that can move its other tasks to another thread does so before. `wait` may be called more than once. If it is
    /// not called, the thread waits afterwards.
    ///
    /// The job may wait for work of `scheduler`, which is the one of its driver. A host that may be left without a thread to poll or
    /// to drop the drivers [ends](HostedScheduler::end) the scheduler.
    fn block(&self, scheduler: HostedScheduler, wait: &mut dyn FnMut()) {
        let _ = scheduler;
        wait();
    }
}
