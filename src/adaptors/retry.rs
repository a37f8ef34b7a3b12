use core::convert::Infallible;
use core::ops::ControlFlow;

use super::rounds::{Rounds, RoundsOperation};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Panic, Receiver, Sender};

/// Sender created by [`Sender::retry`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Retry<S> {
    sender: S,
}

impl<S> Retry<S> {
    #[inline]
    pub(crate) fn new(sender: S) -> Self {
        Retry { sender }
    }
}

// SAFETY: a `RoundsOperation` keeps the promises of `Sender`. Every round starts where the one before completed. The
// loop asks its stop token between rounds, so it is never `Inline`.
unsafe impl<S> Sender for Retry<S>
where
    S: Sender + Clone + Send,
{
    type Value = S::Value;
    type Error = Infallible;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, Infallible>> = RoundsOperation<S, Always, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        RoundsOperation::new(self.sender, Always, receiver)
    }

    dismantle!(sender);
}

/// Retries after every error.
#[derive(Debug)]
pub struct Always;

impl<T, E> Rounds<T, E> for Always {
    type Value = T;
    type Error = Infallible;

    #[inline]
    fn next(&mut self, completion: Completion<T, E>) -> ControlFlow<Completion<T, Infallible>> {
        match completion {
            Completion::Value(value) => ControlFlow::Break(Completion::Value(value)),
            Completion::Error(_) => ControlFlow::Continue(()),
            Completion::Stopped => ControlFlow::Break(Completion::Stopped),
            Completion::Panicked(payload) => ControlFlow::Break(Completion::Panicked(payload)),
        }
    }
}

/// Sender created by [`Sender::retry_if`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct RetryIf<S, F> {
    sender: S,
    predicate: F,
}

impl<S, F> RetryIf<S, F> {
    #[inline]
    pub(crate) fn new(sender: S, predicate: F) -> Self {
        RetryIf { sender, predicate }
    }
}

// SAFETY: a `RoundsOperation` keeps the promises of `Sender`. Every round starts where the one before completed. The
// loop asks its stop token between rounds, so it is never `Inline`.
unsafe impl<S, F> Sender for RetryIf<S, F>
where
    S: Sender + Clone + Send,
    F: FnMut(&S::Error) -> bool + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES.and(Completes::OnStartScheduler);
    type Operation<R: Receiver<S::Value, S::Error>> = RoundsOperation<S, While<F>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        RoundsOperation::new(self.sender, While(self.predicate), receiver)
    }

    dismantle!(sender);
}

/// Retries while the predicate is true.
#[derive(Debug)]
pub struct While<F>(F);

impl<T, E, F: FnMut(&E) -> bool + Send> Rounds<T, E> for While<F> {
    type Value = T;
    type Error = E;

    #[inline]
    fn next(&mut self, completion: Completion<T, E>) -> ControlFlow<Completion<T, E>> {
        match completion {
            Completion::Error(error) => match Panic::catch(|| (self.0)(&error)) {
                Ok(true) => ControlFlow::Continue(()),
                Ok(false) => ControlFlow::Break(Completion::Error(error)),
                Err(payload) => ControlFlow::Break(Completion::Panicked(payload)),
            },
            other => ControlFlow::Break(other),
        }
    }
}
