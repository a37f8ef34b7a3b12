use core::convert::Infallible;

use super::adapted::{SenderOf, adapted};
use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::upon_error`].
    pub struct UponError<S, F> {
        sender: S,
        function: F,
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, T, E> Sender for UponError<S, F, T, E>
where
    S: SenderOf<T, E>,
    F: FnOnce(E) -> T + Send,
{
    type Value = T;
    type Error = Infallible;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<T, Infallible>> = S::Operation<MapReceiver<OnError<F>, R>>;

    #[inline]
    fn connect<R: Receiver<T, Infallible>>(self, receiver: R) -> Self::Operation<R> {
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
