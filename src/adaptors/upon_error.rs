use core::convert::Infallible;

use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::upon_error`].
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

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
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

/// Calls the function with an error, and passes other completions on.
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
