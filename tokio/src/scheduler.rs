//! The scheduler on the threads of a runtime.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bowline::Scheduler;
use bowline::scheduler::{Host, HostedDriver, HostedSchedule, HostedScheduler};
use tokio::runtime::{Handle, Id, RuntimeFlavor, TryCurrentError};

/// A scheduler that runs work on the threads of a tokio runtime: two words, free to copy. Two are equal if they belong to one
/// runtime.
///
/// Tasks on it are polled by tokio's workers, inside the runtime's context. So sockets, timers, `tokio::spawn` and
/// `spawn_blocking` work in them. There is no other pool. A resume allocates nothing.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tokio::TokioScheduler;
/// use std::time::Duration;
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
/// let scheduler = TokioScheduler::new(runtime.handle());
/// let work = Task::new(async {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     tokio::spawn(async { 6 * 7 }).await.unwrap()
/// });
/// assert_eq!(sync_wait(starts_on(scheduler, work)).unwrap(), 42);
/// ```
///
/// # How it works
///
/// A runtime has one [`HostedScheduler`], whose drivers are tasks of the runtime. They share tokio's cooperative budget: a driver
/// yields to the runtime's other tasks when that is used up.
///
/// # Shutdown
///
/// When the runtime shuts down, it drops the drivers. Work that is queued then, or arrives later, runs on bowline's
/// [global](bowline::scheduler::ThreadPool::global) pool. So no task is lost, and none runs twice, by whichever means the runtime
/// is shut down. There is no context of the runtime then: a socket or timer of tokio returns an error, or panics, as in every
/// task that outlives its runtime.
///
/// The exception is a task that blocks a worker in `sync_wait` during the shutdown, or begins to: tokio may have no thread left that takes
/// that worker's tasks over, and then neither polls nor drops the other drivers. If the task waits for work on this scheduler, both wait
/// for ever, and so does the drop of the runtime. So await, rather than block, in tasks that may outlive their runtime.
///
/// A runtime of the flavor `current_thread` runs tasks only while a thread is inside `Runtime::block_on`.
///
/// # Blocking
///
/// A task may block in [`sync_wait`](bowline::sync_wait). On a runtime with several threads, tokio moves its other tasks to
/// another thread first, as in [`block_in_place`](tokio::task::block_in_place), and another driver is started. On a runtime of one
/// thread, everything waits. So a task must not wait there for another task of that runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokioScheduler {
    hosted: HostedScheduler,
}

/// The schedulers of the runtimes of this process that have not ended.
static SCHEDULERS: Mutex<Vec<(Id, HostedScheduler)>> = Mutex::new(Vec::new());

impl TokioScheduler {
    /// Returns the scheduler of a runtime. The first call for a runtime spawns the drivers there.
    ///
    /// On a runtime that has shut down, work runs on the global pool.
    pub fn new(handle: &Handle) -> Self {
        let mut schedulers = SCHEDULERS.lock().unwrap_or_else(PoisonError::into_inner);
        // A runtime may have the id of one that has ended.
        schedulers.retain(|(_, hosted)| !hosted.has_ended());
        if let Some((_, hosted)) = schedulers.iter().find(|(id, _)| *id == handle.id()) {
            return TokioScheduler { hosted: *hosted };
        }
        let is_multi_thread = handle.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let host = TokioHost {
            handle: handle.clone(),
            is_multi_thread,
        };
        // A driver that is woken by a job waits in a slot of its thread, from which only another wake-up moves it. One driver
        // more than there are threads makes sure that another wake-up is possible.
        let drivers = handle.metrics().num_workers() + usize::from(is_multi_thread);
        let hosted = HostedScheduler::on(host, drivers);
        schedulers.push((handle.id(), hosted));
        TokioScheduler { hosted }
    }

    /// Returns the scheduler of the runtime that the calling thread is inside of.
    ///
    /// # Panics
    ///
    /// Outside of a runtime, like [`Handle::current`].
    #[track_caller]
    pub fn current() -> Self {
        TokioScheduler::new(&Handle::current())
    }

    /// Returns the scheduler of the runtime that the calling thread is inside of.
    ///
    /// # Errors
    ///
    /// Outside of a runtime, like [`Handle::try_current`].
    pub fn try_current() -> Result<Self, TryCurrentError> {
        Ok(TokioScheduler::new(&Handle::try_current()?))
    }

    /// Returns whether the runtime has shut down, so that work runs on the global pool.
    pub fn has_ended(&self) -> bool {
        self.hosted.has_ended()
    }
}

impl Scheduler for TokioScheduler {
    type Schedule = HostedSchedule;
    const INFALLIBLE: bool = true;

    #[inline]
    fn schedule(&self) -> HostedSchedule {
        self.hosted.schedule()
    }

    #[inline]
    fn native(&self) -> Option<bowline::sender::Native<'_>> {
        self.hosted.native()
    }
}

impl fmt::Debug for TokioScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokioScheduler").field(&self.hosted).finish()
    }
}

/// The runtime, as the host of drivers.
struct TokioHost {
    handle: Handle,
    is_multi_thread: bool,
}

impl Host for TokioHost {
    fn spawn(&self, driver: HostedDriver) {
        drop(self.handle.spawn(driver));
    }

    fn replaces_blocked(&self) -> bool {
        self.is_multi_thread
    }

    fn keeps_woken_task(&self) -> bool {
        self.is_multi_thread
    }

    fn should_yield(&self) -> bool {
        !tokio::task::coop::has_budget_remaining()
    }

    fn block(&self, _: HostedScheduler, wait: &mut dyn FnMut()) {
        if self.is_multi_thread {
            tokio::task::block_in_place(wait);
        } else {
            wait();
        }
    }
}
