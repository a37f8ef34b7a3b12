use core::convert::Infallible;

use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Turns an error into a value with a function. Made by [`Sender::upon_error`].
///
/// ```
/// use bowline::prelude::*;
///
/// let parsed = just("12x").infallible_into().let_value(|text| match text.parse::<i32>() {
///     Ok(number) => just(number).infallible_into().boxed(),
///     Err(error) => just_error(error).boxed(),
/// });
/// assert_eq!(sync_wait(parsed.upon_error(|_| -1)).unwrap(), -1);
/// ```
///
/// # Completions
///
/// The value, or the function's result in place of an error. Stops and panics pass. It cannot complete with an error.
///
/// # Panics
///
/// A panic of the function is the completion.
///
/// # Cancellation
///
/// That of the sender before it.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct UponError<S, F> {
    sender: S,
    function: F,
}

impl<S, F> UponError<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, function: F) -> Self {
        UponError { sender, function }
    }
}

// SAFETY: the operation is the child's, and a `MapReceiver` completes inside the child's completion.
unsafe impl<S, F> Sender for UponError<S, F>
where
    S: Sender,
    F: FnOnce(S::Error) -> S::Value + Send,
{
    type Value = S::Value;
    type Error = Infallible;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, Infallible>> = S::Operation<MapReceiver<OnError<F>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(OnError(self.function), receiver))
    }

    dismantle!(sender);
}

/// Calls the function with an error, and lets the rest pass.
#[derive(Debug)]
pub struct OnError<F>(F);

impl<T, E, F: FnOnce(E) -> T + Send> Map<T, E> for OnError<F> {
    type Value = T;
    type Error = Infallible;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<T, Infallible> {
        match completion {
            Completion::Value(value) => Completion::Value(value),
            Completion::Error(error) => call(|| (self.0)(error), Completion::Value),
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
