//! The scheduler of a frame, and the queue in which the frame waits for it.
//!
//! The queue of a [`Home`] is the scheduler's own if [`Scheduler::native`] answers with one. Otherwise it is a hop, which the
//! layer `running` makes: one schedule operation that all frames of a strand share.
//!
//! The scheduler is asked once for each home. It is pinned in an operation, or in the frame of a child, until the task is
//! done. So the borrow of its answer lasts as long as the home is used, and a later, different answer has no effect.

use core::mem;
use core::ptr::NonNull;

use crate::scheduler::thread_pool::{Entry, Worker};
use crate::scheduler::{InlineScheduler, PoolSchedule, TaskScheduler};
use crate::sender::env::EnvDoor;
use crate::sender::native::RawNative;
use crate::{Priority, Scheduler, Transfer};

/// Where a task runs. The tasks that it starts, on the same scheduler, have a copy of it.
///
/// The scheduler and the queue are valid, and stay where they are, for as long as a home is used: the contract of the
/// functions that make one.
#[derive(Clone, Copy)]
pub(in crate::task) struct Home {
    /// Where frames wait. The handle is the scheduler, a part of it, or a hop.
    queue: RawNative,
    locality: Locality,
    scheduler: NonNull<()>,
    /// Clones the scheduler.
    own: unsafe fn(NonNull<()>) -> TaskScheduler<'static>,
}

/// How it is found out whether a thread is at home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locality {
    /// The scheduler is the inline one: every thread is.
    Anywhere,
    /// The workers of the pool at this address are.
    Pool(usize),
    /// The queue is asked.
    Queue,
    /// The queue is a hop: no thread is.
    Hop,
}

impl Home {
    /// # Safety
    ///
    /// The scheduler stays where it is for as long as the home is used.
    #[inline]
    unsafe fn new<S: Scheduler>(scheduler: &S, queue: RawNative, locality: Locality) -> Self {
        Home {
            queue,
            locality,
            scheduler: NonNull::from(scheduler).cast(),
            own: own::<S>,
        }
    }

    /// The home of tasks on a scheduler that has a queue for them, or `None`.
    ///
    /// # Safety
    ///
    /// The scheduler stays where it is for as long as the home is used.
    #[inline]
    pub(in crate::task) unsafe fn of_queue<S: Scheduler>(scheduler: &S) -> Option<Self> {
        let queue = scheduler.native()?.raw();
        // SAFETY: the scheduler is borrowed, and so is its queue.
        let locality = match unsafe { queue.pool() } {
            _ if queue.is_inline() => Locality::Anywhere,
            0 => Locality::Queue,
            pool => Locality::Pool(pool),
        };
        // SAFETY: by the caller's promise.
        Some(unsafe { Home::new(scheduler, queue, locality) })
    }

    /// Nowhere in particular.
    #[inline]
    pub(in crate::task) fn anywhere() -> Self {
        let scheduler = const { &InlineScheduler };
        let queue = RawNative::of(NonNull::from(scheduler));
        // SAFETY: it is a constant.
        unsafe { Home::new(scheduler, queue, Locality::Anywhere) }
    }

    /// The global pool.
    pub(in crate::task) fn global_pool() -> Self {
        #[cfg(not(loom))]
        {
            use crate::scheduler::{PoolScheduler, ThreadPool};
            use crate::sync::OnceLock;
            static SCHEDULER: OnceLock<PoolScheduler> = OnceLock::new();
            let scheduler = SCHEDULER.get_or_init(|| ThreadPool::global().scheduler());
            // SAFETY: it is a static, and a pool has a queue.
            unsafe { Home::of_queue(scheduler) }.unwrap_or_else(Home::anywhere)
        }
        // A model has no global pool.
        #[cfg(loom)]
        Home::anywhere()
    }

    /// The home behind the door of an environment: that of the task whose scheduler is that of the environment.
    ///
    /// # Safety
    ///
    /// It is used only until the receiver completes that gave the environment.
    #[inline]
    pub(in crate::task) unsafe fn behind(door: &EnvDoor<'_>) -> Option<Self> {
        // SAFETY: by the caller's promise; what is there is a home.
        unsafe { door.home().map(|home| *home.cast().as_ref()) }
    }

    /// The home of tasks on a scheduler that has no queue: frames wait in a hop.
    ///
    /// # Safety
    ///
    /// The scheduler and the hop stay where they are for as long as the home is used.
    pub(in crate::task) unsafe fn of_hop<S: Scheduler>(scheduler: &S, hop: RawNative) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Home::new(scheduler, hop, Locality::Hop) }
    }

    /// The hop that frames wait in, if the scheduler has no queue.
    #[inline]
    pub(in crate::task) fn hop(&self) -> Option<NonNull<()>> {
        (self.locality == Locality::Hop).then(|| self.queue.handle())
    }

    /// Whether a frame waits in a queue until a driver of the scheduler takes it. Otherwise a frame that is resumed is where it
    /// belongs: on the inline scheduler, or at the end of its hop.
    #[inline]
    pub(in crate::task) fn has_queue(&self) -> bool {
        matches!(self.locality, Locality::Pool(_) | Locality::Queue)
    }

    /// Whether the calling thread runs the work of the scheduler.
    #[inline]
    pub(in crate::task) fn is_here(&self) -> bool {
        if let Locality::Pool(pool) = self.locality {
            return Worker::current().is_some_and(|worker| worker.place() == pool);
        }
        match self.locality {
            // SAFETY: the queue is valid while the home is used.
            Locality::Queue => unsafe { self.queue.is_here() },
            Locality::Anywhere => true,
            Locality::Pool(_) | Locality::Hop => false,
        }
    }

    /// Whether a schedule sender leads to the queue in which frames wait, and at the priority of that queue.
    #[inline]
    pub(in crate::task) fn is_target_of(&self, schedule: &PoolSchedule) -> bool {
        let (identity, priority) = schedule.target();
        // SAFETY: the queue is valid while the home is used.
        self.locality == Locality::Pool(identity[0]) && unsafe { self.queue.is_target(identity, priority) }
    }

    /// Whether it is a pool all of whose threads are at work, as far as can be told.
    pub(in crate::task) fn is_busy_pool(&self) -> bool {
        // SAFETY: the queue is valid while the home is used.
        matches!(self.locality, Locality::Pool(_)) && unsafe { self.queue.is_busy() }
    }

    /// A scheduler for what asks.
    ///
    /// # Safety
    ///
    /// It is not used once what the scheduler borrows is gone.
    #[inline]
    pub(in crate::task) unsafe fn scheduler(&self) -> TaskScheduler<'static> {
        // SAFETY: the scheduler is valid while the home is used.
        unsafe { (self.own)(self.scheduler) }
    }

    /// Queues a frame.
    ///
    /// # Safety
    ///
    /// The entry is that of a frame that is busy and in no queue, and whose home this is. It may run before this returns.
    #[inline]
    pub(in crate::task) unsafe fn enqueue(self, entry: NonNull<Entry>) -> Transfer {
        // SAFETY: by the caller's promise. The job is the first field of an entry.
        unsafe { self.queue.enqueue(entry.cast()) }
    }

    /// Makes a queued frame at least that urgent.
    ///
    /// # Safety
    ///
    /// The entry is that of a frame which was queued here, or is about to be and says so. It is not resumed before this
    /// returns.
    pub(in crate::task) unsafe fn raise(self, entry: NonNull<Entry>, level: Priority) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { self.queue.raise(entry.cast(), level) }
    }
}

/// # Safety
///
/// It is a scheduler of this type. The result is not used once what the scheduler borrows is gone.
unsafe fn own<S: Scheduler>(scheduler: NonNull<()>) -> TaskScheduler<'static> {
    // SAFETY: by the caller's promise. The types differ in their lifetime alone, for which the caller answers.
    unsafe {
        let scheduler = TaskScheduler::new_unchecked(scheduler.cast::<S>().as_ref().clone());
        mem::transmute::<TaskScheduler<'_>, TaskScheduler<'static>>(scheduler)
    }
}
