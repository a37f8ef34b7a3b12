use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use crate::sender::native::{Native, Queue};
use crate::{Completes, Job, Operation, Receiver, Scheduler, Sender, Transfer};

/// The scheduler of the current thread: work completes inside `start`.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::InlineScheduler;
///
/// assert_eq!(sync_wait(just(1).continues_on(InlineScheduler).then(|x| x + 1)).unwrap(), 2);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InlineScheduler;

impl Scheduler for InlineScheduler {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    #[inline]
    fn schedule(&self) -> InlineSchedule {
        InlineSchedule(())
    }

    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        Some(Native::of(self))
    }
}

impl Queue for InlineScheduler {
    const INLINE: bool = true;

    #[inline]
    unsafe fn enqueue(_: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is in no queue and stays valid until it runs, by the contract of this function.
        unsafe { Transfer::to(job) }
    }

    #[inline]
    unsafe fn enqueue_last(_: NonNull<Self>, job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is in no queue and stays valid until it runs, by the contract of this function.
        unsafe { Transfer::to(job) }
    }

    fn identity(&self) -> [usize; 2] {
        [0; 2]
    }
}

/// The schedule sender of [`InlineScheduler`].
///
/// # Completions
///
/// The value, inside `start`.
///
/// # Panics
///
/// None: it runs no user code.
///
/// # Cancellation
///
/// Ignored: the operation does not wait.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct InlineSchedule(());

// SAFETY: the operation completes inside `start`, and does not access itself afterwards. It is `!Unpin`.
unsafe impl Sender for InlineSchedule {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<(), Infallible>> = InlineOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> InlineOperation<R> {
        InlineOperation {
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`InlineSchedule`].
pub struct InlineOperation<R> {
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> Operation for InlineOperation<R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned.
        match unsafe { self.get_unchecked_mut() }.receiver.take() {
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }
}

impl<R> fmt::Debug for InlineOperation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineOperation")
            .field("started", &self.receiver.is_none())
            .finish()
    }
}
