use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;

use super::{Completes, Operation, Receiver, Sender, Transfer};

/// A handle to a place where work runs.
///
/// Two schedulers are equal when they stand for the same place. A comparison only looks: it must not keep anything of what
/// it compares, since erased schedulers may be compared that borrow for different lifetimes.
/// [`schedule`](Scheduler::schedule) gives a sender that completes there.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scheduler",
    label = "a scheduler is needed here",
    note = "`InlineScheduler`, and what `RunLoop::scheduler()` returns, are schedulers"
)]
pub trait Scheduler: Clone + PartialEq + Send + Sync {
    /// The sender that [`schedule`](Scheduler::schedule) gives. It is `Send`, since what must come back to a scheduler
    /// connects it on one thread and starts it on another.
    type Schedule: Sender<Value = ()> + Send;

    /// Whether scheduling cannot fail: the sender never completes with an error, and completes stopped only when the
    /// receiver's token was stopped. Whatever must come back to a scheduler demands it, at compile time.
    ///
    /// A scheduler that can fail says `false`, and is made infallible explicitly, with
    /// [`or_inline`](Scheduler::or_inline) or [`or_abort`](Scheduler::or_abort).
    const INFALLIBLE: bool;

    /// `false` only for [`NoScheduler`].
    #[doc(hidden)]
    const PRESENT: bool = true;

    /// Whether it has a queue of its own for frames of tasks, that is, an [`enqueue`](Scheduler::enqueue) of its own.
    /// Where it is not known before run time, `false`.
    #[doc(hidden)]
    const QUEUES: bool = false;

    /// A sender that completes on this scheduler.
    fn schedule(&self) -> Self::Schedule;

    /// This scheduler, for who makes way: what it schedules goes behind all that is queued. The same where there is one
    /// queue, whose order is that anyway.
    #[doc(hidden)]
    #[inline]
    fn patient(&self) -> Self {
        self.clone()
    }

    /// The address of the pool behind this scheduler, where there is one: what a `bulk` compares before it shares its
    /// work out. 0 where there is none.
    #[doc(hidden)]
    fn place(&self) -> usize {
        0
    }

    /// Whether the calling thread runs this scheduler's work right now, where that has no [`place`](Scheduler::place): what
    /// is to go on there may go on at once.
    #[doc(hidden)]
    #[inline]
    fn is_here(&self) -> bool {
        false
    }

    /// Whether it is the inline one, behind whatever was put around it: then any place is as good as another.
    #[doc(hidden)]
    #[inline]
    fn is_inline(&self) -> bool {
        false
    }

    /// Has the job of an entry run on this scheduler: what a frame of a task does, which is a queue's node itself.
    ///
    /// A scheduler that has no queue for it is reached by the hop that the frame's operation made when it started.
    ///
    /// # Safety
    ///
    /// The entry is that of a frame of a task on this scheduler. It is in no queue, and stays where it is until its job
    /// runs, as the scheduler itself need not. It may have run when this returns.
    #[cfg(feature = "std")]
    #[doc(hidden)]
    unsafe fn enqueue(&self, entry: core::ptr::NonNull<crate::scheduler::thread_pool::Entry>) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { crate::task::hop(entry) }
    }

    /// Makes an entry that waits here at least that urgent. A scheduler that knows no priorities has nothing to do.
    ///
    /// # Safety
    ///
    /// The entry was given to [`enqueue`](Scheduler::enqueue) of this scheduler, or is about to be and says so. Its job does
    /// not run, and it stays where it is, before this returns.
    #[cfg(feature = "std")]
    #[doc(hidden)]
    unsafe fn raise_entry(
        &self,
        entry: core::ptr::NonNull<crate::scheduler::thread_pool::Entry>,
        priority: super::Priority,
    ) -> Transfer {
        let _ = (entry, priority);
        Transfer::none()
    }

    /// Runs a piece of this scheduler's work, if there is one and the calling thread is the one that runs it: what a task
    /// does while it waits for something it dropped. Workers of a pool see to themselves.
    #[doc(hidden)]
    fn help(&self) -> bool {
        false
    }

    /// This scheduler, made infallible: work that cannot be scheduled goes on where it is.
    fn or_inline(self) -> crate::scheduler::OrInline<Self> {
        crate::scheduler::OrInline::inline(self)
    }

    /// This scheduler, made infallible: the process ends when work cannot be scheduled.
    #[cfg(feature = "std")]
    fn or_abort(self) -> crate::scheduler::OrAbort<Self> {
        crate::scheduler::OrAbort::abort(self)
    }
}

/// What stands in an environment that has no scheduler.
///
/// It cannot be used: an algorithm that needs a scheduler refuses it at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoScheduler;

impl Scheduler for NoScheduler {
    type Schedule = NoSchedule;
    const INFALLIBLE: bool = false;
    const PRESENT: bool = false;

    fn schedule(&self) -> NoSchedule {
        NoSchedule(())
    }
}

/// The schedule sender of [`NoScheduler`]: it completes stopped.
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct NoSchedule(());

// SAFETY: its operation completes inside `start`, and touches nothing afterwards; it is `!Unpin`.
unsafe impl Sender for NoSchedule {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<(), Infallible>> = NoScheduleOperation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> NoScheduleOperation<R> {
        NoScheduleOperation {
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

#[doc(hidden)]
pub struct NoScheduleOperation<R> {
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R> fmt::Debug for NoScheduleOperation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoScheduleOperation").finish_non_exhaustive()
    }
}

impl<R: Receiver<(), Infallible>> Operation for NoScheduleOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned.
        match unsafe { self.get_unchecked_mut() }.receiver.take() {
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
    }
}
