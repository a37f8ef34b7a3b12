use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
#[cfg(feature = "alloc")]
use super::many::FromIter;
use super::many::{ManyOperation, Policy};
use super::race::Race;
use super::same::{SameError, SameValue};
use super::when_all::all_inline;
use crate::factories::ReadyOperation;
use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::{Stage, container_of};
use crate::{Completes, Completion, Operation, Receiver, Sender, Transfer};

/// Runs several senders at once and completes with the first value, after the others were stopped and have ended.
///
/// Takes a tuple of up to twelve senders, or an array. They need one value type and one error type; an enum does for
/// values that differ. For a number that is known only at run time there is `when_any_iter`.
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
/// race: where no child has a value, the first error is the completion, failing that a stop. With no children at all it
/// completes stopped.
///
/// # Panics
///
/// None of its own. A child's panic stops the others and arrives after they have ended, also when there is a winner.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child. The winner stops the others.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[inline]
pub fn when_any<L>(senders: L) -> WhenAny<L>
where
    WhenAny<L>: Sender,
{
    WhenAny { senders }
}

/// The sender that [`when_any`] makes.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAny<L> {
    senders: L,
}

// SAFETY: a `ReadyOperation` keeps the promises, and completes inside `start`.
unsafe impl Sender for WhenAny<()> {
    type Value = Infallible;
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<Infallible, Infallible>> = ReadyOperation<Infallible, Infallible, R>;

    fn connect<R: Receiver<Infallible, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Stopped, receiver)
    }
}

/// Writes the operation of a tuple, and the sender that connects to it.
macro_rules! when_any_tuple {
    ($operation:ident, $count:literal, [$($S:ident $index:tt),+]) => {
        when_any_tuple!(@sender $operation, $count, [$($S)+], [$($S $index),+]);
        when_any_tuple!(@parents $operation, [$($S)+], [$($S $index),+]);
    };
    (@sender $operation:ident, $count:literal, [$First:ident $($Rest:ident)*], [$($S:ident $index:tt),+]) => {
        // SAFETY: the operation touches nothing after its last child was started or has completed, and is `!Unpin`.
        // Where every child completes inside its `start`, the last one's completion does so inside this `start`.
        unsafe impl<$First: Sender, $($Rest: Sender),*> Sender for WhenAny<($First, $($Rest,)*)>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            type Value = $First::Value;
            type Error = $First::Error;
            const COMPLETES: Completes = all_inline(&[$($S::COMPLETES),+]);
            type Operation<R: Receiver<Self::Value, Self::Error>> = $operation<$($S,)+ R>;

            #[inline]
            fn connect<R: Receiver<Self::Value, Self::Error>>(self, receiver: R) -> Self::Operation<R> {
                $operation {
                    children: ($(Stage::Sender(self.senders.$index),)+),
                    // SAFETY: `end` expects the fan of this operation.
                    fan: unsafe { Fan::new($count, receiver.env(), $operation::<$($S,)+ R>::end) },
                    race: Race::new(),
                    receiver: Some(receiver),
                    _pinned: PhantomPinned,
                }
            }
        }

        /// The operation of a [`WhenAny`] of a tuple.
        pub struct $operation<$First: Sender, $($Rest: Sender,)* R: Receiver<$First::Value, $First::Error>>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            /// A sender, then its operation. Each is touched by its child alone while that runs.
            children: ($(Stage<$S, $S::Operation<ChildReceiver<Self, $index>>>,)+),
            fan: Fan<R::Env>,
            race: Race<$First::Value, $First::Error>,
            receiver: Option<R>,
            _pinned: PhantomPinned,
        }

        impl<$First: Sender, $($Rest: Sender,)* R: Receiver<$First::Value, $First::Error>>
            $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            /// # Safety
            ///
            /// The fan is that of an operation whose every child has completed.
            unsafe fn end(fan: NonNull<Fan<R::Env>>) -> Transfer {
                // SAFETY: the fan is a field of an operation.
                let this = unsafe { container_of!(fan, Self, fan) };
                // SAFETY: every child has completed and no stop is on its way, so nobody else touches the operation.
                let this = unsafe { &mut *this.as_ptr() };
                this.fan.close();
                let Some(receiver) = this.receiver.take() else {
                    return Transfer::none();
                };
                this.race.take().deliver(receiver)
            }
        }

        impl<$First: Sender, $($Rest: Sender,)* R: Receiver<$First::Value, $First::Error>> Operation
            for $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            #[inline]
            unsafe fn start(self: Pin<&mut Self>) -> Transfer {
                // SAFETY: nothing is moved but the senders, which are not pinned.
                let this = NonNull::from(unsafe { self.get_unchecked_mut() });
                let listen = !all_inline(&[$($S::COMPLETES),+]).is_inline();
                // SAFETY: the fan is pinned with the operation, and closed in `end`.
                let mut resumed = unsafe { Fan::open(NonNull::new_unchecked(&raw mut (*this.as_ptr()).fan), listen) };
                // The countdown keeps the operation until the last child was started; after that nothing is touched.
                $(
                    // SAFETY: the child has not been started, so nobody else touches its stage, and the operation is
                    // alive until it completes. It is pinned, started once, and destroyed in its completion.
                    resumed.append(unsafe {
                        let stage = &raw mut (*this.as_ptr()).children.$index;
                        let sender = Stage::take_sender(stage);
                        let receiver = ChildReceiver::<Self, $index>::new(this);
                        Stage::set_running(stage, sender.connect(receiver)).start()
                    });
                )+
                resumed
            }
        }

        impl<$First: Sender, $($Rest: Sender,)* R: Receiver<$First::Value, $First::Error>> fmt::Debug
            for $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("WhenAnyOperation").field("fan", &self.fan).finish_non_exhaustive()
            }
        }
    };
    (@parents $operation:ident, $all:tt, [$($S:ident $index:tt),+]) => {
        $(when_any_tuple!(@parent $operation, $all, $S $index);)+
    };
    (@parent $operation:ident, [$First:ident $($Rest:ident)*], $S:ident $index:tt) => {
        // SAFETY: values, errors and receiver are `Send`; a stage is touched by its own child alone.
        unsafe impl<$First: Sender, $($Rest: Sender,)* R: Receiver<$First::Value, $First::Error>>
            Parent<$index> for $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $((): SameValue<$Rest::Value, $First::Value>, (): SameError<$Rest::Error, $First::Error>,)*
        {
            type Value = $S::Value;
            type Error = $S::Error;
            type Env = FanEnv<R::Env>;

            #[inline]
            unsafe fn env(this: NonNull<Self>) -> Self::Env {
                // SAFETY: the child has not completed, so the fan is alive, and the environment not used after.
                unsafe { (*this.as_ptr()).fan.env() }
            }

            #[inline]
            unsafe fn child_completed(this: NonNull<Self>, completion: Completion<$S::Value, $S::Error>) -> Transfer {
                // SAFETY: the operation is alive until this child is counted. The stage is this child's, and its
                // operation touches nothing of itself any more.
                let (stage, fan, race) = unsafe {
                    let this = this.as_ptr();
                    (&raw mut (*this).children.$index, NonNull::new_unchecked(&raw mut (*this).fan), &(*this).race)
                };
                // SAFETY: as above.
                unsafe { Stage::clear(stage) };
                let stop = race.child_completed(match completion {
                    Completion::Value(value) => Completion::Value(<() as SameValue<$S::Value, $First::Value>>::same(value)),
                    Completion::Error(error) => Completion::Error(<() as SameError<$S::Error, $First::Error>>::same(error)),
                    Completion::Stopped => Completion::Stopped,
                    Completion::Panicked(payload) => Completion::Panicked(payload),
                });
                // SAFETY: as above.
                let fan_ref = unsafe { fan.as_ref() };
                let resumed = if stop { fan_ref.stop() } else { Transfer::none() };
                if fan_ref.child_done() {
                    // SAFETY: that was the last.
                    resumed.and(unsafe { Self::end(fan) })
                } else {
                    resumed
                }
            }
        }
    };
}

when_any_tuple!(WhenAnyOperation1, 1, [A 0]);
when_any_tuple!(WhenAnyOperation2, 2, [A 0, B 1]);
when_any_tuple!(WhenAnyOperation3, 3, [A 0, B 1, C 2]);
when_any_tuple!(WhenAnyOperation4, 4, [A 0, B 1, C 2, D 3]);
when_any_tuple!(WhenAnyOperation5, 5, [A 0, B 1, C 2, D 3, E 4]);
when_any_tuple!(WhenAnyOperation6, 6, [A 0, B 1, C 2, D 3, E 4, F 5]);
when_any_tuple!(WhenAnyOperation7, 7, [A 0, B 1, C 2, D 3, E 4, F 5, G 6]);
when_any_tuple!(WhenAnyOperation8, 8, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7]);
when_any_tuple!(WhenAnyOperation9, 9, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8]);
when_any_tuple!(WhenAnyOperation10, 10, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9]);
when_any_tuple!(WhenAnyOperation11, 11, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10]);
when_any_tuple!(WhenAnyOperation12, 12, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11]);

// SAFETY: a `ManyOperation` keeps the promises. Where every child completes inside its `start`, the last one's
// completion does so inside this `start`.
unsafe impl<S: Sender, const N: usize> Sender for WhenAny<[S; N]>
where
    S::Value: Send,
    S::Error: Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<S::Value, S::Error>> = ManyOperation<[S; N], First<S::Value, S::Error>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ManyOperation::new(self.senders, First(Race::new()), receiver)
    }
}

/// The first value.
#[derive(Debug)]
pub struct First<T, E>(Race<T, E>);

// SAFETY: the race takes completions on any thread.
unsafe impl<T: Send, E: Send> Policy<T, E> for First<T, E> {
    type Kept = Infallible;
    type Value = T;

    #[inline]
    fn child_completed(&self, completion: Completion<T, E>) -> (Option<Infallible>, bool) {
        (None, self.0.child_completed(completion))
    }

    fn conclude(&mut self, _: impl ExactSizeIterator<Item = Option<Infallible>>) -> Completion<T, E> {
        self.0.take()
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
/// A panic of the iterator is the completion; no child is started then. A child's panic stops the others and arrives
/// after they have ended.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child. The winner stops the others.
///
/// # Allocation
///
/// One, for the operations, when the whole is started. An iterator that does not know its length makes it grow.
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

/// The sender that [`when_any_iter`] makes.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAnyIter<I> {
    senders: I,
}

// SAFETY: as for the array.
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
        ManyOperation::new(FromIter(self.senders), First(Race::new()), receiver)
    }
}
