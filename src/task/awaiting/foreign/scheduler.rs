//! The scheduler of senders that are awaited outside of a task.

use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::core::{ForeignCore, ForeignRef, Queued};
use crate::scheduler::thread_pool::Entry;
use crate::sender::native::{self, Native};
use crate::sender::stage::container_of;
use crate::stop::StopToken;
use crate::{Env, Job, Operation, Receiver, Scheduler, Sender, Transfer};

/// The scheduler of senders that are awaited outside of a task: its work runs when the executor polls.
#[derive(Clone, PartialEq)]
pub(super) struct ForeignScheduler(pub(super) ForeignRef);

impl fmt::Debug for ForeignScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ForeignScheduler").field(&self.0.as_ptr()).finish()
    }
}

impl Scheduler for ForeignScheduler {
    type Schedule = ForeignSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> ForeignSchedule {
        ForeignSchedule(self.0.clone())
    }

    fn native(&self) -> Option<Native<'_>> {
        Some(Native::of(self))
    }
}

impl native::Queue for ForeignScheduler {
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of a frame's entry, and in no queue, by the contract of `enqueue`. The handle is
        // valid until it runs: it owns a reference, or is inside the block.
        unsafe { ForeignCore::push(this.as_ref().0.as_ptr(), job.cast(), Queued::Frame) }
    }

    /// Queues the job for the next poll, not the current one.
    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: as for `enqueue`; this kind does not require a frame.
        unsafe { ForeignCore::push(this.as_ref().0.as_ptr(), job.cast(), Queued::Patient) }
    }

    fn identity(&self) -> [usize; 2] {
        [self.0.as_ptr().addr().get(), 0]
    }
}

/// The schedule sender of a [`ForeignScheduler`].
pub(super) struct ForeignSchedule(ForeignRef);

// SAFETY: the operation touches nothing after the push, nor after its completion; it is `!Unpin`.
unsafe impl Sender for ForeignSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = ForeignOperation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> ForeignOperation<R> {
        ForeignOperation {
            entry: Entry::new(ForeignOperation::<R>::run),
            block: Some(self.0),
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`ForeignSchedule`].
pub(super) struct ForeignOperation<R> {
    entry: Entry,
    /// Taken by `start`.
    block: Option<ForeignRef>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> ForeignOperation<R> {
    /// # Safety
    ///
    /// `job` is that of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is the first field of an entry, which is a field of an operation.
        let this = unsafe { container_of!(job, Self, entry) };
        // SAFETY: the job is out of the queue, so this call has exclusive access to the operation.
        match unsafe { (*this.as_ptr()).receiver.take() } {
            Some(receiver) if receiver.env().stop_token().stop_requested() => receiver.set_stopped(),
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }
}

impl<R: Receiver<(), Infallible>> Operation for ForeignOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the handle is moved, and it is not pinned.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: the operation is alive until its job runs.
        let Some(block) = (unsafe { (*this).block.take() }) else {
            return Transfer::none();
        };
        // SAFETY: the entry is pinned with the operation, which stays until its job has completed it. `block` is a reference.
        unsafe {
            ForeignCore::push(
                block.as_ptr(),
                NonNull::new_unchecked(&raw mut (*this).entry),
                Queued::Job,
            )
        }
    }
}
