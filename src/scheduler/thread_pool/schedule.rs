//! The scheduler of a pool, its sender and its operation.

use core::any::Any;
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::entry::{Entry, EntryPlace, OwnedEntry};
use super::pool::{forward, forwarded_to};
use super::shared::PoolShared;
use crate::sender::native::{Native, Queue};
use crate::sender::stage::container_of;
use crate::stop::StopToken;
use crate::sync::spin;
use crate::{Env, Job, Operation, Priority, Receiver, Scheduler, Sender, Transfer};

/// A handle to a [`ThreadPool`](super::ThreadPool): two words, free to copy. Two handles are equal if they belong to
/// one pool, at any priority.
///
/// The handle may outlive the pool. Work scheduled on an ended pool runs on the [global](super::ThreadPool::global)
/// one. So scheduling never fails, and no work is lost.
#[derive(Clone, Copy)]
pub struct PoolScheduler {
    pub(super) shared: &'static PoolShared,
    pub(super) generation: u32,
    priority: Option<Priority>,
}

impl PoolScheduler {
    pub(super) fn new(shared: &'static PoolShared, generation: u32) -> Self {
        PoolScheduler {
            shared,
            generation,
            priority: None,
        }
    }

    /// Returns a handle to the same pool with a priority.
    ///
    /// Without a priority, the receiver's environment is queried for a [`Priority`], which `write_env(With(priority))`
    /// provides. The default is [`Priority::Default`].
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::ThreadPool;
    ///
    /// let pool = ThreadPool::new(1);
    /// let tidy_up = pool.scheduler().with_priority(Priority::Background).schedule().then(|()| "tidy");
    /// assert_eq!(sync_wait(tidy_up).unwrap(), "tidy");
    /// ```
    #[must_use = "the scheduler itself is not changed"]
    pub fn with_priority(self, priority: Priority) -> Self {
        PoolScheduler {
            priority: Some(priority),
            ..self
        }
    }

    /// Returns the priority of this handle.
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Queues an entry in the pool, or in the global pool if this one has ended.
    #[inline]
    pub(super) fn push(self, entry: OwnedEntry) -> Transfer {
        match self.shared.push(entry, self.generation) {
            Ok(()) => Transfer::none(),
            Err(entry) => forward(entry),
        }
    }

    /// Raises an entry to at least `priority`, and moves it to its new level if it is queued.
    ///
    /// Returns the entry if it was taken out of a seat's queue and the pool has ended since.
    ///
    /// # Safety
    ///
    /// The entry is valid until this returns. If it was pushed, it was by a scheduler of this pool.
    pub(super) unsafe fn raise(self, entry: NonNull<Entry>, priority: Priority) -> Result<(), OwnedEntry> {
        // SAFETY: the entry is valid, by the contract of this function.
        let this = unsafe { entry.as_ref() };
        if !this.raise(priority) {
            return Ok(());
        }
        let mut rounds = 0;
        loop {
            let place = this.place();
            if place == EntryPlace::Nowhere {
                return Ok(());
            }
            // Read after the place: an entry in the injector of the global pool was marked as forwarded before.
            let pool = if this.is_forwarded() { forwarded_to() } else { None }.unwrap_or(self);
            // SAFETY: the entry is valid. If it is in an injector, it is the one of `pool`.
            if unsafe { pool.shared.move_up(entry, place, pool.generation) }? {
                return Ok(());
            }
            // Another thread has just taken the entry, and is about to store its new place.
            spin(&mut rounds);
        }
    }
}

/// Moves a raised entry that was forwarded to the global pool to its new level there. Returns `Ok(false)` if it is not at
/// `place`, so that its place has to be read again.
///
/// # Safety
///
/// The entry is valid until this returns. It is forwarded, so it is queued in no other pool.
pub(in crate::scheduler) unsafe fn raise_forwarded(
    entry: NonNull<Entry>,
    place: EntryPlace,
) -> Result<bool, OwnedEntry> {
    match forwarded_to() {
        // SAFETY: the contract of this function.
        Some(pool) => unsafe { pool.shared.move_up(entry, place, pool.generation) },
        // No pool has it: its job is returned to a driver, or has run.
        None => Ok(true),
    }
}

impl Scheduler for PoolScheduler {
    type Schedule = PoolSchedule;
    const INFALLIBLE: bool = true;

    #[inline]
    fn schedule(&self) -> PoolSchedule {
        PoolSchedule { scheduler: *self }
    }

    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        Some(Native::of(self))
    }
}

impl PoolScheduler {
    /// Copies the handle, and takes ownership of an entry. Gives the entry the priority of the handle, if it has one.
    ///
    /// # Safety
    ///
    /// The handle is valid. `job` meets the contract of `enqueue`: it is the first field of an entry in no queue.
    #[inline]
    unsafe fn accept(this: NonNull<Self>, job: NonNull<Job>) -> (Self, OwnedEntry) {
        // SAFETY: the contract of this function.
        let (scheduler, entry) = unsafe { (*this.as_ref(), OwnedEntry::new(job.cast())) };
        if let Some(priority) = scheduler.priority {
            entry.get().change_level(priority);
        }
        (scheduler, entry)
    }
}

impl Queue for PoolScheduler {
    #[inline]
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract of this function. The handle is copied before the entry is queued.
        let (scheduler, entry) = unsafe { Self::accept(this, job) };
        scheduler.push(entry)
    }

    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract of this function. The handle is copied before the entry is queued.
        let (scheduler, entry) = unsafe { Self::accept(this, job) };
        match scheduler.shared.push_last(entry, scheduler.generation) {
            Ok(()) => Transfer::none(),
            Err(entry) => forward(entry),
        }
    }

    unsafe fn raise(this: NonNull<Self>, job: NonNull<Job>, priority: Priority) -> Transfer {
        // SAFETY: the job is the first field of an entry of this pool, valid until this returns, by the contract of
        // this function.
        match unsafe { PoolScheduler::raise(*this.as_ref(), job.cast(), priority) } {
            Ok(()) => Transfer::none(),
            Err(entry) => forward(entry),
        }
    }

    fn as_any(&self) -> Option<&(dyn Any + 'static)> {
        Some(self)
    }

    fn pool(&self) -> usize {
        ptr::from_ref(self.shared).addr()
    }

    #[inline]
    fn is_light(&self) -> bool {
        self.shared.is_light()
    }

    #[inline]
    fn identity(&self) -> [usize; 2] {
        [ptr::from_ref(self.shared).addr(), self.generation as usize]
    }

    #[inline]
    fn is_target(&self, identity: [usize; 2], priority: Option<Priority>) -> bool {
        Queue::identity(self) == identity && self.priority == priority
    }
}

impl PartialEq for PoolScheduler {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.shared, other.shared) && self.generation == other.generation
    }
}

impl Eq for PoolScheduler {}

impl fmt::Debug for PoolScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolScheduler")
            .field("pool", &format_args!("{:p}.{}", self.shared, self.generation))
            .field("priority", &self.priority)
            .finish()
    }
}

/// The schedule sender of a [`ThreadPool`](super::ThreadPool).
///
/// # Completions
///
/// The value, on one of the pool's threads. Stopped, also there, if the stop was requested by then.
///
/// # Panics
///
/// None: it runs no user code.
///
/// # Cancellation
///
/// The stop token is checked when the job runs. A stop does not shorten the wait.
///
/// # Allocation
///
/// None: the operation is the queue's node. If the pool has ended, the first use of the global pool allocates.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct PoolSchedule {
    scheduler: PoolScheduler,
}

impl PoolSchedule {
    /// Returns the identity of the queue that this sender schedules onto, and the priority of its scheduler.
    #[inline]
    pub(crate) fn target(&self) -> ([usize; 2], Option<Priority>) {
        (Queue::identity(&self.scheduler), self.scheduler.priority)
    }
}

// SAFETY: the operation does not access itself after the push, nor after its completion. It is `!Unpin`.
unsafe impl Sender for PoolSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = PoolOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> PoolOperation<R> {
        PoolOperation {
            entry: Entry::of_operation(PoolOperation::<R>::run),
            scheduler: self.scheduler,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`PoolSchedule`].
pub struct PoolOperation<R> {
    entry: Entry,
    scheduler: PoolScheduler,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> PoolOperation<R> {
    /// # Safety
    ///
    /// `job` is the job of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        let entry = job.cast::<Entry>();
        // SAFETY: the job is the first field of an entry, which is a field of an operation. The entry is in no queue,
        // so this function has exclusive access to the receiver.
        match unsafe { (*container_of!(entry, Self, entry).as_ptr()).receiver.take() } {
            Some(receiver) if receiver.env().stop_token().stop_requested() => receiver.set_stopped(),
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }
}

impl<R: Receiver<(), Infallible>> Operation for PoolOperation<R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        let scheduler = this.scheduler;
        let asked = match scheduler.priority {
            None => this.receiver.as_ref().and_then(|receiver| receiver.env().priority()),
            given => given,
        };
        if let Some(priority) = asked {
            this.entry.set_level(priority);
        }
        let this = NonNull::from(this).as_ptr();
        // SAFETY: the entry is pinned with the operation, which stays valid until its job completes it.
        let entry = unsafe { OwnedEntry::new(NonNull::new_unchecked(&raw mut (*this).entry)) };
        scheduler.push(entry)
    }

    unsafe fn raise(this: NonNull<Self>, priority: Priority) {
        // SAFETY: the operation is valid, by the contract of `raise`. Both fields were written before the start.
        let (entry, scheduler) = unsafe {
            let this = this.as_ptr();
            (NonNull::new_unchecked(&raw mut (*this).entry), (*this).scheduler)
        };
        // SAFETY: the entry is valid, and the operation pushes it to this pool.
        if let Err(entry) = unsafe { scheduler.raise(entry, priority) } {
            forward(entry).run();
        }
    }
}

crate::opaque!([R] PoolOperation<R>);
