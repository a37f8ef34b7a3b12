use core::marker::PhantomData;

use super::gather::{ConcludeGather, GatherChild};
use super::tuple::{TupleOperation2, all_inline};
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Panic, Receiver, Sender};

/// Sender created by [`Sender::stop_when`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct StopWhen<S, G> {
    sender: S,
    trigger: G,
}

impl<S, G> StopWhen<S, G> {
    #[inline]
    pub(crate) fn new(sender: S, trigger: G) -> Self {
        StopWhen { sender, trigger }
    }
}

// SAFETY: the operation is `!Unpin`, and accesses nothing of itself after its second child was started or the last has
// completed. Where both children complete inside their `start`, the last completion is inside this `start`.
unsafe impl<S: Sender, G: Sender> Sender for StopWhen<S, G>
where
    S::Value: Send,
    S::Error: Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES, G::COMPLETES]);
    type Operation<R: Receiver<S::Value, S::Error>> = TupleOperation2<EitherStops<S::Value, S::Error>, S, G, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        TupleOperation2::new((self.sender, self.trigger), EitherStops(PhantomData), receiver)
    }

    dismantle!(sender, trigger);
}

/// The policy by which the first to complete stops the other. The work's completion counts, and the trigger's panic.
#[derive(Debug)]
pub struct EitherStops<T, E>(PhantomData<fn() -> (T, E)>);

// SAFETY: the type has no state, and value and error are `Send`.
unsafe impl<T: Send, E: Send> GatherChild<0, T, E> for EitherStops<T, E> {
    type Kept = Completion<T, E>;

    #[inline]
    fn child_completed(&self, completion: Completion<T, E>) -> (Option<Completion<T, E>>, bool) {
        (Some(completion), true)
    }
}

// SAFETY: the type has no state, and a panic is `Send`.
unsafe impl<T, E, U, F> GatherChild<1, U, F> for EitherStops<T, E> {
    type Kept = Panic;

    #[inline]
    fn child_completed(&self, completion: Completion<U, F>) -> (Option<Panic>, bool) {
        match completion {
            Completion::Panicked(payload) => (Some(payload), true),
            _ => (None, true),
        }
    }
}

impl<T, E> ConcludeGather<(Option<Completion<T, E>>, Option<Panic>)> for EitherStops<T, E> {
    type Value = T;
    type Error = E;

    fn conclude(&mut self, (work, trigger): (Option<Completion<T, E>>, Option<Panic>)) -> Completion<T, E> {
        match (work, trigger) {
            (Some(panicked @ Completion::Panicked(_)), _) => panicked,
            (_, Some(payload)) => Completion::Panicked(payload),
            (Some(completion), None) => completion,
            // Unreachable: the work always leaves its completion.
            (None, None) => Completion::Stopped,
        }
    }
}
