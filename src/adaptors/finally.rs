use super::adapted::{SenderOf, adapted};
use super::chain::{ChainOperation, Successor};
use super::conclude::{Conclude, OnStop};
use super::handled::Handled;
use super::unstoppable::Unstoppable;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

adapted! {
    /// Sender created by [`Sender::finally`].
    pub struct Finally<S, C> {
        sender: S,
        cleanup: C,
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The second sender starts where the first completed, so the
// weaker of their two promises holds.
unsafe impl<S, C, T, E> Sender for Finally<S, C, T, E>
where
    S: SenderOf<T, E>,
    T: Send,
    E: Send,
    C: Sender<Value = (), Error: Handled> + Send,
{
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES.and(C::COMPLETES);
    type Operation<R: Receiver<T, E>> = ChainOperation<S, T, E, Cleanup<C>, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        ChainOperation::Ready {
            first: self.sender,
            successor: Cleanup(self.cleanup),
            receiver,
        }
    }

    dismantle!(sender, cleanup);
}

/// The clean-up as the second sender.
#[derive(Debug)]
pub struct Cleanup<C>(C);

impl<T, E, C> Successor<T, E> for Cleanup<C>
where
    T: Send,
    E: Send,
    C: Sender<Value = (), Error: Handled> + Send,
{
    type Value = T;
    type Error = E;
    type Sender = Conclude<Unstoppable<C>, T, E>;

    #[inline]
    fn follow(self, completion: Completion<T, E>) -> Result<Self::Sender, Completion<T, E>> {
        Ok(Conclude::new(self.0.unstoppable(), completion, OnStop::Deliver))
    }
}
