use core::marker::PhantomData;

use super::map::{Map, MapReceiver, call};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::err_into`].
#[derive(Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct ErrInto<S, E> {
    sender: S,
    _error: PhantomData<fn() -> E>,
}

// Not derived: `E` need not be `Clone`.
impl<S: Clone, E> Clone for ErrInto<S, E> {
    fn clone(&self) -> Self {
        ErrInto::new(self.sender.clone(), PhantomData)
    }
}

impl<S: Copy, E> Copy for ErrInto<S, E> {}

impl<S, E> ErrInto<S, E> {
    #[inline]
    pub(crate) fn new(sender: S, _error: PhantomData<fn() -> E>) -> Self {
        ErrInto { sender, _error }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, E> Sender for ErrInto<S, E>
where
    S: Sender,
    E: From<S::Error>,
{
    type Value = S::Value;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, E>> = S::Operation<MapReceiver<ConvertError<E>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, E>>(self, receiver: R) -> Self::Operation<R> {
        self.sender
            .connect(MapReceiver::new(ConvertError(self._error), receiver))
    }

    dismantle!(sender);
}

/// Converts an error, and passes other completions on.
#[derive(Debug)]
pub struct ConvertError<E>(PhantomData<fn() -> E>);

impl<T, E, E2: From<E>> Map<T, E> for ConvertError<E2> {
    type Value = T;
    type Error = E2;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<T, E2> {
        match completion {
            Completion::Value(value) => Completion::Value(value),
            Completion::Error(error) => call(|| E2::from(error), Completion::Error),
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
