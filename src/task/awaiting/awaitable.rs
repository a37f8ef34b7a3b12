//! `.await` for every sender.

/// Implements [`IntoFuture`] for a sender by [`SenderFuture`](crate::task::SenderFuture), so that it can be awaited.
///
/// All senders of this crate implement it. For your own, list the type after its generic parameters in brackets:
///
/// ```
/// # use bowline::{Completes, Receiver, Sender};
/// # pub struct Twice<S>(S);
/// # unsafe impl<S: Sender> Sender for Twice<S> {
/// #     type Value = S::Value;
/// #     type Error = S::Error;
/// #     const COMPLETES: Completes = S::COMPLETES;
/// #     type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<R>;
/// #     fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> S::Operation<R> {
/// #         self.0.connect(receiver)
/// #     }
/// # }
/// bowline::awaitable!([S] Twice<S>);
/// ```
///
/// The await returns a `Result` of the sender's value and error. List a sender that never fails after the word `infallible`:
/// its await returns the plain value, by [`ValueFuture`](crate::task::ValueFuture).
///
/// ```
/// # use bowline::prelude::*;
/// # use bowline::{Completes, Receiver};
/// # use bowline::scheduler::{InlineSchedule, InlineScheduler};
/// # use std::convert::Infallible;
/// # pub struct Pause(InlineSchedule);
/// # unsafe impl Sender for Pause {
/// #     type Value = ();
/// #     type Error = Infallible;
/// #     const COMPLETES: Completes = InlineSchedule::COMPLETES;
/// #     type Operation<R: Receiver<(), Infallible>> = <InlineSchedule as Sender>::Operation<R>;
/// #     fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
/// #         self.0.connect(receiver)
/// #     }
/// # }
/// bowline::awaitable!(infallible [] Pause);
///
/// # let pause = Pause(InlineScheduler.schedule());
/// let () = pollster::block_on(async { pause.await });
/// ```
///
/// The sender must be `'static`, and its value and error `Send`. A future can be forgotten, so the sender must not borrow while
/// other threads use it.
#[macro_export]
macro_rules! awaitable {
    ($([$($parameter:tt)*] $sender:ty),+ $(,)?) => {$(
        impl<$($parameter)*> ::core::future::IntoFuture for $sender
        where
            Self: $crate::Sender<Value: ::core::marker::Send, Error: ::core::marker::Send> + 'static,
        {
            type Output = ::core::result::Result<<Self as $crate::Sender>::Value, <Self as $crate::Sender>::Error>;
            type IntoFuture = $crate::task::SenderFuture<Self>;

            #[track_caller]
            #[inline]
            fn into_future(self) -> Self::IntoFuture {
                $crate::task::SenderFuture::new(self)
            }
        }
    )+};
    (infallible $([$($parameter:tt)*] $sender:ty),+ $(,)?) => {$(
        impl<$($parameter)*> ::core::future::IntoFuture for $sender
        where
            Self: $crate::Sender<Value: ::core::marker::Send, Error = ::core::convert::Infallible> + 'static,
        {
            type Output = <Self as $crate::Sender>::Value;
            type IntoFuture = $crate::task::ValueFuture<Self>;

            #[track_caller]
            #[inline]
            fn into_future(self) -> Self::IntoFuture {
                $crate::task::ValueFuture::new(self)
            }
        }
    )+};
}

use crate::adaptors::*;
use crate::factories::continuation::ContinuationSender;
use crate::factories::spawn_blocking::SpawnBlocking;
use crate::factories::yield_now::YieldNow;
use crate::factories::*;
use crate::scheduler::*;
use crate::scope::{Associated, Join, Kind, SpawnFuture};

awaitable!(
    [S, E] ErrInto<S, E>,
    [S, E] InfallibleInto<S, E>,
    [S, E] StoppedAsError<S, E>,
    [S, F] Bulk<S, F>,
    [S, F] BulkChunked<S, F>,
    [S, F, T, E] LetError<S, F, T, E>,
    [S, F, T, E] LetStopped<S, F, T, E>,
    [S, F, T, E] LetValue<S, F, T, E>,
    [S, F, T, E] MapErr<S, F, T, E>,
    [S, F] RepeatUntil<S, F>,
    [S, F] RetryIf<S, F>,
    [S] RetryWith<S>,
    [S, F] RetryWithIf<S, F>,
    [S, F, T, E] Then<S, F, T, E>,
    [S, F, T, E] TryThen<S, F, T, E>,
    [S, F, T, E] UponError<S, F, T, E>,
    [S, F, T, E] UponStopped<S, F, T, E>,
    [S, C, T, E] ContinuesOn<S, C, T, E>,
    [S, C, T, E] Finally<S, C, T, E>,
    [S, C] On<S, C>,
    [S, C] StartsOn<S, C>,
    [S, G] StopWhen<S, G>,
    [S, K] AlsoStops<S, K>,
    [A, B, T, E] Sequence<A, B, T, E>,
    [S, P] WriteEnv<S, P>,
    [S] Affine<S>,
    [S] EnsureStarted<S>,
    [S] Split<S>,
    [S] IntoOption<S>,
    [S] IntoOutcome<S>,
    [S] RepeatN<S>,
    [S] Retry<S>,
    [S] StoppedAsOption<S>,
    [S] Unstoppable<S>,
    [S] WhenAll<S>,
    [S] WhenAny<S>,
    [I] WhenAllIter<I>,
    [I] WhenAnyIter<I>,
    [T: Send, E: Send] BoxedSender<'static, T, E>,
    [T] Just<T>,
    [F] JustFrom<F>,
    [T, E] JustError<T, E>,
    [T, E] JustStopped<T, E>,
    [Q] ReadEnv<Q>,
    [F] FromFuture<F>,
    [S] Timeout<S>,
    [T, E, F] ContinuationSender<T, E, F>,
    [S, K: Kind] Associated<S, K>,
    [S, K: Kind] SpawnFuture<S, K>,
);

awaitable!(
    infallible
    [] InlineSchedule,
    [] HostedSchedule,
    [] RunLoopSchedule<'static>,
    [] TaskSchedule<'static>,
    [] TimerSchedule,
    [S, A] OrElseSchedule<S, A>,
    [] YieldNow,
    [F] SpawnBlocking<F>,
    [K: Kind] Join<K>,
);
