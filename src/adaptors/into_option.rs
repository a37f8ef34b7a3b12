use core::convert::Infallible;

use super::map::{Map, MapReceiver};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::into_option`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct IntoOption<S> {
    sender: S,
}

impl<S> IntoOption<S> {
    #[inline]
    pub(crate) fn new(sender: S) -> Self {
        IntoOption { sender }
    }
}

// SAFETY: the operation is the child's, which keeps the promises. A `MapReceiver` completes inside the child's
// completion.
unsafe impl<S> Sender for IntoOption<S>
where
    S: Sender,
{
    type Value = Option<S::Value>;
    type Error = Infallible;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<Option<S::Value>, Infallible>> = S::Operation<MapReceiver<AsOption, R>>;

    #[inline]
    fn connect<R: Receiver<Option<S::Value>, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(MapReceiver::new(AsOption, receiver))
    }

    dismantle!(sender);
}

/// Maps every completion but a panic to an option.
#[derive(Debug)]
pub struct AsOption;

impl<T, E> Map<T, E> for AsOption {
    type Value = Option<T>;
    type Error = Infallible;

    #[inline]
    fn map(self, completion: Completion<T, E>) -> Completion<Option<T>, Infallible> {
        match completion {
            Completion::Value(value) => Completion::Value(Some(value)),
            Completion::Error(_) | Completion::Stopped => Completion::Value(None),
            Completion::Panicked(payload) => Completion::Panicked(payload),
        }
    }
}
