use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::map_err`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct MapErr<S, F> {
    sender: S,
    function: F,
}

impl<S, F> MapErr<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, function: F) -> Self {
        MapErr { sender, function }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, E> Sender for MapErr<S, F>
where
    S: Sender,
    F: FnOnce(S::Error) -> E + Send,
{
    type Value = S::Value;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, E>> = S::Operation<MapReceiver<MapError<F>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, E>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(MapError(self.function), receiver))
    }

    dismantle!(sender);
}

/// Calls the function with an error, and passes other completions on.
#[derive(Debug)]
pub struct MapError<F>(F);

impl<T, E, E2, F: FnOnce(E) -> E2 + Send> Map<T, E> for MapError<F> {
    type Value = T;
    type Error = E2;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<T, E2> {
        match completion {
            Completion::Value(value) => Completion::Value(value),
            Completion::Error(error) => call(|| (self.0)(error), Completion::Error),
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
