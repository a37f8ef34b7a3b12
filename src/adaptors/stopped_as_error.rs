use super::map::{Map, MapReceiver};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::stopped_as_error`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct StoppedAsError<S, E> {
    sender: S,
    error: E,
}

impl<S, E> StoppedAsError<S, E> {
    #[inline]
    pub(crate) fn new(sender: S, error: E) -> Self {
        StoppedAsError { sender, error }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S, E> Sender for StoppedAsError<S, E>
where
    S: Sender<Error = E>,
    E: Send,
{
    type Value = S::Value;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, E>> = S::Operation<MapReceiver<StopAsError<E>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, E>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(StopAsError(self.error), receiver))
    }

    dismantle!(sender);
}

/// Maps a stop to the given error.
#[derive(Debug)]
pub struct StopAsError<E>(E);

impl<T, E: Send> Map<T, E> for StopAsError<E> {
    type Value = T;
    type Error = E;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<T, E> {
        match completion {
            Completion::Stopped => Completion::Error(self.0),
            other => other,
        }
    }
}
