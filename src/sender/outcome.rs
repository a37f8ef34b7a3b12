use core::fmt;

use super::{Panic, Receiver, Transfer};

/// What became of a sender that was waited for.
///
/// A panic is not among them: it unwinds out of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "an `Outcome` may be an error or a stop, which should be handled"]
pub enum Outcome<T, E> {
    /// It completed with a value.
    Value(T),
    /// It completed with an error.
    Error(E),
    /// It was stopped before it had either.
    Stopped,
}

impl<T, E> Outcome<T, E> {
    /// The value.
    ///
    /// # Panics
    ///
    /// When there is none, with the error where there is one.
    #[track_caller]
    pub fn unwrap(self) -> T
    where
        E: fmt::Debug,
    {
        match self {
            Outcome::Value(value) => value,
            Outcome::Error(error) => panic!("called `Outcome::unwrap()` on an `Error`: {error:?}"),
            Outcome::Stopped => panic!("called `Outcome::unwrap()` on a `Stopped`"),
        }
    }

    /// The error.
    ///
    /// # Panics
    ///
    /// When there is none, with the value where there is one.
    #[track_caller]
    pub fn unwrap_error(self) -> E
    where
        T: fmt::Debug,
    {
        match self {
            Outcome::Value(value) => panic!("called `Outcome::unwrap_error()` on a `Value`: {value:?}"),
            Outcome::Error(error) => error,
            Outcome::Stopped => panic!("called `Outcome::unwrap_error()` on a `Stopped`"),
        }
    }

    /// The value, where there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Outcome::Value(value) => Some(value),
            Outcome::Error(_) | Outcome::Stopped => None,
        }
    }

    /// The error, where there is one.
    pub fn error(self) -> Option<E> {
        match self {
            Outcome::Error(error) => Some(error),
            Outcome::Value(_) | Outcome::Stopped => None,
        }
    }

    /// Value and error as a `Result`, a stop as `None`.
    pub fn into_result(self) -> Option<Result<T, E>> {
        match self {
            Outcome::Value(value) => Some(Ok(value)),
            Outcome::Error(error) => Some(Err(error)),
            Outcome::Stopped => None,
        }
    }

    /// Value and error as a `Result`, a stop as the error that `stopped` makes.
    ///
    /// # Errors
    ///
    /// The error, or `stopped()`.
    pub fn ok_or_stopped(self, stopped: impl FnOnce() -> E) -> Result<T, E> {
        self.into_result().unwrap_or_else(|| Err(stopped()))
    }

    /// Applies `f` to the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U, E> {
        match self {
            Outcome::Value(value) => Outcome::Value(f(value)),
            Outcome::Error(error) => Outcome::Error(error),
            Outcome::Stopped => Outcome::Stopped,
        }
    }

    /// Whether this is a value.
    pub const fn is_value(&self) -> bool {
        matches!(self, Outcome::Value(_))
    }

    /// Whether this is an error.
    pub const fn is_error(&self) -> bool {
        matches!(self, Outcome::Error(_))
    }

    /// Whether this is a stop.
    pub const fn is_stopped(&self) -> bool {
        matches!(self, Outcome::Stopped)
    }
}

impl<T, E> From<Result<T, E>> for Outcome<T, E> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Outcome::Value(value),
            Err(error) => Outcome::Error(error),
        }
    }
}

/// One of the four completions, as a value that can be kept and delivered later.
///
/// An algorithm that has to hold a completion back (`continues_on`, `affine`, `finally`) keeps one of these.
#[derive(Debug)]
pub enum Completion<T, E> {
    /// [`Receiver::set_value`].
    Value(T),
    /// [`Receiver::set_error`].
    Error(E),
    /// [`Receiver::set_stopped`].
    Stopped,
    /// [`Receiver::set_panicked`].
    Panicked(Panic),
}

impl<T, E> Completion<T, E> {
    /// Completes `receiver` with it.
    // Always: where the variant is known, as in every adaptor that maps one, a call would hide it from the optimiser.
    #[inline(always)]
    pub fn deliver<R: Receiver<T, E>>(self, receiver: R) -> Transfer {
        match self {
            Completion::Value(value) => receiver.set_value(value),
            Completion::Error(error) => receiver.set_error(error),
            Completion::Stopped => receiver.set_stopped(),
            Completion::Panicked(payload) => receiver.set_panicked(payload),
        }
    }

    /// Completes `receiver` with it, unless that was taken before.
    #[inline(always)]
    pub(crate) fn deliver_to<R: Receiver<T, E>>(self, receiver: Option<R>) -> Transfer {
        match receiver {
            Some(receiver) => self.deliver(receiver),
            None => Transfer::none(),
        }
    }

    /// Returns `other` in place of this one, unless this is a panic, which came first.
    pub(crate) fn unless_panicked(self, other: Self) -> Self {
        match self {
            Completion::Panicked(_) => self,
            _ => other,
        }
    }

    /// What a caller gets: an outcome, or the panic, which unwinds from here.
    #[inline]
    pub fn into_outcome(self) -> Outcome<T, E> {
        match self {
            Completion::Value(value) => Outcome::Value(value),
            Completion::Error(error) => Outcome::Error(error),
            Completion::Stopped => Outcome::Stopped,
            Completion::Panicked(payload) => payload.resume(),
        }
    }
}
