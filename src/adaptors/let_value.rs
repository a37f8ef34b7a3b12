use super::adapted::{SenderOf, adapted};
use super::chain::{ChainOperation, Successor, make};
use super::same::SameError;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::let_value`].
    pub struct LetValue<S, F> {
        sender: S,
        function: F,
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The second sender starts where the first completed, so the
// weaker of their two promises holds.
unsafe impl<S, F, T, E, N> Sender for LetValue<S, F, T, E>
where
    S: SenderOf<T, E>,
    F: FnOnce(T) -> N + Send,
    N: Sender,
    (): SameError<E, N::Error>,
{
    type Value = N::Value;
    type Error = N::Error;
    const COMPLETES: Completes = S::COMPLETES.and(N::COMPLETES);
    type Operation<R: Receiver<N::Value, N::Error>> = ChainOperation<S, T, E, LetValueSuccessor<F>, R>;

    #[inline]
    fn connect<R: Receiver<N::Value, N::Error>>(self, receiver: R) -> Self::Operation<R> {
        ChainOperation::Ready {
            first: self.sender,
            successor: LetValueSuccessor(self.function),
            receiver,
        }
    }

    dismantle!(sender);
}

/// The function that makes the second sender.
#[derive(Debug)]
pub struct LetValueSuccessor<F>(F);

impl<T, E, F, N> Successor<T, E> for LetValueSuccessor<F>
where
    F: FnOnce(T) -> N + Send,
    N: Sender,
    (): SameError<E, N::Error>,
{
    type Value = N::Value;
    type Error = N::Error;
    type Sender = N;

    #[inline]
    fn follow(self, completion: Completion<T, E>) -> Result<N, Completion<N::Value, N::Error>> {
        match completion {
            Completion::Value(value) => make(|| (self.0)(value)),
            Completion::Error(error) => Err(Completion::Error(<() as SameError<E, N::Error>>::same(error))),
            Completion::Stopped => Err(Completion::Stopped),
            Completion::Panicked(payload) => Err(Completion::Panicked(payload)),
        }
    }
}
