//! The scheduler of a pool, its sender and its operation.

use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::entry::{Entry, EntryPlace};
use super::injector::InjectorClosed;
use super::pool::{forward, forwarded_to};
use super::shared::PoolShared;
use crate::sender::native::{Native, Queue};
use crate::sender::stage::container_of;
use crate::stop::StopToken;
use crate::sync::spin;
use crate::{Env, Job, Operation, Priority, Receiver, Scheduler, Sender, Transfer};

/// A handle to a [`ThreadPool`](super::ThreadPool): two words, free to copy. Equal to another when both are of one pool,
/// at whatever priority.
///
/// It may outlive the pool. Work that is scheduled on a pool that has ended runs on the
/// [global](super::ThreadPool::global) one: scheduling never fails, and nothing is lost.
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

    /// The same pool, at a priority of its own.
    ///
    /// Without one, the receiver's environment is asked for a [`Priority`], as `write_env(With(priority))` puts there;
    /// where there is none it is [`Priority::Default`].
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

    /// The priority that was set.
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Queues an entry with the pool, or with the global one if that has ended.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs. It may have run when this returns.
    #[inline]
    pub(super) unsafe fn push(self, entry: NonNull<Entry>) -> Transfer {
        // SAFETY: the caller's promise.
        match unsafe { self.shared.push(entry, self.generation) } {
            Ok(()) => Transfer::none(),
            // SAFETY: it was refused, so it is still in no queue.
            Err(_) => unsafe { forward(entry) },
        }
    }

    /// Makes an entry at least as urgent as `priority`, and moves it to where it belongs then, if it still waits.
    ///
    /// `Err` when it was taken out of the queue of a worker and the pool has ended since: it is the caller's then.
    ///
    /// # Safety
    ///
    /// The entry is alive until this returns, and was pushed by a scheduler of this pool, if at all.
    pub(super) unsafe fn raise(self, entry: NonNull<Entry>, priority: Priority) -> Result<(), InjectorClosed> {
        // SAFETY: the caller's promise.
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
            // Asked after the place: what waits in the injector of another pool was forwarded before it came there.
            let pool = if this.is_forwarded() { forwarded_to() } else { None }.unwrap_or(self);
            // SAFETY: the caller's promise, and as just said.
            if unsafe { pool.shared.move_up(entry, place, pool.generation) }? {
                return Ok(());
            }
            // Somebody has just taken it, to run it or to put it somewhere, and is about to say so.
            spin(&mut rounds);
        }
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
    /// Copies the handle, and gives the entry the handle's priority if that has one.
    ///
    /// # Safety
    ///
    /// Both are valid, and the entry is in no queue.
    #[inline]
    unsafe fn prepare(this: NonNull<Self>, entry: NonNull<Entry>) -> Self {
        // SAFETY: the caller's promise.
        let (scheduler, entry) = unsafe { (*this.as_ref(), entry.as_ref()) };
        if let Some(priority) = scheduler.priority {
            entry.change_level(priority);
        }
        scheduler
    }
}

impl Queue for PoolScheduler {
    #[inline]
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry, which is in no queue, by the contract of `enqueue`. The handle
        // is not used once the entry is queued.
        unsafe { Self::prepare(this, job.cast()).push(job.cast()) }
    }

    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        let entry = job.cast();
        // SAFETY: the job is the first field of an entry, which is in no queue, by the contract of `enqueue`. The handle
        // is not used once the entry is queued.
        unsafe {
            let scheduler = Self::prepare(this, entry);
            match scheduler.shared.push_last(entry, scheduler.generation) {
                Ok(()) => Transfer::none(),
                Err(_) => forward(entry),
            }
        }
    }

    unsafe fn raise(this: NonNull<Self>, job: NonNull<Job>, priority: Priority) -> Transfer {
        let entry = job.cast();
        // SAFETY: the job is the first field of an entry of this pool, and valid until this returns, by the contract of
        // `raise`. A refused entry was taken out of its queue.
        unsafe {
            match PoolScheduler::raise(*this.as_ref(), entry, priority) {
                Ok(()) => Transfer::none(),
                Err(_) => forward(entry),
            }
        }
    }

    fn pool(&self) -> usize {
        ptr::from_ref(self.shared).addr()
    }

    fn is_busy(&self) -> bool {
        self.shared.idle.0.is_busy()
    }

    fn identity(&self) -> [usize; 2] {
        [ptr::from_ref(self.shared).addr(), self.generation as usize]
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
/// The value, on one of the pool's threads. Stopped, there too, when the stop was requested by then.
///
/// # Panics
///
/// None: it runs no user code.
///
/// # Cancellation
///
/// The stop token is asked when its turn comes; waiting is not cut short.
///
/// # Allocation
///
/// None: the operation is the queue's node. Only when the pool has ended, and nobody has asked for the global one yet, is
/// that made.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct PoolSchedule {
    scheduler: PoolScheduler,
}

// SAFETY: the operation touches nothing after the push, nor after its completion; it is `!Unpin`.
unsafe impl Sender for PoolSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = PoolOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> PoolOperation<R> {
        PoolOperation {
            entry: Entry::new(PoolOperation::<R>::run),
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
    /// The job is that of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        let entry = job.cast::<Entry>();
        // SAFETY: the job is that of an entry, which is a field of an operation. It is out of the queue, so this has
        // exclusive access to the receiver.
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
        // SAFETY: the entry is pinned with the operation, which stays until the job has completed it.
        unsafe { scheduler.push(NonNull::new_unchecked(&raw mut (*this).entry)) }
    }

    unsafe fn raise(this: NonNull<Self>, priority: Priority) {
        // SAFETY: the operation is alive, by the caller's promise. What is read was written before the start.
        let (entry, scheduler) = unsafe {
            let this = this.as_ptr();
            (NonNull::new_unchecked(&raw mut (*this).entry), (*this).scheduler)
        };
        // SAFETY: as above; the operation pushes its entry to this pool.
        if unsafe { scheduler.raise(entry, priority) }.is_err() {
            // SAFETY: it was taken out of its queue, and is in none now.
            unsafe { forward(entry) }.run();
        }
    }
}

impl<R> fmt::Debug for PoolOperation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolOperation").finish_non_exhaustive()
    }
}
