use super::adapted::{SenderOf, adapted};
use super::map::{Map, MapReceiver, call};
use super::same::SameError;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::try_then`].
    pub struct TryThen<S, F> {
        sender: S,
        function: F,
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, F, T, E, U, E2> Sender for TryThen<S, F, T, E>
where
    S: SenderOf<T, E>,
    F: FnOnce(T) -> Result<U, E2> + Send,
    (): SameError<E, E2>,
{
    type Value = U;
    type Error = E2;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<U, E2>> = S::Operation<MapReceiver<TryOnValue<F>, R>>;

    #[inline]
    fn connect<R: Receiver<U, E2>>(self, receiver: R) -> Self::Operation<R> {
        self.sender
            .connect(MapReceiver::new(TryOnValue(self.function), receiver))
    }

    dismantle!(sender);
}

/// Calls the function with a value, and passes other completions on.
#[derive(Debug)]
pub struct TryOnValue<F>(F);

impl<T, E, U, E2, F> Map<T, E> for TryOnValue<F>
where
    F: FnOnce(T) -> Result<U, E2> + Send,
    (): SameError<E, E2>,
{
    type Value = U;
    type Error = E2;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<U, E2> {
        match completion {
            Completion::Value(value) => call(
                || (self.0)(value),
                |result| match result {
                    Ok(value) => Completion::Value(value),
                    Err(error) => Completion::Error(error),
                },
            ),
            Completion::Error(error) => Completion::Error(<() as SameError<E, E2>>::same(error)),
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
