use core::convert::Infallible;

use super::map::{Map, MapReceiver};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Outcome, Receiver, Sender};

/// Sender created by [`Sender::into_outcome`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct IntoOutcome<S> {
    sender: S,
}

impl<S> IntoOutcome<S> {
    #[inline]
    pub(crate) fn new(sender: S) -> Self {
        IntoOutcome { sender }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S> Sender for IntoOutcome<S>
where
    S: Sender,
{
    type Value = Outcome<S::Value, S::Error>;
    type Error = Infallible;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<Outcome<S::Value, S::Error>, Infallible>> = S::Operation<MapReceiver<AsOutcome, R>>;

    #[inline]
    fn connect<R: Receiver<Outcome<S::Value, S::Error>, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(AsOutcome, receiver))
    }

    dismantle!(sender);
}

/// Maps every completion but a panic to an outcome.
#[derive(Debug)]
pub struct AsOutcome;

impl<T, E> Map<T, E> for AsOutcome {
    type Value = Outcome<T, E>;
    type Error = Infallible;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<Outcome<T, E>, Infallible> {
        match completion {
            Completion::Value(value) => Completion::Value(Outcome::Value(value)),
            Completion::Error(error) => Completion::Value(Outcome::Error(error)),
            Completion::Stopped => Completion::Value(Outcome::Stopped),
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
