use core::convert::Infallible;

use super::gather::{All, ConcludeGather};
use super::many::{ConcludeMany, ManyOperation};
use super::same::SameError;
use super::tuple::*;
use crate::factories::ReadyOperation;
use crate::sender::dismantle::DropList;
use crate::{Completes, Completion, Receiver, Sender};

/// Runs several senders at once and completes when all have, with their values in argument order.
///
/// Takes a tuple of up to twelve senders, or an array of senders of one type. They need one error type:
/// [`err_into`](Sender::err_into), [`map_err`](Sender::map_err) and [`infallible_into`](Sender::infallible_into) line
/// errors up. [`when_all_iter`](crate::when_all_iter) takes a number that is known only at run time.
///
/// ```
/// use bowline::prelude::*;
///
/// let both = when_all((just(1).then(|x| x + 1), just("two")));
/// assert_eq!(sync_wait(both).unwrap(), (2, "two"));
///
/// let squares = when_all([1, 2, 3].map(|n| just(n).then(|n| n * n)));
/// assert_eq!(sync_wait(squares).unwrap(), [1, 4, 9]);
/// ```
///
/// # Completions
///
/// The values, after every child has completed. When one fails, the others are stopped. After all have ended, the
/// completion is the first panic, or else the first error, or else a stop. An empty tuple or array completes at once.
///
/// # Panics
///
/// A child's panic stops the others, and arrives after they have ended.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child. A child may still complete with a value. Where all do, the
/// values are the completion.
///
/// # Stack
///
/// A child's operation is destroyed when it completes, and its value kept in the same place.
#[inline]
pub fn when_all<L>(senders: L) -> WhenAll<L>
where
    WhenAll<L>: Sender,
{
    WhenAll { senders }
}

/// Sender created by [`when_all`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAll<L> {
    senders: L,
}

// SAFETY: a `ReadyOperation` keeps the promises of `Sender`, and completes inside `start`.
unsafe impl Sender for WhenAll<()> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<(), Infallible>> = ReadyOperation<(), Infallible, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Value(()), receiver)
    }
}

macro_rules! when_all_tuple {
    ($operation:ident, [$First:ident $first:tt $(, $Rest:ident $rest:tt)*]) => {
        // SAFETY: the operation is `!Unpin`, and accesses nothing of itself after its last child was started or has
        // completed. Where every child completes inside its `start`, the last completion is inside this `start`.
        unsafe impl<$First: Sender, $($Rest: Sender),*> Sender for WhenAll<($First, $($Rest,)*)>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
        {
            type Value = ($First::Value, $($Rest::Value,)*);
            type Error = $First::Error;
            const COMPLETES: Completes = all_inline(&[$First::COMPLETES, $($Rest::COMPLETES),*]);
            type Operation<R: Receiver<Self::Value, Self::Error>> = $operation<All<$First::Error>, $First, $($Rest,)* R>;

            #[inline]
            fn connect<R: Receiver<Self::Value, Self::Error>>(self, receiver: R) -> Self::Operation<R> {
                $operation::new(self.senders, All::new(), receiver)
            }

            #[inline]
            fn dismantle<'a>(&mut self, list: &mut DropList<'a>)
            where
                Self: 'a,
            {
                self.senders.$first.dismantle(list);
                $(self.senders.$rest.dismantle(list);)*
            }
        }

        impl<$First, $($Rest,)* Failure> ConcludeGather<(Option<$First>, $(Option<$Rest>,)*)> for All<Failure> {
            type Value = ($First, $($Rest,)*);
            type Error = Failure;

            #[inline]
            fn conclude(
                &mut self,
                kept: (Option<$First>, $(Option<$Rest>,)*),
            ) -> Completion<($First, $($Rest,)*), Failure> {
                match (self.0.take(), kept) {
                    #[allow(non_snake_case, reason = "a value is named for its sender's type")]
                    (None, (Some($First), $(Some($Rest),)*)) => Completion::Value(($First, $($Rest,)*)),
                    (Some(failure), _) => failure,
                    // Nothing failed, so every child left a value.
                    (None, _) => Completion::Stopped,
                }
            }
        }
    };
}
for_each_tuple!(when_all_tuple);

// SAFETY: a `ManyOperation` keeps the promises of `Sender`. Where every child completes inside its `start`, the last
// completion is inside this `start`.
unsafe impl<S: Sender<Value: Send, Error: Send>, const N: usize> Sender for WhenAll<[S; N]> {
    type Value = [S::Value; N];
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<[S::Value; N], S::Error>> = ManyOperation<[S; N], All<S::Error>, R>;

    fn connect<R: Receiver<[S::Value; N], S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ManyOperation::new(self.senders, All::new(), receiver)
    }

    fn dismantle<'a>(&mut self, list: &mut DropList<'a>)
    where
        Self: 'a,
    {
        for sender in &mut self.senders {
            sender.dismantle(list);
        }
    }
}

impl<S: Sender<Value: Send, Error: Send>, const N: usize> ConcludeMany<[S; N]> for All<S::Error> {
    type Value = [S::Value; N];

    fn conclude(
        &mut self,
        mut kept: impl ExactSizeIterator<Item = Option<S::Value>>,
    ) -> Completion<[S::Value; N], S::Error> {
        if let Some(failure) = self.0.take() {
            return failure;
        }
        let values: [Option<S::Value>; N] = core::array::from_fn(|_| kept.next().flatten());
        if values.iter().any(Option::is_none) {
            // Nothing failed, so every child left a value.
            return Completion::Stopped;
        }
        Completion::Value(values.map(|value| match value {
            Some(value) => value,
            None => unreachable!("every value was seen to be there"),
        }))
    }
}
