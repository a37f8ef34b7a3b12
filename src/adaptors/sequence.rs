use super::chain::{ChainOperation, Successor};
use super::same::SameError;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::sequence`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Sequence<A, B> {
    first: A,
    second: B,
}

impl<A, B> Sequence<A, B> {
    #[inline]
    pub(crate) fn new(first: A, second: B) -> Self {
        Sequence { first, second }
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The second sender starts where the first completed, so the
// weaker of their two promises holds.
unsafe impl<A, B> Sender for Sequence<A, B>
where
    A: Sender,
    B: Sender + Send,
    (): SameError<A::Error, B::Error>,
{
    type Value = B::Value;
    type Error = B::Error;
    const COMPLETES: Completes = A::COMPLETES.and(B::COMPLETES);
    type Operation<R: Receiver<B::Value, B::Error>> = ChainOperation<A, Second<B>, R>;

    #[inline]
    fn connect<R: Receiver<B::Value, B::Error>>(self, receiver: R) -> Self::Operation<R> {
        ChainOperation::new(self.first, Second(self.second), receiver)
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
