use core::convert::Infallible;
use core::marker::PhantomPinned;
use core::pin::Pin;

use super::identity::Identity;
use super::native::Native;
use super::{Completes, Operation, Receiver, Sender, Transfer};

/// A handle to a place where work runs.
///
/// Two schedulers are equal when they stand for the same place. [`schedule`](Scheduler::schedule) returns a sender that
/// completes there.
///
/// Any of these methods may panic, or return something wrong or different each time. Work then completes with the
/// panic, or on another thread. Memory safety does not depend on it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a scheduler",
    label = "a scheduler is needed here",
    note = "`InlineScheduler`, and what `RunLoop::scheduler()` returns, are schedulers"
)]
pub trait Scheduler: Clone + PartialEq + Send + Sync {
    /// The sender that [`schedule`](Scheduler::schedule) returns. It is `Send`, since operations that return to a
    /// scheduler connect it on one thread and start it on another.
    type Schedule: Sender<Value = ()> + Send;

    /// Whether scheduling cannot fail: the sender never completes with an error, and completes stopped only when the
    /// receiver's token was stopped. Algorithms that return to a scheduler require it, at compile time.
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

    /// Returns the identity of this scheduler among those of its type: see [`Identity`].
    ///
    /// Equal schedulers return the same identity, and others a different one. A
    /// [`TaskScheduler`](crate::scheduler::TaskScheduler) compares it. The defaults are:
    ///
    /// | scheduler | identity |
    /// |---|---|
    /// | one of this crate | that of its loop, pool, or timer |
    /// | a type of size zero | the type |
    /// | any other | [`UNKNOWN`](Identity::UNKNOWN), which equals nothing |
    ///
    /// A wrapper forwards to the scheduler inside. A handle returns [`Identity::of_address`] of the object that its
    /// clones share, or [`Identity::of_number`].
    fn identity(&self) -> Identity {
        match self.native() {
            Some(native) => native.identity(),
            None if size_of::<Self>() == 0 => Identity::TYPE,
            None => Identity::UNKNOWN,
        }
    }

    /// Returns the queue of a scheduler of this crate, so that tasks can wait in it themselves.
    ///
    /// A wrapper may forward the queue of the scheduler inside. Only this crate can make one. Without one, tasks use
    /// the schedule sender.
    #[doc(hidden)]
    #[inline]
    fn native(&self) -> Option<Native<'_>> {
        None
    }

    /// Makes this scheduler infallible: work that cannot be scheduled continues where it is.
    fn or_inline(self) -> crate::scheduler::OrInline<Self> {
        crate::scheduler::OrInline::inline(self)
    }

    /// Makes this scheduler infallible: the process aborts when work cannot be scheduled.
    #[cfg(feature = "std")]
    fn or_abort(self) -> crate::scheduler::OrAbort<Self> {
        crate::scheduler::OrAbort::abort(self)
    }
}

/// The scheduler of an environment that has none.
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

// SAFETY: the operation completes inside `start`, accesses nothing of itself afterwards, and is `!Unpin`.
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
        // SAFETY: nothing pinned is moved: the receiver is not.
        match unsafe { self.get_unchecked_mut() }.receiver.take() {
            Some(receiver) => receiver.set_stopped(),
            None => Transfer::none(),
        }
    }
}
