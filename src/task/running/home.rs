//! Where a task runs.
//!
//! A [`Home`] is a scheduler that something else keeps, and the queue in which frames wait for it. The queue is the
//! scheduler's own, where [`Scheduler::native`] says that it has one, and otherwise a [`Hop`], which goes by the schedule
//! sender.
//!
//! The scheduler is asked once for each home. It is pinned in an operation, or in the frame of a child, until the task is
//! done. So the borrow that its answer stands for lasts as long as the home is used, and what it answers the next time
//! makes no difference.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use crate::memory::OutOfMemory;
use crate::scheduler::thread_pool::{Entry, Worker};
use crate::scheduler::{InlineScheduler, TaskScheduler};
use crate::sender::env::EnvDoor;
use crate::sender::native::RawNative;
use crate::task::frame::Header;
use crate::task::running::hop::{self, Hop};
use crate::task::strand::context::{Around, Context};
use crate::{Env, Priority, Scheduler, Transfer};

/// Where a task runs. The tasks that it starts, on the same scheduler, have a copy of it.
///
/// The scheduler and the queue are valid, and stay where they are, for as long as a home is used: the contract of the
/// functions that make one.
#[derive(Clone, Copy)]
pub(in crate::task) struct Home {
    /// Where frames wait. The handle is the scheduler, a part of it, or a hop.
    queue: RawNative,
    place: Place,
    scheduler: NonNull<()>,
    /// Clones the scheduler.
    own: unsafe fn(NonNull<()>) -> TaskScheduler<'static>,
}

/// How it is found out whether a thread is at home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The scheduler is the inline one: every thread is.
    Anywhere,
    /// The workers of the pool at this address are.
    Pool(usize),
    /// The queue is asked.
    Queue,
    /// The queue is a [`Hop`]: no thread is.
    Hop,
}

impl Home {
    /// # Safety
    ///
    /// The scheduler stays where it is for as long as the home is used.
    #[inline]
    unsafe fn new<S: Scheduler>(scheduler: &S, queue: RawNative, place: Place) -> Self {
        Home {
            queue,
            place,
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
        let place = match unsafe { queue.pool() } {
            _ if queue.is_inline() => Place::Anywhere,
            0 => Place::Queue,
            pool => Place::Pool(pool),
        };
        // SAFETY: by the caller's promise.
        Some(unsafe { Home::new(scheduler, queue, place) })
    }

    /// The home of a task on any scheduler, with a hop of its own where that has no queue.
    ///
    /// # Errors
    ///
    /// The allocator had no memory for the hop.
    ///
    /// # Safety
    ///
    /// - The scheduler stays where it is for as long as the home is used.
    /// - The frame is the one that is about to be started, and `owner` the operation that calls
    ///   [`take_back`](Home::take_back) when it is done.
    #[inline]
    pub(in crate::task) unsafe fn of<S: Scheduler>(
        scheduler: &S,
        frame: NonNull<Header>,
        owner: NonNull<()>,
    ) -> Result<Self, OutOfMemory> {
        // SAFETY: by the caller's promise.
        unsafe {
            match Home::of_queue(scheduler) {
                Some(home) => Ok(home),
                None => {
                    let hop = hop::make(scheduler, frame, owner)?;
                    Ok(Home::new(scheduler, RawNative::of(hop), Place::Hop))
                }
            }
        }
    }

    /// Frees the hop, if there is one that was made for this operation.
    ///
    /// # Safety
    ///
    /// All frames that use the home are done. The operation and the frame are those that the home was made with, if it has
    /// a hop of its own; another operation than that is allowed.
    #[inline]
    pub(in crate::task) unsafe fn take_back(&self, operation: NonNull<()>, frame: NonNull<Header>) {
        if let Some(hop) = self.hop() {
            // SAFETY: by the caller's promise.
            unsafe { hop::free(hop, operation, frame) };
        }
    }

    /// Nowhere in particular.
    #[inline]
    pub(in crate::task) fn anywhere() -> Self {
        let scheduler = const { &InlineScheduler };
        let queue = RawNative::of(NonNull::from(scheduler));
        // SAFETY: it is a constant.
        unsafe { Home::new(scheduler, queue, Place::Anywhere) }
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

    #[inline]
    fn hop(&self) -> Option<NonNull<Hop>> {
        (self.place == Place::Hop).then(|| self.queue.handle().cast())
    }

    /// Whether a frame waits in a queue until a driver of the scheduler takes it. Otherwise a frame that is resumed is where it
    /// belongs: on the inline scheduler, or at the end of its hop.
    #[inline]
    pub(in crate::task) fn has_queue(&self) -> bool {
        matches!(self.place, Place::Pool(_) | Place::Queue)
    }

    /// Whether the calling thread runs the work of the scheduler.
    #[inline]
    pub(in crate::task) fn is_here(&self) -> bool {
        if let Place::Pool(pool) = self.place {
            return Worker::current().is_some_and(|worker| worker.place() == pool);
        }
        match self.place {
            // SAFETY: the queue is valid while the home is used.
            Place::Queue => unsafe { self.queue.is_here() },
            Place::Anywhere => true,
            Place::Pool(_) | Place::Hop => false,
        }
    }

    /// Whether it is a pool all of whose threads are at work, as far as can be told.
    pub(in crate::task) fn is_busy_pool(&self) -> bool {
        // SAFETY: the queue is valid while the home is used.
        matches!(self.place, Place::Pool(_)) && unsafe { self.queue.is_busy() }
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

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
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

impl Around {
    /// The task that awaits what an environment is that of.
    ///
    /// # Safety
    ///
    /// It is used only until the receiver completes that gave the environment.
    #[inline]
    pub(in crate::task) unsafe fn of<N: Env>(env: &N) -> Option<Self> {
        // SAFETY: by the caller's promise. What is behind a door are a frame and a context.
        let awaiting = unsafe { env.door().awaiting() }?;
        Some(Around {
            frame: awaiting.frame.cast::<Header>(),
            context: awaiting.context.cast::<Context>(),
        })
    }
}
