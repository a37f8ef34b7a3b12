use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::then`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Then<S, F> {
    sender: S,
    function: F,
}

impl<S, F> Then<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, function: F) -> Self {
        Then { sender, function }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, U> Sender for Then<S, F>
where
    S: Sender,
    F: FnOnce(S::Value) -> U + Send,
{
    type Value = U;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<U, S::Error>> = S::Operation<MapReceiver<OnValue<F>, R>>;

    #[inline]
    fn connect<R: Receiver<U, S::Error>>(self, receiver: R) -> Self::Operation<R> {
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
