use core::marker::PhantomData;

use super::ReadyOperation;
use crate::{Completes, Completion, Receiver, Sender};

/// Makes a sender that completes stopped.
///
/// Value and error type are inferred from the use.
///
/// ```
/// use bowline::prelude::*;
///
/// assert_eq!(sync_wait(just_stopped::<i32, String>()), Outcome::Stopped);
/// ```
///
/// # Completions
///
/// Stopped, inside `start`.
///
/// # Cancellation
///
/// Ignored.
#[inline]
pub fn just_stopped<T, E>() -> JustStopped<T, E> {
    JustStopped { _types: PhantomData }
}

/// Sender created by [`just_stopped`].
#[derive(Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct JustStopped<T, E> {
    _types: PhantomData<fn() -> (T, E)>,
}

// Not derived: neither type need be `Clone`.
impl<T, E> Clone for JustStopped<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for JustStopped<T, E> {}

// SAFETY: a `ReadyOperation` keeps the promises of `Sender`, and completes inside `start`.
unsafe impl<T, E> Sender for JustStopped<T, E> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<T, E>> = ReadyOperation<T, E, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Stopped, receiver)
    }
}
