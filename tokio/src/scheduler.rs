//! The scheduler on the threads of a runtime.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
/// When the runtime shuts down, it drops the drivers. Work that is queued when it drops the first one, or arrives later, runs on bowline's
/// [global](bowline::scheduler::ThreadPool::global) pool. So no task is lost, and none runs twice, by whichever means the runtime
/// is shut down. There is no context of the runtime then: a socket or timer of tokio returns an error, or panics, as in every
/// task that outlives its runtime.
///
/// A task may block in `sync_wait` during the shutdown, and wait for work on this scheduler. If tokio has no thread left that takes the
/// worker's tasks over, and so neither polls nor drops the drivers, the work continues on the global pool, too.
///
/// Tokio's own tasks, sockets and timers make no progress then: they wait for the task that blocks. So a task that blocks during the
/// shutdown must not wait for those, nor for a task that does. The scheduler does not learn of a thread that blocks by other means than
/// `sync_wait`, or in a task of tokio's. If all workers block so, queued work waits for one of them. So await, rather than block, in tasks that
/// may outlive their runtime.
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

/// The schedulers of the runtimes of this process whose drivers are not gone.
static SCHEDULERS: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// The scheduler of a runtime.
struct Registered {
    id: Id,
    hosted: HostedScheduler,
    /// Dangles when the last driver is gone.
    drivers: Weak<()>,
}

impl TokioScheduler {
    /// Returns the scheduler of a runtime. The first call for a runtime spawns the drivers there.
    ///
    /// On a runtime that has shut down, work runs on the global pool.
    pub fn new(handle: &Handle) -> Self {
        let mut schedulers = SCHEDULERS.lock().unwrap_or_else(PoisonError::into_inner);
        // A runtime may have the id of one that has ended. A scheduler that has ended stays until its drivers are gone: before that, the
        // runtime may accept further drivers that it never polls.
        schedulers.retain(|registered| registered.drivers.strong_count() > 0);
        if let Some(registered) = schedulers.iter().find(|registered| registered.id == handle.id()) {
            return TokioScheduler {
                hosted: registered.hosted,
            };
        }
        let is_multi_thread = handle.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let lives = Arc::new(());
        let drivers = Arc::downgrade(&lives);
        let host = TokioHost {
            handle: handle.clone(),
            is_multi_thread,
            _lives: lives,
        };
        // A driver that is woken by a job waits in a slot of its thread, from which only another wake-up moves it. One driver
        // more than there are threads makes sure that another wake-up is possible.
        let count = handle.metrics().num_workers() + usize::from(is_multi_thread);
        let hosted = HostedScheduler::on(host, count);
        schedulers.push(Registered {
            id: handle.id(),
            hosted,
            drivers,
        });
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
///
/// # A thread that blocks
///
/// [`block_in_place`](tokio::task::block_in_place) puts the core of the worker aside, and asks the runtime's blocking pool for a thread that
/// continues with it. At the shutdown, each thread that has a core drops the drivers. The blocking pool has two states:
///
/// | state | a closure is submitted | a closure is queued |
/// |---|---|---|
/// | open | queued | run, in FIFO order |
/// | shut down | dropped by the submitter | dropped by a thread that was idle, or run by one that was busy |
///
/// The core is lost if the pool is shut down before a thread takes the closure that continues with the core. Then the core waits for the
/// thread that blocks. If all cores are lost, no driver is polled or dropped. Tokio does not report that: [`watch`](TokioHost::watch) finds out.
///
/// The experimental queue that `TOKIO_UNSTABLE_SHARDED_BLOCKING_QUEUE` enables is not FIFO. With it, a shutdown may go unnoticed that begins
/// in the short time until a thread takes that closure.
struct TokioHost {
    handle: Handle,
    is_multi_thread: bool,
    /// Dropped with the last driver.
    _lives: Arc<()>,
}

impl TokioHost {
    /// Ends the scheduler if the blocking pool is shut down before it has run the closures that were submitted so far.
    ///
    /// The first closure runs after all earlier ones were taken out of the queue. It submits the second one, which is accepted only if the pool
    /// is still open: then the earlier ones were run. A drop of either one means that the runtime is shutting down.
    fn watch(&self, scheduler: HostedScheduler) {
        let handle = self.handle.clone();
        let end = EndOnDrop(scheduler);
        drop(self.handle.spawn_blocking(move || {
            drop(handle.spawn_blocking(move || mem::forget(end)));
        }));
    }
}

/// Ends a scheduler when it is dropped.
struct EndOnDrop(HostedScheduler);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
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

    fn block(&self, scheduler: HostedScheduler, wait: &mut dyn FnMut()) {
        if self.is_multi_thread {
            // Tokio submits the closure that continues with the core to the blocking pool of the runtime that the job is inside of.
            let _inside = self.handle.enter();
            tokio::task::block_in_place(|| {
                // That closure was submitted by now.
                self.watch(scheduler);
                wait();
            });
        } else {
            wait();
        }
    }
}
