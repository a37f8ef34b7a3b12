use core::fmt;

use super::{Panic, Receiver, Transfer};

/// The result of a sender that was waited for: a value, an error, or a stop.
///
/// It is a [`Result`] with a third case, and has the methods of one. A panic is no case of it: a panic unwinds out of the
/// wait.
///
/// ```
/// use bowline::prelude::*;
///
/// let parsed = sync_wait(just("7").infallible_into().try_then(str::parse::<i32>));
/// assert_eq!(parsed.map(|n| n + 1).unwrap_or(0), 8);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "an `Outcome` may be an error or a stop, which should be handled"]
pub enum Outcome<T, E> {
    /// The sender completed with a value.
    Value(T),
    /// The sender completed with an error.
    Error(E),
    /// The sender was stopped before it had a value or an error.
    Stopped,
}

impl<T, E> Outcome<T, E> {
    /// Returns the value.
    ///
    /// # Panics
    ///
    /// Panics when there is no value, with the error where there is one.
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

    /// Returns the value.
    ///
    /// # Panics
    ///
    /// Panics when there is no value, with `message`, and with the error where there is one.
    #[track_caller]
    pub fn expect(self, message: &str) -> T
    where
        E: fmt::Debug,
    {
        match self {
            Outcome::Value(value) => value,
            Outcome::Error(error) => panic!("{message}: {error:?}"),
            Outcome::Stopped => panic!("{message}: stopped"),
        }
    }

    /// Returns the error.
    ///
    /// # Panics
    ///
    /// Panics when there is no error, with the value where there is one.
    #[track_caller]
    pub fn unwrap_err(self) -> E
    where
        T: fmt::Debug,
    {
        match self {
            Outcome::Value(value) => panic!("called `Outcome::unwrap_err()` on a `Value`: {value:?}"),
            Outcome::Error(error) => error,
            Outcome::Stopped => panic!("called `Outcome::unwrap_err()` on a `Stopped`"),
        }
    }

    /// Returns the value, or `default` for an error or a stop.
    pub fn unwrap_or(self, default: T) -> T {
        self.ok().unwrap_or(default)
    }

    /// Returns the value, or computes one from the error, which is `None` for a stop.
    pub fn unwrap_or_else(self, f: impl FnOnce(Option<E>) -> T) -> T {
        match self {
            Outcome::Value(value) => value,
            Outcome::Error(error) => f(Some(error)),
            Outcome::Stopped => f(None),
        }
    }

    /// Returns the value, if there is one.
    pub fn ok(self) -> Option<T> {
        match self {
            Outcome::Value(value) => Some(value),
            Outcome::Error(_) | Outcome::Stopped => None,
        }
    }

    /// Returns the error, if there is one.
    pub fn err(self) -> Option<E> {
        match self {
            Outcome::Error(error) => Some(error),
            Outcome::Value(_) | Outcome::Stopped => None,
        }
    }

    /// Converts value and error to a `Result`, and a stop to `None`.
    pub fn into_result(self) -> Option<Result<T, E>> {
        match self {
            Outcome::Value(value) => Some(Ok(value)),
            Outcome::Error(error) => Some(Err(error)),
            Outcome::Stopped => None,
        }
    }

    /// Converts to a `Result`, with the error that `stopped` makes for a stop.
    ///
    /// # Errors
    ///
    /// Returns the error, or `stopped()`.
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

    /// Applies `f` to the error.
    pub fn map_err<F>(self, f: impl FnOnce(E) -> F) -> Outcome<T, F> {
        match self {
            Outcome::Value(value) => Outcome::Value(value),
            Outcome::Error(error) => Outcome::Error(f(error)),
            Outcome::Stopped => Outcome::Stopped,
        }
    }

    /// Borrows the value or the error.
    pub const fn as_ref(&self) -> Outcome<&T, &E> {
        match self {
            Outcome::Value(value) => Outcome::Value(value),
            Outcome::Error(error) => Outcome::Error(error),
            Outcome::Stopped => Outcome::Stopped,
        }
    }

    /// Returns whether this is a value.
    pub const fn is_value(&self) -> bool {
        matches!(self, Outcome::Value(_))
    }

    /// Returns whether this is an error.
    pub const fn is_error(&self) -> bool {
        matches!(self, Outcome::Error(_))
    }

    /// Returns whether this is a stop.
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
/// An algorithm that delays a completion (`continues_on`, `affine`, `finally`) keeps one of these.
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
    /// Completes `receiver` with this completion.
    // Always: where the variant is known, as in every adaptor that maps one, a call would hide it from the optimiser.
    #[inline(always)]
    pub fn deliver<R: Receiver<T, E>>(self, receiver: R) -> Transfer {
        receiver.set_completion(self)
    }

    /// Completes `receiver`, if there is one.
    #[inline(always)]
    pub(crate) fn deliver_to<R: Receiver<T, E>>(self, receiver: Option<R>) -> Transfer {
        match receiver {
            Some(receiver) => self.deliver(receiver),
            None => Transfer::none(),
        }
    }

    /// Returns `other`, or this completion where it is a panic.
    pub(crate) fn unless_panicked(self, other: Self) -> Self {
        match self {
            Completion::Panicked(_) => self,
            _ => other,
        }
    }

    /// Converts to an outcome. A panic unwinds from here.
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
