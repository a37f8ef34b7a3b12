use super::map::{Map, MapReceiver};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::stopped_as_option`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct StoppedAsOption<S> {
    sender: S,
}

impl<S> StoppedAsOption<S> {
    #[inline]
    pub(crate) fn new(sender: S) -> Self {
        StoppedAsOption { sender }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S> Sender for StoppedAsOption<S>
where
    S: Sender,
{
    type Value = Option<S::Value>;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<Option<S::Value>, S::Error>> = S::Operation<MapReceiver<StopAsNone, R>>;

    #[inline]
    fn connect<R: Receiver<Option<S::Value>, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(StopAsNone, receiver))
    }

    dismantle!(sender);
}

/// Maps a stop to `None`, and a value to `Some`.
#[derive(Debug)]
pub struct StopAsNone;

impl<T, E> Map<T, E> for StopAsNone {
    type Value = Option<T>;
    type Error = E;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<Option<T>, E> {
        match completion {
            Completion::Value(value) => Completion::Value(Some(value)),
            Completion::Error(error) => Completion::Error(error),
            Completion::Stopped => Completion::Value(None),
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
