use super::chain::{ChainOperation, Successor};
use super::conclude::{Conclude, OnStop};
use super::handled::Handled;
use super::unstoppable::Unstoppable;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Runs a sender, then another that cleans up, whatever became of the first. Made by [`Sender::finally`].
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let closed = AtomicBool::new(false);
/// let work = just_error::<(), _>("disk full").finally(just_from(|| closed.store(true, Ordering::Relaxed)));
/// assert_eq!(sync_wait(work).unwrap_err(), "disk full");
/// assert!(closed.load(Ordering::Relaxed));
/// ```
///
/// # Completions
///
/// That of the first sender, after the clean-up has completed. Where the clean-up itself is stopped, that changes
/// nothing; where it panics, the panic is the completion, unless the first sender panicked already.
///
/// The clean-up cannot fail: handle its error with [`upon_error`](Sender::upon_error) or
/// [`into_outcome`](Sender::into_outcome).
///
/// # Panics
///
/// None of its own.
///
/// # Cancellation
///
/// The first sender sees the receiver's stop token. The clean-up does not: it sees [`NeverStop`](crate::stop::NeverStop), so that a stop which
/// ended the work does not end the clean-up as well.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant. Both operations share one piece of storage.
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

// SAFETY: a `ChainOperation` keeps the promises. The second sender starts where the first completed, so what both
// promise holds.
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

/// The clean-up that comes second.
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
