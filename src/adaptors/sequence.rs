use super::adapted::{SenderOf, adapted};
use super::chain::{ChainOperation, Successor};
use super::same::SameError;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::sequence`].
    pub struct Sequence<A, B> {
        first: A,
        second: B,
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The second sender starts where the first completed, so the
// weaker of their two promises holds.
unsafe impl<A, B, T, E> Sender for Sequence<A, B, T, E>
where
    A: SenderOf<T, E>,
    B: Sender + Send,
    (): SameError<E, B::Error>,
{
    type Value = B::Value;
    type Error = B::Error;
    const COMPLETES: Completes = A::COMPLETES.and(B::COMPLETES);
    type Operation<R: Receiver<B::Value, B::Error>> = ChainOperation<A, T, E, Second<B>, R>;

    #[inline]
    fn connect<R: Receiver<B::Value, B::Error>>(self, receiver: R) -> Self::Operation<R> {
        ChainOperation::Ready {
            first: self.first,
            successor: Second(self.second),
            receiver,
        }
    }

    dismantle!(first, second);
}

/// The second sender.
#[derive(Debug)]
pub struct Second<B>(B);

impl<T, E, B> Successor<T, E> for Second<B>
where
    B: Sender + Send,
    (): SameError<E, B::Error>,
{
    type Value = B::Value;
    type Error = B::Error;
    type Sender = B;

    #[inline]
    fn follow(self, completion: Completion<T, E>) -> Result<B, Completion<B::Value, B::Error>> {
        match completion {
            Completion::Value(_) => Ok(self.0),
            Completion::Error(error) => Err(Completion::Error(<() as SameError<E, B::Error>>::same(error))),
            Completion::Stopped => Err(Completion::Stopped),
            Completion::Panicked(payload) => Err(Completion::Panicked(payload)),
        }
    }
}
