use core::convert::Infallible;

use super::gather::First;
#[cfg(feature = "alloc")]
use super::many::FromIter;
use super::many::ManyOperation;
use super::same::{SameError, SameValue};
use super::tuple::*;
use crate::factories::ReadyOperation;
use crate::sender::dismantle::DropList;
use crate::{Completes, Completion, Receiver, Sender};

/// Runs several senders at once and completes with the first value, after the others were stopped and have ended.
///
/// Takes a tuple of up to twelve senders, or an array. They need one value type and one error type: an enum holds
/// values that differ. `when_any_iter` takes a number that is known only at run time.
///
/// ```
/// use bowline::prelude::*;
///
/// let first = when_any((never(), just("made it")));
/// assert_eq!(sync_wait(first).unwrap(), "made it");
/// ```
///
/// # Completions
///
/// The first value, after every child has completed; the values of the others are dropped. An error does not end the
/// race. Where no child has a value, the completion is the first error, or else a stop. Without children the completion
/// is a stop.
///
/// # Panics
///
/// A child's panic stops the others, and arrives after they have ended, even in place of a value.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child. The winner stops the others.
#[inline]
pub fn when_any<L>(senders: L) -> WhenAny<L>
where
    WhenAny<L>: Sender,
{
    WhenAny { senders }
}

/// Sender created by [`when_any`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAny<L> {
    senders: L,
}

// SAFETY: a `ReadyOperation` keeps the promises of `Sender`, and completes inside `start`.
unsafe impl Sender for WhenAny<()> {
    type Value = Infallible;
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<Infallible, Infallible>> = ReadyOperation<Infallible, Infallible, R>;

    fn connect<R: Receiver<Infallible, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Stopped, receiver)
    }
}

macro_rules! when_any_tuple {
    ($operation:ident, [$First:ident $first:tt $(, $Rest:ident $rest:tt)*]) => {
        // SAFETY: the operation is `!Unpin`, and accesses nothing of itself after its last child was started or has
        // completed. Where every child completes inside its `start`, the last completion is inside this `start`.
        unsafe impl<$First: Sender, $($Rest: Sender),*> Sender for WhenAny<($First, $($Rest,)*)>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            type Value = $First::Value;
            type Error = $First::Error;
            const COMPLETES: Completes = all_inline(&[$First::COMPLETES, $($Rest::COMPLETES),*]);
            type Operation<R: Receiver<Self::Value, Self::Error>> =
                $operation<First<$First::Value, $First::Error>, $First, $($Rest,)* R>;

            #[inline]
            fn connect<R: Receiver<Self::Value, Self::Error>>(self, receiver: R) -> Self::Operation<R> {
                $operation::new(self.senders, First::new(), receiver)
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
    };
}
for_each_tuple!(when_any_tuple);

// SAFETY: a `ManyOperation` keeps the promises of `Sender`. Where every child completes inside its `start`, the last
// completion is inside this `start`.
unsafe impl<S: Sender<Value: Send, Error: Send>, const N: usize> Sender for WhenAny<[S; N]> {
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<S::Value, S::Error>> = ManyOperation<[S; N], First<S::Value, S::Error>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ManyOperation::new(self.senders, First::new(), receiver)
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

/// Runs every sender of an iterator at once and completes with the first value, after the others were stopped and have
/// ended.
///
/// ```
/// use bowline::prelude::*;
///
/// let mirrors = ["a", "b", "c"];
/// let first = when_any_iter(mirrors.iter().map(|name| just(*name)));
/// assert_eq!(sync_wait(first).unwrap(), "a");
/// ```
///
/// # Completions
///
/// Those of [`when_any`]. An empty iterator completes stopped.
///
/// # Panics
///
/// A panic of the iterator is the completion, and no child is started. A child's panic stops the others, and arrives
/// after they have ended.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child. The winner stops the others.
///
/// # Allocation
///
/// One, for the operations, at the start. An iterator of unknown length makes it grow.
///
/// # Stack
///
/// Constant: the children are started in a loop.
#[cfg(feature = "alloc")]
pub fn when_any_iter<I>(senders: I) -> WhenAnyIter<I>
where
    I: IntoIterator,
    I::Item: Sender<Value: Send, Error: Send>,
{
    WhenAnyIter { senders }
}

/// Sender created by [`when_any_iter`].
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAnyIter<I> {
    senders: I,
}

// SAFETY: see the array.
#[cfg(feature = "alloc")]
unsafe impl<I, S> Sender for WhenAnyIter<I>
where
    I: IntoIterator<Item = S>,
    S: Sender<Value: Send, Error: Send>,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<S::Value, S::Error>> = ManyOperation<FromIter<I>, First<S::Value, S::Error>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ManyOperation::new(FromIter(self.senders), First::new(), receiver)
    }
}
