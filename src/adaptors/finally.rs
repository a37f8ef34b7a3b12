use super::chain::{ChainOperation, Successor};
use super::conclude::{Conclude, OnStop};
use super::handled::Handled;
use super::unstoppable::Unstoppable;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::finally`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Finally<S, C> {
    sender: S,
    cleanup: C,
}

impl<S, C> Finally<S, C> {
    #[inline]
    pub(crate) fn new(sender: S, cleanup: C) -> Self {
        Finally { sender, cleanup }
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The second sender starts where the first completed, so the
// weaker of their two promises holds.
unsafe impl<S, C> Sender for Finally<S, C>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    C: Sender<Value = (), Error: Handled> + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(C::COMPLETES);
    type Operation<R: Receiver<S::Value, S::Error>> = ChainOperation<S, Cleanup<C>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ChainOperation::new(self.sender, Cleanup(self.cleanup), receiver)
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
