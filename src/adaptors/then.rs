use super::adapted::{SenderOf, adapted};
use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::then`].
    pub struct Then<S, F> {
        sender: S,
        function: F,
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, T, E, U> Sender for Then<S, F, T, E>
where
    S: SenderOf<T, E>,
    F: FnOnce(T) -> U + Send,
{
    type Value = U;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<U, E>> = S::Operation<MapReceiver<OnValue<F>, R>>;

    #[inline]
    fn connect<R: Receiver<U, E>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(OnValue(self.function), receiver))
    }

    dismantle!(sender);
}

/// Calls the function with a value, and passes other completions on.
#[derive(Debug)]
pub struct OnValue<F>(F);

impl<T, E, U, F: FnOnce(T) -> U + Send> Map<T, E> for OnValue<F> {
    type Value = U;
    type Error = E;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<U, E> {
        match completion {
            Completion::Value(value) => call(|| (self.0)(value), Completion::Value),
            Completion::Error(error) => Completion::Error(error),
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
