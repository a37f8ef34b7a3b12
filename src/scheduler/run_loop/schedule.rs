use core::cell::Cell;
use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::{INNERMOST, RunLoop};
use crate::sender::native::{Native, Queue};
use crate::sender::stage::container_of;
use crate::stop::StopToken;
use crate::{Env, Job, Operation, Receiver, Scheduler, Sender, Transfer};

/// A handle to a [`RunLoop`]. Two handles are equal if they belong to one loop.
#[derive(Clone, Copy)]
pub struct RunLoopScheduler<'a> {
    pub(super) run_loop: &'a RunLoop,
}

impl<'a> RunLoopScheduler<'a> {
    /// Calls [`RunLoop::finish`].
    pub fn finish(&self) {
        self.run_loop.finish();
    }
}

impl<'a> Scheduler for RunLoopScheduler<'a> {
    type Schedule = RunLoopSchedule<'a>;
    const INFALLIBLE: bool = true;

    #[inline]
    fn schedule(&self) -> RunLoopSchedule<'a> {
        RunLoopSchedule {
            run_loop: self.run_loop,
        }
    }

    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        Some(Native::of(self))
    }
}

impl Queue for RunLoopScheduler<'_> {
    #[inline]
    unsafe fn enqueue(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the handle is valid until the job is queued, and is read before.
        let run_loop = unsafe { this.as_ref() }.run_loop;
        // SAFETY: the job is in no queue and stays valid until it runs, by the contract of `enqueue`.
        unsafe { run_loop.push(job) };
        Transfer::none()
    }

    /// Queues the job: the loop is FIFO, so every push is the last. Only the job is accessed.
    #[inline]
    unsafe fn enqueue_last(this: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the contract is the one of `enqueue`, without the frame.
        unsafe { Self::enqueue(this, job) }
    }

    /// Returns whether this is the innermost loop of the calling thread. An outer loop waits for its job to end, and
    /// runs no other job before.
    #[inline]
    fn is_here(&self) -> bool {
        ptr::eq(INNERMOST.with(Cell::get), self.run_loop)
    }

    fn identity(&self) -> [usize; 2] {
        [ptr::from_ref(self.run_loop).addr(), 0]
    }
}

impl PartialEq for RunLoopScheduler<'_> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.run_loop, other.run_loop)
    }
}

impl Eq for RunLoopScheduler<'_> {}

impl fmt::Debug for RunLoopScheduler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunLoopScheduler")
            .field(&ptr::from_ref(self.run_loop))
            .finish()
    }
}

/// The schedule sender of a [`RunLoop`].
///
/// # Completions
///
/// The value, on the thread that drives the loop, in the order of the starts. Stopped, also there, if the stop was
/// requested by then.
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
/// None: the operation is the queue's node.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct RunLoopSchedule<'a> {
    run_loop: &'a RunLoop,
}

// SAFETY: the operation does not access itself after the push, nor after its completion. It is `!Unpin`.
unsafe impl<'a> Sender for RunLoopSchedule<'a> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = RunLoopOperation<'a, R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> RunLoopOperation<'a, R> {
        RunLoopOperation {
            job: Job::new(RunLoopOperation::<'a, R>::run),
            run_loop: self.run_loop,
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`RunLoopSchedule`].
pub struct RunLoopOperation<'a, R> {
    job: Job,
    run_loop: &'a RunLoop,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> RunLoopOperation<'_, R> {
    /// # Safety
    ///
    /// `job` is the field of a started operation, and runs once.
    unsafe fn run(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of an operation. It is out of the queue, so this function has exclusive access.
        match unsafe { container_of!(job, Self, job).as_mut() }.receiver.take() {
            Some(receiver) if receiver.env().stop_token().stop_requested() => receiver.set_stopped(),
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }
}

impl<R: Receiver<(), Infallible>> Operation for RunLoopOperation<'_, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() } as *mut Self;
        // SAFETY: the job is pinned with the operation, which stays valid until its job completes it.
        unsafe { (*this).run_loop.push(NonNull::new_unchecked(&raw mut (*this).job)) };
        Transfer::none()
    }
}

crate::opaque!([R] RunLoopOperation<'_, R>);
