use core::convert::Infallible;
use core::marker::PhantomData;

use super::map::{Map, MapReceiver};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::infallible_into`].
#[derive(Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct InfallibleInto<S, E> {
    sender: S,
    _error: PhantomData<fn() -> E>,
}

// Not derived: `E` need not be `Clone`.
impl<S: Clone, E> Clone for InfallibleInto<S, E> {
    fn clone(&self) -> Self {
        InfallibleInto::new(self.sender.clone(), PhantomData)
    }
}

impl<S: Copy, E> Copy for InfallibleInto<S, E> {}

impl<S, E> InfallibleInto<S, E> {
    #[inline]
    pub(crate) fn new(sender: S, _error: PhantomData<fn() -> E>) -> Self {
        InfallibleInto { sender, _error }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, E> Sender for InfallibleInto<S, E>
where
    S: Sender<Error = Infallible>,
{
    type Value = S::Value;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, E>> = S::Operation<MapReceiver<Widen<E>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, E>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(Widen(self._error), receiver))
    }

    dismantle!(sender);
}

/// Gives an error that cannot exist another type.
#[derive(Debug)]
pub struct Widen<E>(PhantomData<fn() -> E>);

impl<T, E> Map<T, Infallible> for Widen<E> {
    type Value = T;
    type Error = E;

    #[inline]
    fn map(self, completion: Completion<T, Infallible>) -> Completion<T, E> {
        match completion {
            Completion::Value(value) => Completion::Value(value),
            Completion::Error(error) => match error {},
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
