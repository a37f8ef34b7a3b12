//! The sealed door of a scheduler: the queue behind it, where this crate knows that queue.
//!
//! [`Scheduler::native`](super::Scheduler::native) returns a [`Native`]. It borrows the scheduler, so a wrapper may
//! forward the one of the scheduler inside. Only this crate makes one, of a type that implements [`Queue`].
//!
//! Tasks, the erased scheduler and `yield_now` share its table of functions. A scheduler without one is used through
//! its schedule sender.

#[cfg(feature = "std")]
use core::any::Any;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::identity::Identity;
use super::{Job, Priority, Transfer};

/// The queue behind a scheduler of this crate, borrowed from that scheduler. Opaque: a wrapper can only forward it.
pub struct Native<'a> {
    raw: RawNative,
    /// The queue handle is borrowed.
    _queue: PhantomData<&'a ()>,
}

/// A handle to a queue that tasks and jobs can wait in. Implemented by the schedulers of this crate.
///
/// The handle is a scheduler. A queue may outlive the handle it is reached by.
pub(crate) trait Queue: Sized {
    /// Whether a job runs where it is enqueued, so that it may continue on any thread.
    const INLINE: bool = false;

    /// Whether several threads run the jobs, so that a task may continue on another one. A [`pool`](Queue::pool) does.
    #[cfg(feature = "std")]
    const MOVES: bool = false;

    /// Queues a frame of a task.
    ///
    /// # Safety
    ///
    /// - `this` is valid until the job can run, which may be before this returns.
    /// - The job is the first field of an entry of the pool's queues. It is in no queue, and stays valid until it runs.
    /// - The entry is the first field of a frame of a task that is busy.
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer;

    /// Queues any entry behind all queued ones, for a yield.
    ///
    /// # Safety
    ///
    /// The contract of [`enqueue`](Queue::enqueue), except for the frame.
    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer;

    /// Raises a job that was enqueued by this handle to at least this priority. Does nothing in a queue without
    /// priorities.
    ///
    /// # Safety
    ///
    /// - `this` is valid until this returns.
    /// - The job was enqueued by this handle, or is about to be and its entry says so. It stays valid until this returns.
    #[inline]
    unsafe fn raise(this: NonNull<Self>, job: NonNull<Job>, priority: Priority) -> Transfer {
        let _ = (this, job, priority);
        Transfer::none()
    }

    /// Returns whether the calling thread is running the work of this queue. Called only without a
    /// [`pool`](Queue::pool).
    #[inline]
    fn is_here(&self) -> bool {
        false
    }

    /// Returns the address that identifies the pool, or 0 where the queue is not a pool's.
    #[inline]
    fn pool(&self) -> usize {
        0
    }

    /// Returns whether the pool uses the heavy barrier. Called only with a [`pool`](Queue::pool).
    #[cfg(feature = "std")]
    #[inline]
    fn is_light(&self) -> bool {
        false
    }

    /// Returns the handle, where a layer above looks for its type.
    #[cfg(feature = "std")]
    #[inline]
    fn as_any(&self) -> Option<&(dyn Any + 'static)> {
        None
    }

    /// Returns the identity of the queue among those of one type.
    fn identity(&self) -> [usize; 2];

    /// Returns whether a schedule sender of the queue with this identity, at this priority, leads to where
    /// [`enqueue`](Queue::enqueue) does. Called only with a [`pool`](Queue::pool).
    #[inline]
    fn is_target(&self, identity: [usize; 2], priority: Option<Priority>) -> bool {
        let _ = (identity, priority);
        false
    }
}

/// The functions of a [`Queue`]. Each takes a pointer to a handle of the type that the table was made for.
pub(crate) struct NativeTable {
    enqueue: unsafe fn(NonNull<()>, NonNull<Job>) -> Transfer,
    enqueue_last: unsafe fn(NonNull<()>, NonNull<Job>) -> Transfer,
    raise: unsafe fn(NonNull<()>, NonNull<Job>, Priority) -> Transfer,
    is_here: unsafe fn(NonNull<()>) -> bool,
    pool: unsafe fn(NonNull<()>) -> usize,
    #[cfg(feature = "std")]
    is_light: unsafe fn(NonNull<()>) -> bool,
    #[cfg(feature = "std")]
    as_any: unsafe fn(NonNull<()>) -> Option<NonNull<dyn Any>>,
    identity: unsafe fn(NonNull<()>) -> [usize; 2],
    is_target: unsafe fn(NonNull<()>, [usize; 2], Option<Priority>) -> bool,
    is_inline: bool,
    #[cfg(feature = "std")]
    moves: bool,
}

struct Of<Q>(PhantomData<Q>);

/// Each function has the contract of the function of [`Queue`] with that name.
impl<Q: Queue> Of<Q> {
    const TABLE: &'static NativeTable = &NativeTable {
        // SAFETY: the contract is that of the function that is called.
        enqueue: |queue, job| unsafe { Q::enqueue(queue.cast(), job) },
        // SAFETY: see `enqueue`.
        enqueue_last: |queue, job| unsafe { Q::enqueue_last(queue.cast(), job) },
        // SAFETY: see `enqueue`.
        raise: |queue, job, priority| unsafe { Q::raise(queue.cast(), job, priority) },
        // SAFETY: the pointer is a valid handle, by the contract of the table.
        is_here: |queue| unsafe { queue.cast::<Q>().as_ref() }.is_here(),
        // SAFETY: the pointer is a valid handle, by the contract of the table.
        pool: |queue| unsafe { queue.cast::<Q>().as_ref() }.pool(),
        // SAFETY: the pointer is a valid handle, by the contract of the table.
        #[cfg(feature = "std")]
        is_light: |queue| unsafe { queue.cast::<Q>().as_ref() }.is_light(),
        // SAFETY: the pointer is a valid handle, by the contract of the table.
        #[cfg(feature = "std")]
        as_any: |queue| unsafe { queue.cast::<Q>().as_ref() }.as_any().map(NonNull::from),
        // SAFETY: the pointer is a valid handle, by the contract of the table.
        identity: |queue| unsafe { queue.cast::<Q>().as_ref() }.identity(),
        // SAFETY: the pointer is a valid handle, by the contract of the table.
        is_target: |queue, identity, priority| unsafe { queue.cast::<Q>().as_ref() }.is_target(identity, priority),
        is_inline: Q::INLINE,
        #[cfg(feature = "std")]
        moves: Q::MOVES,
    };
}

impl<'a> Native<'a> {
    /// Makes the door of a scheduler that is a handle to a queue.
    #[inline]
    pub(crate) fn of<Q: Queue + Sync>(queue: &'a Q) -> Self {
        Native {
            raw: RawNative::of(NonNull::from(queue)),
            _queue: PhantomData,
        }
    }

    /// # Safety
    ///
    /// The handle is valid, and does not move, for `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: RawNative) -> Self {
        Native {
            raw,
            _queue: PhantomData,
        }
    }

    /// Returns the door without the borrow. Using the result is unsafe: its handle may be invalid.
    #[inline]
    pub(crate) fn raw(&self) -> RawNative {
        self.raw
    }

    /// Returns whether a job runs where it is enqueued.
    #[cfg(feature = "std")]
    pub(crate) fn is_inline(&self) -> bool {
        self.raw.is_inline()
    }

    /// Returns whether a task in this queue may continue on another thread.
    #[cfg(feature = "std")]
    pub(crate) fn moves(&self) -> bool {
        self.pool() != 0 || self.is_inline() || self.raw.table.moves
    }

    /// Returns the address that identifies the pool, or 0 where the queue is not a pool's.
    #[cfg(feature = "std")]
    pub(crate) fn pool(&self) -> usize {
        // SAFETY: the handle is borrowed.
        unsafe { self.raw.pool() }
    }

    /// Returns the handle, if it is of this type.
    #[cfg(feature = "std")]
    pub(crate) fn downcast<Q: Any>(&self) -> Option<&'a Q> {
        // SAFETY: the handle is borrowed for `'a`, and so is the result.
        let handle = unsafe { (self.raw.table.as_any)(self.raw.queue)?.as_ref() };
        handle.downcast_ref()
    }

    /// Returns the identity of the queue among schedulers of one type.
    pub(crate) fn identity(&self) -> Identity {
        // SAFETY: the handle is borrowed.
        Identity::of_queue(unsafe { (self.raw.table.identity)(self.raw.queue) })
    }
}

crate::opaque!([] Native<'_>);

/// A [`Native`] without the borrow: its handle is in a pinned operation.
///
/// Its functions require a valid handle: the handle was neither moved nor dropped since. A handle is `Sync`, so they
/// may be called on any thread.
#[derive(Clone, Copy)]
pub(crate) struct RawNative {
    queue: NonNull<()>,
    table: &'static NativeTable,
}

#[cfg_attr(
    not(feature = "std"),
    allow(dead_code, reason = "tasks are what uses the queue, and need `std`")
)]
impl RawNative {
    #[inline]
    pub(crate) fn of<Q: Queue>(queue: NonNull<Q>) -> Self {
        RawNative {
            queue: queue.cast(),
            table: Of::<Q>::TABLE,
        }
    }

    /// Returns the handle.
    #[inline]
    pub(crate) fn handle(self) -> NonNull<()> {
        self.queue
    }

    #[inline]
    pub(crate) fn is_inline(self) -> bool {
        self.table.is_inline
    }

    /// # Safety
    ///
    /// The contract of [`Queue::enqueue`].
    #[inline]
    pub(crate) unsafe fn enqueue(self, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract is the same, and the table was made for the type of the handle.
        unsafe { (self.table.enqueue)(self.queue, job) }
    }

    /// # Safety
    ///
    /// The contract of [`Queue::enqueue_last`].
    #[inline]
    pub(crate) unsafe fn enqueue_last(self, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract is the same, and the table was made for the type of the handle.
        unsafe { (self.table.enqueue_last)(self.queue, job) }
    }

    /// # Safety
    ///
    /// The contract of [`Queue::raise`].
    pub(crate) unsafe fn raise(self, job: NonNull<Job>, priority: Priority) -> Transfer {
        // SAFETY: the contract is the same, and the table was made for the type of the handle.
        unsafe { (self.table.raise)(self.queue, job, priority) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[inline]
    pub(crate) unsafe fn is_here(self) -> bool {
        // SAFETY: the handle is valid, by the contract.
        unsafe { (self.table.is_here)(self.queue) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[inline]
    pub(crate) unsafe fn pool(self) -> usize {
        // SAFETY: the handle is valid, by the contract.
        unsafe { (self.table.pool)(self.queue) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) unsafe fn is_light(self) -> bool {
        // SAFETY: the handle is valid, by the contract.
        unsafe { (self.table.is_light)(self.queue) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[inline]
    pub(crate) unsafe fn is_target(self, identity: [usize; 2], priority: Option<Priority>) -> bool {
        // SAFETY: the handle is valid, by the contract.
        unsafe { (self.table.is_target)(self.queue, identity, priority) }
    }
}
