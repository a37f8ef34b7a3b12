use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::upon_stopped`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct UponStopped<S, F> {
    sender: S,
    function: F,
}

impl<S, F> UponStopped<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, function: F) -> Self {
        UponStopped { sender, function }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F> Sender for UponStopped<S, F>
where
    S: Sender,
    F: FnOnce() -> S::Value + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<MapReceiver<OnStopped<F>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender
            .connect(MapReceiver::new(OnStopped(self.function), receiver))
    }

    dismantle!(sender);
}

/// Calls the function for a stop, and passes other completions on.
#[derive(Debug)]
pub struct OnStopped<F>(F);

impl<T, E, F: FnOnce() -> T + Send> Map<T, E> for OnStopped<F> {
    type Value = T;
    type Error = E;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<T, E> {
        match completion {
            Completion::Stopped => call(self.0, Completion::Value),
            other => other,
        }
    }
}
