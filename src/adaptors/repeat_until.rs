use core::ops::ControlFlow;

use super::rounds::{Rounds, RoundsOperation};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Panic, Receiver, Sender};

/// Sender created by [`Sender::repeat_until`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct RepeatUntil<S, F> {
    sender: S,
    predicate: F,
}

impl<S, F> RepeatUntil<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, predicate: F) -> Self {
        RepeatUntil { sender, predicate }
    }
}

// SAFETY: a `RoundsOperation` keeps the promises of `Sender`. Every round starts where the one before completed. The
// loop asks its stop token between rounds, so it is never `Inline`.
unsafe impl<S, F> Sender for RepeatUntil<S, F>
where
    S: Sender + Clone + Send,
    F: FnMut(&S::Value) -> bool + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, S::Error>> = RoundsOperation<S, Until<F>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        RoundsOperation::new(self.sender, Until(self.predicate), receiver)
    }

    dismantle!(sender);
}

/// Ends with the first value that satisfies the predicate.
#[derive(Debug)]
pub struct Until<F>(F);

impl<T, E, F: FnMut(&T) -> bool + Send> Rounds<T, E> for Until<F> {
    type Value = T;
    type Error = E;

    #[inline]
    fn next(&mut self, completion: Completion<T, E>) -> ControlFlow<Completion<T, E>> {
        match completion {
            Completion::Value(value) => match Panic::catch(|| (self.0)(&value)) {
                Ok(true) => ControlFlow::Break(Completion::Value(value)),
                Ok(false) => ControlFlow::Continue(()),
                Err(payload) => ControlFlow::Break(Completion::Panicked(payload)),
            },
            other => ControlFlow::Break(other),
        }
    }
}
