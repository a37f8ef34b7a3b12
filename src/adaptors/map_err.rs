use super::adapted::{SenderOf, adapted};
use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::map_err`].
    pub struct MapErr<S, F> {
        sender: S,
        function: F,
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, T, E, E2> Sender for MapErr<S, F, T, E>
where
    S: SenderOf<T, E>,
    F: FnOnce(E) -> E2 + Send,
{
    type Value = T;
    type Error = E2;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<T, E2>> = S::Operation<MapReceiver<MapError<F>, R>>;

    #[inline]
    fn connect<R: Receiver<T, E2>>(self, receiver: R) -> Self::Operation<R> {
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
