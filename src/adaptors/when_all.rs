use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;

use super::fan::{Fan, FanEnv};
use super::many::{ManyOperation, Policy};
use super::same::SameError;
use super::verdict::Verdict;
use crate::factories::ReadyOperation;
use crate::sender::child::{ChildReceiver, Parent};
use crate::sender::stage::{Stage, container_of};
use crate::{Completes, Completion, Operation, Receiver, Sender, Transfer};

/// Runs several senders at once and completes when all have, with their values in argument order.
///
/// Takes a tuple of up to twelve senders, or an array of senders of one type. They need one error type:
/// [`err_into`](Sender::err_into), [`map_err`](Sender::map_err) and [`infallible_into`](Sender::infallible_into) line
/// errors up. For a number that is known only at run time there is [`when_all_iter`](crate::when_all_iter).
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
/// The values, after every child has completed. When one fails, the others are asked to stop, and after they have
/// all ended the first panic is the completion, failing that the first error, failing that a stop. An empty tuple or array completes at once.
///
/// # Panics
///
/// None of its own. A child's panic stops the others and arrives after they have ended.
///
/// # Cancellation
///
/// A stop of the receiver's token reaches every child. A child that completes with a value all the same has its value
/// counted: where all do, the whole completes with them.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant: a child's operation is destroyed, and its value kept in its place, when it completes.
#[inline]
pub fn when_all<L>(senders: L) -> WhenAll<L>
where
    WhenAll<L>: Sender,
{
    WhenAll { senders }
}

/// The sender that [`when_all`] makes.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WhenAll<L> {
    pub(super) senders: L,
}

// SAFETY: a `ReadyOperation` keeps the promises, and completes inside `start`.
unsafe impl Sender for WhenAll<()> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<(), Infallible>> = ReadyOperation<(), Infallible, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Value(()), receiver)
    }
}

/// Where children complete together: inline if all do. Otherwise a stop may end the whole from anywhere.
pub(super) const fn all_inline(children: &[Completes]) -> Completes {
    let mut all = Completes::Inline;
    let mut at = 0;
    while at < children.len() {
        all = all.and(children[at]);
        at += 1;
    }
    match all {
        Completes::Inline => Completes::Inline,
        _ => Completes::Anywhere,
    }
}

/// Writes the operation of a tuple, and the sender that connects to it.
macro_rules! when_all_tuple {
    ($operation:ident, $count:literal, [$($S:ident $index:tt),+]) => {
        when_all_tuple!(@sender $operation, $count, [$($S)+], [$($S $index),+]);
        when_all_tuple!(@parents $operation, [$($S)+], [$($S $index),+]);
    };
    (@sender $operation:ident, $count:literal, [$First:ident $($Rest:ident)*], [$($S:ident $index:tt),+]) => {
        // SAFETY: the operation touches nothing after its last child was started or has completed, and is `!Unpin`.
        // Where every child completes inside its `start`, the last one's completion does so inside this `start`.
        unsafe impl<$First: Sender, $($Rest: Sender),*> Sender for WhenAll<($First, $($Rest,)*)>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
        {
            type Value = ($($S::Value,)+);
            type Error = $First::Error;
            const COMPLETES: Completes = all_inline(&[$($S::COMPLETES),+]);
            type Operation<R: Receiver<Self::Value, Self::Error>> = $operation<$($S,)+ R>;

            #[inline]
            fn connect<R: Receiver<Self::Value, Self::Error>>(self, receiver: R) -> Self::Operation<R> {
                $operation {
                    children: ($(Stage::Sender(self.senders.$index),)+),
                    // SAFETY: `end` expects the fan of this operation.
                    fan: unsafe { Fan::new($count, receiver.env(), $operation::<$($S,)+ R>::end) },
                    verdict: Verdict::new(),
                    receiver: Some(receiver),
                    _pinned: PhantomPinned,
                }
            }
        }

        /// The operation of a [`WhenAll`] of a tuple.
        pub struct $operation<$First: Sender, $($Rest: Sender,)* R: Receiver<($($S::Value,)+), $First::Error>>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
        {
            /// A sender, then its operation, then its value. Each is touched by its child alone while that runs.
            children: ($(Stage<$S, $S::Operation<ChildReceiver<Self, $index>>, $S::Value>,)+),
            fan: Fan<R::Env>,
            verdict: Verdict<$First::Error>,
            receiver: Option<R>,
            _pinned: PhantomPinned,
        }

        impl<$First: Sender, $($Rest: Sender,)* R: Receiver<($($S::Value,)+), $First::Error>>
            $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
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
                if let Some(failure) = this.verdict.take() {
                    return failure.deliver(receiver);
                }
                // A value is not pinned.
                match ($(core::mem::replace(&mut this.children.$index, Stage::Empty),)+) {
                    #[allow(non_snake_case, reason = "the macro names a value for its sender's type")]
                    ($(Stage::Next($S),)+) => receiver.set_value(($($S,)+)),
                    // Nothing failed, so every child left a value.
                    _ => receiver.set_stopped(),
                }
            }
        }

        impl<$First: Sender, $($Rest: Sender,)* R: Receiver<($($S::Value,)+), $First::Error>> Operation
            for $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
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

        impl<$First: Sender, $($Rest: Sender,)* R: Receiver<($($S::Value,)+), $First::Error>> fmt::Debug
            for $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
        {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("WhenAllOperation").field("fan", &self.fan).finish_non_exhaustive()
            }
        }
    };
    (@parents $operation:ident, $all:tt, [$($S:ident $index:tt),+]) => {
        $(when_all_tuple!(@parent $operation, $all, $S $index);)+
    };
    (@parent $operation:ident, [$First:ident $($Rest:ident)*], $S:ident $index:tt) => {
        // SAFETY: values, errors and receiver are `Send`; a stage is touched by its own child alone.
        unsafe impl<$First: Sender, $($Rest: Sender,)* R: Receiver<($First::Value, $($Rest::Value,)*), $First::Error>>
            Parent<$index> for $operation<$First, $($Rest,)* R>
        where
            $First::Value: Send,
            $First::Error: Send,
            $($Rest::Value: Send, (): SameError<$Rest::Error, $First::Error>,)*
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
                let (stage, fan, verdict) = unsafe {
                    let this = this.as_ptr();
                    (&raw mut (*this).children.$index, NonNull::new_unchecked(&raw mut (*this).fan), &(*this).verdict)
                };
                // SAFETY: as above.
                let fan_ref = unsafe { fan.as_ref() };
                let resumed = match completion {
                    Completion::Value(value) => {
                        // SAFETY: as above.
                        unsafe { Stage::set_next(stage, value) };
                        Transfer::none()
                    }
                    failure => {
                        // SAFETY: as above.
                        unsafe { Stage::clear(stage) };
                        match failure {
                            Completion::Error(error) => verdict.error(<() as SameError<$S::Error, $First::Error>>::same(error)),
                            Completion::Panicked(payload) => verdict.panicked(payload),
                            _ => verdict.stopped(),
                        }
                        fan_ref.stop()
                    }
                };
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

when_all_tuple!(WhenAllOperation1, 1, [A 0]);
when_all_tuple!(WhenAllOperation2, 2, [A 0, B 1]);
when_all_tuple!(WhenAllOperation3, 3, [A 0, B 1, C 2]);
when_all_tuple!(WhenAllOperation4, 4, [A 0, B 1, C 2, D 3]);
when_all_tuple!(WhenAllOperation5, 5, [A 0, B 1, C 2, D 3, E 4]);
when_all_tuple!(WhenAllOperation6, 6, [A 0, B 1, C 2, D 3, E 4, F 5]);
when_all_tuple!(WhenAllOperation7, 7, [A 0, B 1, C 2, D 3, E 4, F 5, G 6]);
when_all_tuple!(WhenAllOperation8, 8, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7]);
when_all_tuple!(WhenAllOperation9, 9, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8]);
when_all_tuple!(WhenAllOperation10, 10, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9]);
when_all_tuple!(WhenAllOperation11, 11, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10]);
when_all_tuple!(WhenAllOperation12, 12, [A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11]);

// SAFETY: a `ManyOperation` keeps the promises. Where every child completes inside its `start`, the last one's
// completion does so inside this `start`.
unsafe impl<S: Sender, const N: usize> Sender for WhenAll<[S; N]>
where
    S::Value: Send,
    S::Error: Send,
{
    type Value = [S::Value; N];
    type Error = S::Error;
    const COMPLETES: Completes = all_inline(&[S::COMPLETES]);
    type Operation<R: Receiver<[S::Value; N], S::Error>> = ManyOperation<[S; N], AllToArray<S::Error, N>, R>;

    fn connect<R: Receiver<[S::Value; N], S::Error>>(self, receiver: R) -> Self::Operation<R> {
        ManyOperation::new(self.senders, AllToArray(Verdict::new()), receiver)
    }
}

/// Every value, in an array.
#[derive(Debug)]
pub struct AllToArray<E, const N: usize>(Verdict<E>);

// SAFETY: the verdict takes failures on any thread.
unsafe impl<T: Send, E: Send, const N: usize> Policy<T, E> for AllToArray<E, N> {
    type Kept = T;
    type Value = [T; N];

    #[inline]
    fn child_completed(&self, completion: Completion<T, E>) -> (Option<T>, bool) {
        self.0.value_or_stop(completion)
    }

    fn conclude(&mut self, mut kept: impl ExactSizeIterator<Item = Option<T>>) -> Completion<[T; N], E> {
        if let Some(failure) = self.0.take() {
            return failure;
        }
        // Nothing failed, so every child left a value: the `None` arm is never taken.
        let values: [Option<T>; N] = core::array::from_fn(|_| kept.next().flatten());
        if values.iter().all(Option::is_some) {
            Completion::Value(values.map(|value| match value {
                Some(value) => value,
                None => unreachable!("every value was seen to be there"),
            }))
        } else {
            Completion::Stopped
        }
    }
}
