use core::ops::ControlFlow;

use super::rounds::{Rounds, RoundsOperation};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Sender created by [`Sender::repeat_n`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct RepeatN<S> {
    sender: S,
    rounds: usize,
}

impl<S> RepeatN<S> {
    #[inline]
    pub(crate) fn new(sender: S, rounds: usize) -> Self {
        RepeatN { sender, rounds }
    }
}

// SAFETY: a `RoundsOperation` keeps the promises of `Sender`. Every round starts where the one before completed. The
// loop asks its stop token between rounds, so it is never `Inline`.
unsafe impl<S> Sender for RepeatN<S>
where
    S: Sender + Clone + Send,
{
    type Value = ();
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<(), S::Error>> = RoundsOperation<S, RoundsLeft, R>;

    #[inline]
    fn connect<R: Receiver<(), S::Error>>(self, receiver: R) -> Self::Operation<R> {
        RoundsOperation::new(self.sender, RoundsLeft(self.rounds), receiver)
    }

    dismantle!(sender);
}

/// The number of rounds that are left.
#[derive(Debug)]
pub struct RoundsLeft(usize);

impl<T, E> Rounds<T, E> for RoundsLeft {
    type Value = ();
    type Error = E;

    #[inline]
    fn begin(&mut self) -> ControlFlow<Completion<(), E>> {
        match self.0 {
            0 => ControlFlow::Break(Completion::Value(())),
            _ => ControlFlow::Continue(()),
        }
    }

    #[inline]
    fn next(&mut self, completion: Completion<T, E>) -> ControlFlow<Completion<(), E>> {
        match completion {
            Completion::Value(_) => {
                self.0 -= 1;
                <Self as Rounds<T, E>>::begin(self)
            }
            Completion::Error(error) => ControlFlow::Break(Completion::Error(error)),
            Completion::Stopped => ControlFlow::Break(Completion::Stopped),
            Completion::Panicked(payload) => ControlFlow::Break(Completion::Panicked(payload)),
        }
    }
}
