use core::marker::PhantomData;

use super::ReadyOperation;
use crate::{Completes, Completion, Receiver, Sender};

/// Makes a sender that completes with an error.
///
/// The value type is inferred from the use, as with `Err`.
///
/// ```
/// use bowline::prelude::*;
///
/// let failed = just_error::<i32, _>("no such key");
/// assert_eq!(sync_wait(failed), Outcome::Error("no such key"));
/// ```
///
/// # Completions
///
/// The error, inside `start`.
///
/// # Cancellation
///
/// Ignored.
#[inline]
pub fn just_error<T, E>(error: E) -> JustError<T, E> {
    JustError {
        error,
        _value: PhantomData,
    }
}

/// Sender created by [`just_error`].
#[derive(Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct JustError<T, E> {
    error: E,
    _value: PhantomData<fn() -> T>,
}

// Not derived: `T` need not be `Clone`.
impl<T, E: Clone> Clone for JustError<T, E> {
    fn clone(&self) -> Self {
        just_error(self.error.clone())
    }
}

impl<T, E: Copy> Copy for JustError<T, E> {}

// SAFETY: a `ReadyOperation` keeps the promises of `Sender`, and completes inside `start`.
unsafe impl<T, E> Sender for JustError<T, E> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<T, E>> = ReadyOperation<T, E, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Error(self.error), receiver)
    }
}
