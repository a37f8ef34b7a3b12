use super::chain::{ChainOperation, Successor, make};
use super::same::{SameError, SameValue};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::let_stopped`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct LetStopped<S, F> {
    sender: S,
    function: F,
}

impl<S, F> LetStopped<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, function: F) -> Self {
        LetStopped { sender, function }
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The second sender starts where the first completed, so the
// weaker of their two promises holds.
unsafe impl<S, F, N> Sender for LetStopped<S, F>
where
    S: Sender,
    F: FnOnce() -> N + Send,
    N: Sender,
    (): SameValue<S::Value, N::Value>,
    (): SameError<S::Error, N::Error>,
{
    type Value = N::Value;
    type Error = N::Error;
    const COMPLETES: Completes = S::COMPLETES.and(N::COMPLETES);
    type Operation<R: Receiver<N::Value, N::Error>> = ChainOperation<S, LetStoppedSuccessor<F>, R>;

    #[inline]
    fn connect<R: Receiver<N::Value, N::Error>>(self, receiver: R) -> Self::Operation<R> {
        ChainOperation::new(self.sender, LetStoppedSuccessor(self.function), receiver)
    }

    dismantle!(sender);
}

/// The function that makes the second sender.
#[derive(Debug)]
pub struct LetStoppedSuccessor<F>(F);

impl<T, E, F, N> Successor<T, E> for LetStoppedSuccessor<F>
where
    F: FnOnce() -> N + Send,
    N: Sender,
    (): SameValue<T, N::Value>,
    (): SameError<E, N::Error>,
{
    type Value = N::Value;
    type Error = N::Error;
    type Sender = N;

    #[inline]
    fn follow(self, completion: Completion<T, E>) -> Result<N, Completion<N::Value, N::Error>> {
        match completion {
            Completion::Stopped => make(self.0),
            Completion::Value(value) => Err(Completion::Value(<() as SameValue<T, N::Value>>::same(value))),
            Completion::Error(error) => Err(Completion::Error(<() as SameError<E, N::Error>>::same(error))),
            Completion::Panicked(payload) => Err(Completion::Panicked(payload)),
        }
    }
}
