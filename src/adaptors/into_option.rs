use core::convert::Infallible;

use super::map::{Map, MapReceiver};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Keeps the value, and makes `None` of an error or a stop. Made by [`Sender::into_option`].
///
/// ```
/// use bowline::prelude::*;
///
/// assert_eq!(sync_wait(just(1).into_option()).unwrap(), Some(1));
/// assert_eq!(sync_wait(just_error::<i32, _>("late").into_option()).unwrap(), None);
/// ```
///
/// # Completions
///
/// `Some(value)`, or `None` for an error or a stop. Panics pass. It cannot complete with an error or stopped.
///
/// # Panics
///
/// None of its own: it runs no user code.
///
/// # Cancellation
///
/// That of the sender before it; a stop arrives as `None`.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
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

// SAFETY: the operation is the child's, and a `MapReceiver` completes inside the child's completion.
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

/// Makes an option of everything but a panic.
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
