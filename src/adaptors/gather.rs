//! How an adaptor that runs several children at once combines their completions.

use core::convert::Infallible;

use super::race::Race;
use super::same::{SameError, SameValue};
use super::verdict::Verdict;
use crate::Completion;

/// Takes in the completion of a child whose value is a `T` and whose error is an `E`. `INDEX` tells children apart that
/// count differently. Children of one type all have index 0.
///
/// # Safety
///
/// `child_completed` may be called on any thread, by several at once. `Kept` may be taken by another thread.
pub unsafe trait GatherChild<const INDEX: usize, T, E> {
    /// The result that the child leaves in its place.
    type Kept;

    /// Returns the child's result, and whether the others are to stop.
    fn child_completed(&self, completion: Completion<T, E>) -> (Option<Self::Kept>, bool);
}

/// The function from the children's results to the completion of the whole.
pub trait ConcludeGather<K> {
    /// The value type of the result.
    type Value;
    /// The error type of the result.
    type Error;

    /// Returns the completion. Every child has completed, or there were none.
    fn conclude(&mut self, kept: K) -> Completion<Self::Value, Self::Error>;
}

/// All values, or the first failure: `when_all`.
#[derive(Debug)]
pub struct All<E>(pub(super) Verdict<E>);

impl<E> All<E> {
    pub(super) fn new() -> Self {
        All(Verdict::new())
    }
}

// SAFETY: a verdict takes failures on any thread, and value and error are `Send`.
unsafe impl<const INDEX: usize, T: Send, E: Send, F> GatherChild<INDEX, T, F> for All<E>
where
    (): SameError<F, E>,
{
    type Kept = T;

    #[inline]
    fn child_completed(&self, completion: Completion<T, F>) -> (Option<T>, bool) {
        match completion {
            Completion::Value(value) => return (Some(value), false),
            Completion::Error(error) => self.0.error(<() as SameError<F, E>>::same(error)),
            Completion::Stopped => self.0.stopped(),
            Completion::Panicked(payload) => self.0.panicked(payload),
        }
        (None, true)
    }
}

/// The first value, or the first failure where there is none: `when_any`.
#[derive(Debug)]
pub struct First<T, E>(Race<T, E>);

impl<T, E> First<T, E> {
    pub(super) fn new() -> Self {
        First(Race::new())
    }

    /// Returns the completion, once every child has completed.
    pub(super) fn take(&mut self) -> Completion<T, E> {
        self.0.take()
    }
}

// SAFETY: a race takes completions on any thread, and value and error are `Send`.
unsafe impl<const INDEX: usize, T, E, U, F> GatherChild<INDEX, U, F> for First<T, E>
where
    T: Send,
    E: Send,
    (): SameValue<U, T>,
    (): SameError<F, E>,
{
    type Kept = Infallible;

    #[inline]
    fn child_completed(&self, completion: Completion<U, F>) -> (Option<Infallible>, bool) {
        let stop = self.0.child_completed(match completion {
            Completion::Value(value) => Completion::Value(<() as SameValue<U, T>>::same(value)),
            Completion::Error(error) => Completion::Error(<() as SameError<F, E>>::same(error)),
            Completion::Stopped => Completion::Stopped,
            Completion::Panicked(payload) => Completion::Panicked(payload),
        });
        (None, stop)
    }
}

impl<T, E, K> ConcludeGather<K> for First<T, E> {
    type Value = T;
    type Error = E;

    fn conclude(&mut self, _: K) -> Completion<T, E> {
        self.take()
    }
}
