use core::convert::Infallible;
use core::marker::PhantomPinned;
use core::pin::Pin;

use super::identity::Identity;
use super::native::Native;
use super::{Completes, Operation, Receiver, Sender, Transfer};

/// A handle to a place where work runs.
///
/// Two schedulers are equal when they stand for the same place. [`schedule`](Scheduler::schedule) gives a sender that
/// completes there.
///
/// Any of these methods may panic, lie, or answer differently each time. Work then goes wrong in the ordinary ways (it
/// completes with the panic, or somewhere else), and never in an unsafe one.
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

    /// Whether this is a scheduler at all: `false` only for [`NoScheduler`], and for a wrapper of it.
    ///
    /// Algorithms that need a scheduler refuse a missing one at compile time, by this constant. Where it is wrong, the
    /// scheduler is refused, or completes as its own sender does.
    const PRESENT: bool = true;

    /// Makes a sender that completes on this scheduler.
    fn schedule(&self) -> Self::Schedule;

    /// Returns what tells this scheduler from others of its type: see [`Identity`].
    ///
    /// Schedulers that are equal say the same here, and others say something else. It is what a
    /// [`TaskScheduler`](crate::scheduler::TaskScheduler) compares. By default the following is known:
    ///
    /// | scheduler | identity |
    /// |---|---|
    /// | one of this crate | that of its loop, pool, or timer |
    /// | a type of size zero | the type |
    /// | any other | [`UNKNOWN`](Identity::UNKNOWN), which equals nothing |
    ///
    /// A wrapper forwards to the scheduler inside. A handle says
    /// [`Identity::of_address`] of what its clones share, or [`Identity::of_number`].
    fn identity(&self) -> Identity {
        match self.native() {
            Some(native) => native.identity(),
            None if size_of::<Self>() == 0 => Identity::TYPE,
            None => Identity::UNKNOWN,
        }
    }

    /// Returns the queue behind this scheduler, where it is one of this crate, so that tasks can wait in it themselves.
    ///
    /// A wrapper may forward the answer of the scheduler inside; only this crate can make one. Where it is `None`, tasks
    /// get to the scheduler by its schedule sender.
    #[doc(hidden)]
    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        None
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

/// The operation of [`NoSchedule`].
pub struct NoScheduleOperation<R> {
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

crate::opaque!([R] NoScheduleOperation<R>);

impl<R: Receiver<(), Infallible>> Operation for NoScheduleOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: the receiver is not pinned.
        match unsafe { self.get_unchecked_mut() }.receiver.take() {
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
    }
}
