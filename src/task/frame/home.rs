//! The scheduler of a frame, and the queue in which the frame waits for it.
//!
//! The queue of a [`Home`] is the scheduler's own, if [`Scheduler::native`] returns one. Otherwise it is a
//! [`Hop`]: one schedule operation that all frames of a strand share.
//!
//! Each home asks its scheduler once. The scheduler is pinned in an operation, or in the frame of a child, until the task
//! is done. So the borrow of its answer lasts as long as the home is used, and a later, different answer has no effect.

use core::mem;
use core::ptr::NonNull;

use super::Header;
use crate::memory::OutOfMemoryError;
use crate::scheduler::thread_pool::{Entry, Worker, barrier};
use crate::scheduler::{Hop, InlineScheduler, PoolSchedule, TaskScheduler, hop_to};
use crate::sender::env::EnvDoor;
use crate::sender::native::RawNative;
use crate::{Priority, Scheduler, Transfer};

/// Where a task runs. The tasks that it starts on the same scheduler have a copy.
///
/// The scheduler and the queue are valid, and do not move, while a home is used: the contract of its constructors.
#[derive(Clone, Copy)]
pub(in crate::task) struct Home {
    /// The queue of the frames. Its handle is the scheduler, a part of it, or a hop.
    queue: RawNative,
    locality: Locality,
    scheduler: NonNull<()>,
    /// Clones the scheduler.
    own: unsafe fn(NonNull<()>) -> TaskScheduler<'static>,
}

/// How to find out whether a thread is at home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locality {
    /// Every thread is: the scheduler is the inline one.
    Anywhere,
    /// The workers of the pool at this address are.
    Pool(usize),
    /// The queue knows.
    Queue,
    /// No thread is: the queue is a hop.
    Hop,
}

impl Home {
    /// Creates a home.
    ///
    /// # Safety
    ///
    /// The scheduler is valid, and does not move, while the home is used.
    #[inline]
    unsafe fn new<S: Scheduler>(scheduler: &S, queue: RawNative, locality: Locality) -> Self {
        Home {
            queue,
            locality,
            scheduler: NonNull::from(scheduler).cast(),
            own: own::<S>,
        }
    }

    /// Creates the home of tasks on a scheduler that has a queue for them, or returns `None`.
    ///
    /// # Safety
    ///
    /// The scheduler is valid, and does not move, while the home is used.
    #[inline]
    pub(in crate::task) unsafe fn of_queue<S: Scheduler>(scheduler: &S) -> Option<Self> {
        let queue = scheduler.native()?.raw();
        // SAFETY: the scheduler is borrowed here, and so is its queue.
        let locality = match unsafe { queue.pool() } {
            _ if queue.is_inline() => Locality::Anywhere,
            0 => Locality::Queue,
            pool => Locality::Pool(pool),
        };
        // SAFETY: the caller's promise.
        Some(unsafe { Home::new(scheduler, queue, locality) })
    }

    /// Creates the home of tasks that run on any thread.
    #[inline]
    pub(in crate::task) fn anywhere() -> Self {
        let scheduler = const { &InlineScheduler };
        let queue = RawNative::of(NonNull::from(scheduler));
        // SAFETY: the scheduler is a constant.
        unsafe { Home::new(scheduler, queue, Locality::Anywhere) }
    }

    /// Returns the home of tasks on the global pool.
    pub(in crate::task) fn global_pool() -> Self {
        #[cfg(not(loom))]
        {
            use crate::scheduler::{PoolScheduler, ThreadPool};
            use crate::sync::OnceLock;
            static SCHEDULER: OnceLock<PoolScheduler> = OnceLock::new();
            let scheduler = SCHEDULER.get_or_init(|| ThreadPool::global().scheduler());
            // SAFETY: the scheduler is a static.
            unsafe { Home::of_queue(scheduler) }.unwrap_or_else(Home::anywhere)
        }
        // A model has no global pool.
        #[cfg(loom)]
        Home::anywhere()
    }

    /// Returns the home of the task behind an environment, if both have the same scheduler.
    ///
    /// # Safety
    ///
    /// The home is not used after the receiver of that environment has completed.
    #[inline]
    pub(in crate::task) unsafe fn behind(door: &EnvDoor<'_>) -> Option<Self> {
        // SAFETY: a door refers to a `Home`, which is valid until that completion.
        unsafe { door.home().map(|home| *home.cast().as_ref()) }
    }

    /// Returns the home of a task on any scheduler, with a hop of its own if the scheduler has no queue.
    ///
    /// # Errors
    ///
    /// The allocator had no memory for the hop.
    ///
    /// # Safety
    ///
    /// - The scheduler is valid, and does not move, while the home is used.
    /// - `frame` is about to be started, and `owner` is the operation that calls [`take_back`](Home::take_back) when it is
    ///   done.
    #[inline]
    pub(in crate::task) unsafe fn of<S: Scheduler>(
        scheduler: &S,
        frame: NonNull<Header>,
        owner: NonNull<()>,
    ) -> Result<Self, OutOfMemoryError> {
        // SAFETY: the caller's promise.
        unsafe {
            match Home::of_queue(scheduler) {
                Some(home) => Ok(home),
                None => Home::of_new_hop(scheduler, frame, owner),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`of`](Home::of).
    #[cold]
    unsafe fn of_new_hop<S: Scheduler>(
        scheduler: &S,
        frame: NonNull<Header>,
        owner: NonNull<()>,
    ) -> Result<Self, OutOfMemoryError> {
        let target = hop_to(scheduler);
        let layout = target.0.layout();
        // SAFETY: the caller's promise. The memory has the layout of the hop, and is exclusive.
        unsafe {
            let memory = Header::allocate(frame, layout).ok_or(OutOfMemoryError::new(layout))?;
            Hop::write(memory.cast(), target, owner);
            Ok(Home::new(scheduler, RawNative::of(memory.cast::<Hop>()), Locality::Hop))
        }
    }

    /// Frees the hop, if this operation owns one.
    ///
    /// # Safety
    ///
    /// All frames that use the home are done. If the hop belongs to `operation`, `frame` is the one the home was created with.
    #[inline]
    pub(in crate::task) unsafe fn take_back(&self, operation: NonNull<()>, frame: NonNull<Header>) {
        if self.locality == Locality::Hop {
            // SAFETY: the caller's promise. The memory was allocated from that frame.
            unsafe {
                let hop = self.queue.handle();
                if let Some(layout) = Hop::destroy(hop.cast(), operation) {
                    Header::deallocate(frame, hop.cast(), layout);
                }
            }
        }
    }

    /// Returns whether frames wait in a queue until a driver of the scheduler takes them. Otherwise a resumed frame is at
    /// home: on the inline scheduler, or at the end of its hop.
    #[inline]
    pub(in crate::task) fn has_queue(&self) -> bool {
        matches!(self.locality, Locality::Pool(_) | Locality::Queue)
    }

    /// Returns whether the queue is that of a pool.
    #[inline]
    pub(super) fn is_pool(&self) -> bool {
        matches!(self.locality, Locality::Pool(_))
    }

    /// Returns whether the calling thread runs the work of the scheduler.
    #[inline]
    pub(in crate::task) fn is_here(&self) -> bool {
        match self.locality {
            Locality::Pool(pool) => Worker::current().is_some_and(|worker| worker.place() == pool),
            // SAFETY: the queue is valid while the home is used.
            Locality::Queue => unsafe { self.queue.is_here() },
            Locality::Anywhere => true,
            Locality::Hop => false,
        }
    }

    /// Returns whether locks of tasks at home here may be [biased](crate::scheduler::thread_pool::Biased).
    #[inline]
    pub(in crate::task) fn is_light(&self) -> bool {
        match self.locality {
            // SAFETY: the queue is valid while the home is used.
            Locality::Pool(_) => unsafe { self.queue.is_light() },
            _ => barrier::is_prepared(),
        }
    }

    /// Returns whether a schedule sender leads to this queue, at the priority of this queue.
    #[inline]
    pub(in crate::task) fn is_target_of(&self, schedule: &PoolSchedule) -> bool {
        let (identity, priority) = schedule.target();
        // SAFETY: the queue is valid while the home is used.
        self.locality == Locality::Pool(identity[0]) && unsafe { self.queue.is_target(identity, priority) }
    }

    /// Returns a clone of the scheduler.
    ///
    /// # Safety
    ///
    /// The clone is not used after the borrows of the scheduler have ended.
    #[inline]
    pub(in crate::task) unsafe fn scheduler(&self) -> TaskScheduler<'static> {
        // SAFETY: the scheduler is valid while the home is used. The lifetime is the caller's promise.
        unsafe { (self.own)(self.scheduler) }
    }

    /// Queues a frame.
    ///
    /// # Safety
    ///
    /// The entry is that of a busy frame in no queue, whose home this is. The frame may run before this returns.
    #[inline]
    pub(in crate::task) unsafe fn enqueue(self, entry: NonNull<Entry>) -> Transfer {
        // SAFETY: the queue is valid while the home is used. The job is the first field of an entry.
        unsafe { self.queue.enqueue(entry.cast()) }
    }

    /// Raises a queued frame to at least this level.
    ///
    /// # Safety
    ///
    /// The entry is that of a frame that was queued here, or is marked as coming, and is alive until this returns. Unless the queue is
    /// that of a pool, the frame is not resumed before.
    pub(in crate::task) unsafe fn raise(self, entry: NonNull<Entry>, level: Priority) -> Transfer {
        // SAFETY: the queue is valid while the home is used, and the entry by the caller's promise.
        unsafe { self.queue.raise(entry.cast(), level) }
    }
}

/// Clones a type-erased scheduler.
///
/// # Safety
///
/// The pointer is to a valid `S`. The clone is not used after the borrows of that scheduler have ended.
unsafe fn own<S: Scheduler>(scheduler: NonNull<()>) -> TaskScheduler<'static> {
    // SAFETY: the pointer is to an `S`. The types differ in their lifetime alone, for which the caller answers.
    unsafe {
        let scheduler = TaskScheduler::new_unchecked(scheduler.cast::<S>().as_ref().clone());
        mem::transmute::<TaskScheduler<'_>, TaskScheduler<'static>>(scheduler)
    }
}
