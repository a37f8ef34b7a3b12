use core::ops::ControlFlow;

use super::rounds::{Rounds, RoundsOperation};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Sender};

/// Runs a sender a number of times, one after the other. Made by [`Sender::repeat_n`].
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let count = AtomicU32::new(0);
/// sync_wait(just_from(|| count.fetch_add(1, Ordering::Relaxed)).repeat_n(3)).unwrap();
/// assert_eq!(count.into_inner(), 3);
/// ```
///
/// # Completions
///
/// `()` after the last round; the values are dropped. Zero rounds complete at once, and the sender is not run. An
/// error, a stop or a panic of a round ends the loop and passes.
///
/// # Panics
///
/// A panic of the sender's `Clone` is the completion.
///
/// # Cancellation
///
/// That of the sender, and between two rounds the stop token is asked: the loop ends stopped.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant, for any number of rounds, whether they complete at once or later.
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

// SAFETY: a `RoundsOperation` keeps the promises. Every round starts where the one before completed. The loop asks its stop
// token between rounds, so it is never `Inline`.
unsafe impl<S> Sender for RepeatN<S>
where
    S: Sender + Clone + Send,
{
    type Value = ();
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<(), S::Error>> = RoundsOperation<S, Count, R>;

    #[inline]
    fn connect<R: Receiver<(), S::Error>>(self, receiver: R) -> Self::Operation<R> {
        RoundsOperation::new(self.sender, Count(self.rounds), receiver)
    }

    dismantle!(sender);
}

/// The rounds that are left.
#[derive(Debug)]
pub struct Count(usize);

impl<T, E> Rounds<T, E> for Count {
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
