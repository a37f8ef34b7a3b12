use super::adapted::{SenderOf, adapted};
use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::upon_stopped`].
    pub struct UponStopped<S, F> {
        sender: S,
        function: F,
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, T, E> Sender for UponStopped<S, F, T, E>
where
    S: SenderOf<T, E>,
    F: FnOnce() -> T + Send,
{
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<T, E>> = S::Operation<MapReceiver<OnStopped<F>, R>>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
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
