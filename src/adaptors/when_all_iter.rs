use alloc::vec::Vec;

use super::gather::All;
use super::many::{ConcludeMany, FromIter, ManyOperation};
use super::tuple::all_inline;
use crate::{Completes, Completion, Receiver, Sender};

/// Runs every sender of an iterator at once and completes when all have, with their values in order.
///
/// ```
/// use bowline::prelude::*;
///
/// let squares = when_all_iter((0..5).map(|n| just(n).then(|n| n * n)));
/// assert_eq!(sync_wait(squares).unwrap(), [0, 1, 4, 9, 16]);
/// ```
///
/// # Completions
///
/// A `Vec` of the values, after every child has completed. When one fails, the others are stopped. After all have
/// ended, the completion is the first panic, or else the first error, or else a stop. An empty iterator completes at
/// once.
///
/// # Panics
///
/// A panic of the iterator is the completion, and no child is started. A child's panic stops the others, and arrives
/// after they have ended.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child.
///
/// # Allocation
///
/// Two, for any length: one for the operations, at the start, and one for the `Vec` of values. An iterator of unknown
/// length makes the first one grow. Nothing is allocated for an empty iterator.
///
/// # Stack
///
/// Constant: the children are started in a loop.
pub fn when_all_iter<I>(senders: I) -> WhenAllIter<I>
where
    I: IntoIterator,
    I::Item: Sender<Value: Send, Error: Send>,
{
    WhenAllIter { senders }
}

/// Sender created by [`when_all_iter`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAllIter<I> {
    senders: I,
}

// SAFETY: a `ManyOperation` keeps the promises of `Sender`. Where every child completes inside its `start`, the last
// completion is inside this `start`.
unsafe impl<I, S> Sender for WhenAllIter<I>
where
    I: IntoIterator<Item = S>,
    S: Sender<Value: Send, Error: Send>,
{
    type Value = Vec<S::Value>;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<Vec<S::Value>, S::Error>> = ManyOperation<FromIter<I>, All<S::Error>, R>;

    fn connect<R: Receiver<Vec<S::Value>, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ManyOperation::new(FromIter(self.senders), All::new(), receiver)
    }
}

impl<I> ConcludeMany<FromIter<I>> for All<<I::Item as Sender>::Error>
where
    I: IntoIterator<Item: Sender<Value: Send, Error: Send>>,
{
    type Value = Vec<<I::Item as Sender>::Value>;

    fn conclude(
        &mut self,
        kept: impl ExactSizeIterator<Item = Option<<I::Item as Sender>::Value>>,
    ) -> Completion<Self::Value, <I::Item as Sender>::Error> {
        if let Some(failure) = self.0.take() {
            return failure;
        }
        // Nothing failed, so every child left a value.
        let mut values = Vec::with_capacity(kept.len());
        values.extend(kept.flatten());
        Completion::Value(values)
    }
}
