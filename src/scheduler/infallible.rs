//! Adaptors that make a fallible scheduler infallible.

use core::convert::Infallible;

use crate::sender::native::Native;
use crate::stop::StopToken;
use crate::{Completes, Env, Identity, Panic, Receiver, Scheduler, Sender, Transfer};

/// The action after a failure of the inner scheduler.
pub trait OnFailure: Clone + Send + Sync {
    /// Completes the receiver, or does not return.
    fn failed<R: Receiver<(), Infallible>>(receiver: R) -> Transfer;
}

/// Continues on the thread of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackInline;

impl OnFailure for FallbackInline {
    fn failed<R: Receiver<(), Infallible>>(receiver: R) -> Transfer {
        receiver.set_value(())
    }
}

/// Aborts the process.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallbackAbort;

#[cfg(feature = "std")]
impl OnFailure for FallbackAbort {
    fn failed<R: Receiver<(), Infallible>>(_: R) -> Transfer {
        std::eprintln!("bowline: a scheduler wrapped in `or_abort` could not schedule; aborting");
        std::process::abort();
    }
}

/// An infallible scheduler around a fallible one. Created by [`Scheduler::or_inline`] and [`Scheduler::or_abort`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrElse<C, A> {
    scheduler: C,
    action: A,
}

/// A scheduler that continues on the current thread if the inner one fails.
pub type OrInline<C> = OrElse<C, FallbackInline>;

/// A scheduler that aborts the process if the inner one fails.
#[cfg(feature = "std")]
pub type OrAbort<C> = OrElse<C, FallbackAbort>;

impl<C> OrInline<C> {
    pub(crate) fn inline(scheduler: C) -> Self {
        OrElse {
            scheduler,
            action: FallbackInline,
        }
    }
}

#[cfg(feature = "std")]
impl<C> OrAbort<C> {
    pub(crate) fn abort(scheduler: C) -> Self {
        OrElse {
            scheduler,
            action: FallbackAbort,
        }
    }
}

impl<C: Scheduler, A: OnFailure + PartialEq> Scheduler for OrElse<C, A> {
    type Schedule = OrElseSchedule<C::Schedule, A>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        OrElseSchedule {
            schedule: self.scheduler.schedule(),
            action: self.action.clone(),
        }
    }

    fn identity(&self) -> Identity {
        self.scheduler.identity()
    }

    /// Returns the queue of the inner scheduler: queueing cannot fail.
    fn native(&self) -> Option<Native<'_>> {
        self.scheduler.native()
    }
}

/// The schedule sender of [`OrElse`].
///
/// # Completions
///
/// The value, on the inner scheduler, or as the adaptor says after its failure. Stopped only if the receiver's stop
/// token was stopped.
///
/// # Panics
///
/// Panics of the inner scheduler are passed on.
///
/// # Cancellation
///
/// Defined by the inner scheduler.
///
/// # Allocation
///
/// Defined by the inner scheduler.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct OrElseSchedule<S, A> {
    schedule: S,
    action: A,
}

// SAFETY: the operation is the inner sender's, and the receiver completes inside its completion.
unsafe impl<S: Sender<Value = ()>, A: OnFailure> Sender for OrElseSchedule<S, A> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<(), Infallible>> = S::Operation<OrElseReceiver<A, R>>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.schedule.connect(OrElseReceiver {
            receiver,
            _action: self.action,
        })
    }
}

/// The receiver of [`OrElseSchedule`].
#[derive(Debug)]
pub struct OrElseReceiver<A, R> {
    receiver: R,
    _action: A,
}

impl<E, A: OnFailure, R: Receiver<(), Infallible>> Receiver<(), E> for OrElseReceiver<A, R> {
    type Env = R::Env;

    fn env(&self) -> R::Env {
        self.receiver.env()
    }

    fn set_value(self, (): ()) -> Transfer {
        self.receiver.set_value(())
    }

    fn set_error(self, error: E) -> Transfer {
        // The error may borrow, so it is dropped before the completion.
        drop(error);
        A::failed(self.receiver)
    }

    fn set_stopped(self) -> Transfer {
        if self.receiver.env().stop_token().stop_requested() {
            self.receiver.set_stopped()
        } else {
            A::failed(self.receiver)
        }
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.receiver.set_panicked(payload)
    }
}
