use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::gather::{ConcludeGather, GatherChild};
use super::tuple::TupleOperation2;
use crate::scheduler::{Timer, TimerSchedule};
use crate::sender::dismantle::dismantle;
use crate::{Completion, Receiver, Sender};

/// Sender created by [`Sender::timeout`] and [`Sender::timeout_on`].
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Timeout<S> {
    sender: S,
    timer: TimerSchedule,
}

impl<S> Timeout<S> {
    #[inline]
    pub(crate) fn new(sender: S, timer: &Timer, duration: Duration) -> Self {
        Timeout {
            sender,
            timer: timer.schedule_after(duration),
        }
    }
}

// SAFETY: the operation is `!Unpin`, and accesses nothing of itself after its second child was started or the last has
// completed.
unsafe impl<S: Sender> Sender for Timeout<S>
where
    S::Value: Send,
    S::Error: Send,
{
    type Value = S::Value;
    type Error = TimeoutError<S::Error>;
    type Operation<R: Receiver<S::Value, TimeoutError<S::Error>>> =
        TupleOperation2<TimeLimit<S::Value, S::Error>, S, TimerSchedule, R>;

    fn connect<R: Receiver<S::Value, TimeoutError<S::Error>>>(self, receiver: R) -> Self::Operation<R> {
        TupleOperation2::new((self.sender, self.timer), TimeLimit(PhantomData), receiver)
    }

    dismantle!(sender);
}

/// The error of a sender with a [`timeout`](Sender::timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeoutError<E> {
    /// The duration had passed, and the sender stopped.
    Elapsed,
    /// The sender failed.
    Inner(E),
}

impl<E> TimeoutError<E> {
    /// Returns whether the duration had passed.
    pub const fn is_elapsed(&self) -> bool {
        matches!(self, TimeoutError::Elapsed)
    }

    /// Returns the sender's error, if there is one.
    pub fn into_inner(self) -> Option<E> {
        match self {
            TimeoutError::Elapsed => None,
            TimeoutError::Inner(error) => Some(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for TimeoutError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeoutError::Elapsed => f.write_str("timed out"),
            TimeoutError::Inner(error) => error.fmt(f),
        }
    }
}

/// `Inner` shows the sender's error, so its source is that error's source.
impl<E: Error> Error for TimeoutError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TimeoutError::Elapsed => None,
            TimeoutError::Inner(error) => error.source(),
        }
    }
}

/// The policy by which the first to complete stops the other. The work's completion counts; a stop after the duration
/// is an error.
#[derive(Debug)]
pub struct TimeLimit<T, E>(PhantomData<fn() -> (T, E)>);

/// A mark that the duration has passed.
#[derive(Debug)]
pub struct Elapsed;

// SAFETY: the type has no state, and value and error are `Send`.
unsafe impl<T: Send, E: Send> GatherChild<0, T, E> for TimeLimit<T, E> {
    type Kept = Completion<T, E>;

    #[inline]
    fn child_completed(&self, completion: Completion<T, E>) -> (Option<Completion<T, E>>, bool) {
        (Some(completion), true)
    }
}

// SAFETY: the type has no state, and `Elapsed` is `Send`.
unsafe impl<T, E> GatherChild<1, (), Infallible> for TimeLimit<T, E> {
    type Kept = Elapsed;

    #[inline]
    fn child_completed(&self, completion: Completion<(), Infallible>) -> (Option<Elapsed>, bool) {
        match completion {
            Completion::Value(()) => (Some(Elapsed), true),
            // The receiver was stopped, or the work has completed. A timer neither fails nor panics.
            Completion::Error(_) | Completion::Stopped | Completion::Panicked(_) => (None, false),
        }
    }
}

impl<T, E> ConcludeGather<(Option<Completion<T, E>>, Option<Elapsed>)> for TimeLimit<T, E> {
    type Value = T;
    type Error = TimeoutError<E>;

    fn conclude(
        &mut self,
        (work, elapsed): (Option<Completion<T, E>>, Option<Elapsed>),
    ) -> Completion<T, TimeoutError<E>> {
        match (work, elapsed) {
            (Some(Completion::Value(value)), _) => Completion::Value(value),
            (Some(Completion::Error(error)), _) => Completion::Error(TimeoutError::Inner(error)),
            (Some(Completion::Panicked(payload)), _) => Completion::Panicked(payload),
            (_, Some(Elapsed)) => Completion::Error(TimeoutError::Elapsed),
            // Unreachable: the work always leaves its completion.
            (Some(Completion::Stopped) | None, None) => Completion::Stopped,
        }
    }
}
