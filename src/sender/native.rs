//! The sealed door of a scheduler: the queue behind it, where this crate knows that queue.
//!
//! A [`Native`] is what [`Scheduler::native`](super::Scheduler::native) answers. It borrows the scheduler, so a wrapper may
//! forward the answer of the scheduler inside. Only this crate makes one, of a type that implements [`Queue`].
//!
//! The tasks, the erased scheduler and `yield_now` share the one table of functions that is in it. Where the answer is
//! `None`, the schedule sender is all there is.

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
    /// Whether a job runs wherever it is enqueued, so that any thread is as good as another.
    const INLINE: bool = false;

    /// Queues a frame of a task.
    ///
    /// # Safety
    ///
    /// - `this` is valid until the job can run, which may be before this returns.
    /// - The job is the first field of an entry of the pool's queues. It is in no queue, and stays valid until it runs.
    /// - The entry is the first field of a frame of a task that is busy.
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer;

    /// Queues any entry behind all that is queued already: what a yield does.
    ///
    /// # Safety
    ///
    /// The contract of [`enqueue`](Queue::enqueue), but for the frame.
    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer;

    /// Makes a job that was enqueued by this handle at least that urgent. Does nothing where there are no priorities.
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

    /// Whether the calling thread runs the work of this queue right now. Only asked where there is no [`pool`](Queue::pool).
    #[inline]
    fn is_here(&self) -> bool {
        false
    }

    /// The address that tells pools apart, or 0 where the queue is not that of a pool.
    #[inline]
    fn pool(&self) -> usize {
        0
    }

    /// Whether all threads of a pool are at work, as far as can be told: none of them waits for something to be queued.
    #[inline]
    fn is_busy(&self) -> bool {
        false
    }

    /// Tells queues of one type apart.
    fn identity(&self) -> [usize; 2];

    /// Whether a schedule sender of the queue with this identity, at this priority, leads to where [`enqueue`](Queue::enqueue)
    /// does. Only asked where there is a [`pool`](Queue::pool).
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
    is_busy: unsafe fn(NonNull<()>) -> bool,
    identity: unsafe fn(NonNull<()>) -> [usize; 2],
    is_target: unsafe fn(NonNull<()>, [usize; 2], Option<Priority>) -> bool,
    is_inline: bool,
}

struct Of<Q>(PhantomData<Q>);

/// The caller of each function passes a pointer that meets the contract of the function of [`Queue`] with that name.
impl<Q: Queue> Of<Q> {
    const TABLE: &'static NativeTable = &NativeTable {
        // SAFETY: in each, the caller keeps the contract of the function that is called.
        enqueue: |queue, job| unsafe { Q::enqueue(queue.cast(), job) },
        // SAFETY: see `enqueue`.
        enqueue_last: |queue, job| unsafe { Q::enqueue_last(queue.cast(), job) },
        // SAFETY: see `enqueue`.
        raise: |queue, job, priority| unsafe { Q::raise(queue.cast(), job, priority) },
        // SAFETY: the pointer is valid.
        is_here: |queue| unsafe { queue.cast::<Q>().as_ref() }.is_here(),
        // SAFETY: the pointer is valid.
        pool: |queue| unsafe { queue.cast::<Q>().as_ref() }.pool(),
        // SAFETY: the pointer is valid.
        is_busy: |queue| unsafe { queue.cast::<Q>().as_ref() }.is_busy(),
        // SAFETY: the pointer is valid.
        identity: |queue| unsafe { queue.cast::<Q>().as_ref() }.identity(),
        // SAFETY: the pointer is valid.
        is_target: |queue, identity, priority| unsafe { queue.cast::<Q>().as_ref() }.is_target(identity, priority),
        is_inline: Q::INLINE,
    };
}

impl<'a> Native<'a> {
    /// The door of a scheduler that is a handle to a queue.
    #[inline]
    pub(crate) fn of<Q: Queue + Sync>(queue: &'a Q) -> Self {
        Native {
            raw: RawNative::of(NonNull::from(queue)),
            _queue: PhantomData,
        }
    }

    /// # Safety
    ///
    /// The handle is valid, and stays where it is, for `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: RawNative) -> Self {
        Native {
            raw,
            _queue: PhantomData,
        }
    }

    /// The same door, without the borrow. Using the result is unsafe: its handle may be gone.
    #[inline]
    pub(crate) fn raw(&self) -> RawNative {
        self.raw
    }

    /// Whether a job runs wherever it is enqueued.
    #[cfg(feature = "std")]
    pub(crate) fn is_inline(&self) -> bool {
        self.raw.is_inline()
    }

    /// The address that tells pools apart, or 0 where the queue is not that of a pool.
    #[cfg(feature = "std")]
    pub(crate) fn pool(&self) -> usize {
        // SAFETY: the handle is borrowed.
        unsafe { self.raw.pool() }
    }

    /// Tells the queue from others, among schedulers of one type.
    pub(crate) fn identity(&self) -> Identity {
        // SAFETY: the handle is borrowed.
        Identity::of_queue(unsafe { (self.raw.table.identity)(self.raw.queue) })
    }
}

crate::opaque!([] Native<'_>);

/// A [`Native`] whose borrow is kept by other means: the handle lives in a pinned operation.
///
/// Its functions ask for a valid handle: the one that this was made of was neither moved nor dropped since. That handle
/// is `Sync`, so they may be called on any thread.
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

    /// The handle.
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
        // SAFETY: the caller keeps the contract; the table was made for the type of the handle.
        unsafe { (self.table.enqueue)(self.queue, job) }
    }

    /// # Safety
    ///
    /// The contract of [`Queue::enqueue_last`].
    #[inline]
    pub(crate) unsafe fn enqueue_last(self, job: NonNull<Job>) -> Transfer {
        // SAFETY: the caller keeps the contract; the table was made for the type of the handle.
        unsafe { (self.table.enqueue_last)(self.queue, job) }
    }

    /// # Safety
    ///
    /// The contract of [`Queue::raise`].
    pub(crate) unsafe fn raise(self, job: NonNull<Job>, priority: Priority) -> Transfer {
        // SAFETY: the caller keeps the contract; the table was made for the type of the handle.
        unsafe { (self.table.raise)(self.queue, job, priority) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[inline]
    pub(crate) unsafe fn is_here(self) -> bool {
        // SAFETY: the handle is valid, by the caller's promise.
        unsafe { (self.table.is_here)(self.queue) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[inline]
    pub(crate) unsafe fn pool(self) -> usize {
        // SAFETY: the handle is valid, by the caller's promise.
        unsafe { (self.table.pool)(self.queue) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    pub(crate) unsafe fn is_busy(self) -> bool {
        // SAFETY: the handle is valid, by the caller's promise.
        unsafe { (self.table.is_busy)(self.queue) }
    }

    /// # Safety
    ///
    /// The handle is valid.
    #[inline]
    pub(crate) unsafe fn is_target(self, identity: [usize; 2], priority: Option<Priority>) -> bool {
        // SAFETY: the handle is valid, by the caller's promise.
        unsafe { (self.table.is_target)(self.queue, identity, priority) }
    }
}
