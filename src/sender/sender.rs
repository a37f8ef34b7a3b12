use core::convert::Infallible;
use core::marker::PhantomData;
use core::ops::Range;
#[cfg(feature = "std")]
use core::time::Duration;

use super::dismantle::DropList;
use super::{Completes, Operation, Patch, Receiver, Scheduler, With, WithScheduler};
use crate::adaptors::{
    Affine, AlsoStops, Bulk, BulkChunked, ContinuesOn, ErrInto, ErrorIs, Finally, Handled, InfallibleInto, IntoOption,
    IntoOutcome, LetError, LetStopped, LetValue, MapErr, On, RepeatN, RepeatUntil, Retry, RetryIf, Sequence, StartsOn,
    StopWhen, StoppedAsError, StoppedAsOption, Then, TryThen, Unstoppable, UponError, UponStopped, ValueIs, WriteEnv,
};
#[cfg(feature = "alloc")]
use crate::adaptors::{BoxedSender, EnsureStarted, Split};
use crate::stop::StopToken;
#[cfg(feature = "std")]
use crate::{
    adaptors::{RetryPolicy, RetryWith, RetryWithIf, Timeout},
    scheduler::Timer,
};

/// A description of work: the types of its result, and how to connect it to a receiver.
///
/// A sender does nothing until it is connected to a [`Receiver`] and the resulting [`Operation`] is started. Usually a
/// consumer such as [`sync_wait`](crate::sync_wait), or another sender around it, does both. Adaptors are methods, as on
/// [`Iterator`]. A function that makes work returns `impl Sender<Value = T, Error = E>`.
///
/// A sender has one value type and one error type. Several values are a tuple, alternatives an enum. The error type of a
/// sender that cannot fail is [`Infallible`].
///
/// # What the methods have in common
///
/// Unless its documentation says otherwise, the sender that a method returns has these properties:
///
/// - **Completions**: it passes on every completion that the method does not change, on the thread where it arrives. A
///   function is called for the completion that the method names, and for no other.
/// - **Panics**: a panic of a function is the completion. It passes every adaptor, up to the consumer.
/// - **Cancellation**: the adapted sender sees the stop token of the receiver.
/// - **Allocation**: none.
/// - **Stack**: constant, for any number of rounds, whether they complete inside `start` or later.
///
/// # Writing your own
///
/// The chapter *Writing your own* of the book in `docs/` shows a factory, an adaptor and a receiver, whole.
///
/// # Safety
///
/// An implementation promises, of every operation that [`connect`](Sender::connect) returns, for every receiver:
///
/// - **No access after the completion.** The operation accesses nothing of itself once the receiver's completion is called,
///   or once another thread may call it (after its [`Job`](crate::Job) was pushed, say). The completion may destroy the
///   operation, even while [`start`](Operation::start) is still on the stack.
/// - **The operation is not [`Unpin`]**, so that the compiler does not assume the reference to be valid throughout `start`.
///   A [`PhantomPinned`](core::marker::PhantomPinned) field has that effect.
/// - **[`COMPLETES`](Sender::COMPLETES) is true**, relative to that receiver's environment.
/// - Where the sender is [`Send`], the operation may be started and dropped on other threads than the one that connected
///   it.
/// - Dropping a receiver counts as its completion. The receiver is taken out first (`drop(self.receiver.take())`, not
///   `self.receiver = None`), since the drop may destroy the operation.
/// - `connect` keeps its receiver in the operation that it returns, and does not complete it. Where `connect` unwinds, it
///   drops the receiver.
/// - Neither `start` nor anything that it calls unwinds. User code is called through [`Panic::catch`](crate::Panic::catch).
///
/// A sender that wraps its child's receiver, and completes inside the child's completion, keeps these promises because the
/// child does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sender",
    label = "a sender is needed here",
    note = "wrap a plain value with `just(value)`, a function with `just_from(|| ..)`, a future with `from_future(future)`"
)]
#[must_use = "senders do nothing until they are connected and started"]
pub unsafe trait Sender: Sized {
    /// The type of the value that it completes with.
    type Value;

    /// The type of the error that it completes with; [`Infallible`] where it cannot fail.
    type Error;

    /// The promise about where it completes. The default promises nothing.
    const COMPLETES: Completes = Completes::Anywhere;

    /// The operation of the sender connected to an `R`.
    type Operation<R: Receiver<Self::Value, Self::Error>>: Operation;

    /// Connects the sender to a receiver, and runs nothing.
    fn connect<R: Receiver<Self::Value, Self::Error>>(self, receiver: R) -> Self::Operation<R>;

    /// Moves the boxes that this sender owns to `list`, which destroys them after the sender.
    ///
    /// A box calls this on the sender inside when the box is destroyed unstarted. So a nest of boxes is destroyed in a
    /// loop, in constant stack. Adaptors forward the call to their children.
    ///
    /// This is the crate's door in the trait: no code outside can name the list. The default moves nothing, and the sender
    /// destroys its boxes by recursion.
    #[doc(hidden)]
    #[inline]
    fn dismantle<'a>(&mut self, list: &mut DropList<'a>)
    where
        Self: 'a,
    {
        let _ = list;
    }

    /// Maps the value with a function.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let length = just("bowline").then(str::len).then(|n| n + 1);
    /// assert_eq!(sync_wait(length).unwrap(), 8);
    /// ```
    #[inline]
    fn then<F, U>(self, function: F) -> Then<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce(Self::Value) -> U + Send,
    {
        Then::new(self, function)
    }

    /// Maps the value with a function that returns a `Result`.
    ///
    /// The function's error type is the sender's. A sender that cannot fail takes that type by
    /// [`infallible_into`](Sender::infallible_into).
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let parse = |text: &'static str| just(text).infallible_into().try_then(str::parse::<u16>);
    /// assert_eq!(sync_wait(parse("8080")).unwrap(), 8080);
    /// assert!(sync_wait(parse("http")).is_error());
    /// ```
    #[inline]
    fn try_then<F, U, E>(self, function: F) -> TryThen<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce(Self::Value) -> Result<U, E> + Send,
        E: ErrorIs<Self::Error>,
    {
        TryThen::new(self, function)
    }

    /// Replaces an error with the value that a function returns.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let parsed = just("12x").infallible_into().try_then(str::parse::<i32>);
    /// assert_eq!(sync_wait(parsed.upon_error(|_| -1)).unwrap(), -1);
    /// ```
    ///
    /// # Completions
    ///
    /// The result cannot complete with an error.
    #[inline]
    fn upon_error<F>(self, function: F) -> UponError<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce(Self::Error) -> Self::Value + Send,
    {
        UponError::new(self, function)
    }

    /// Replaces a stop with the value that a function returns.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let given_up = just_stopped::<i32, std::convert::Infallible>().upon_stopped(|| 0);
    /// assert_eq!(sync_wait(given_up).unwrap(), 0);
    /// ```
    ///
    /// # Completions
    ///
    /// The result cannot complete stopped.
    #[inline]
    fn upon_stopped<F>(self, function: F) -> UponStopped<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce() -> Self::Value + Send,
    {
        UponStopped::new(self, function)
    }

    /// Maps the error with a function.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let named = just_error::<(), _>(404).map_err(|code| format!("status {code}"));
    /// assert_eq!(sync_wait(named).unwrap_err(), "status 404");
    /// ```
    #[inline]
    fn map_err<F, E>(self, function: F) -> MapErr<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce(Self::Error) -> E + Send,
    {
        MapErr::new(self, function)
    }

    /// Converts the error with [`From`].
    ///
    /// [`when_all`](crate::when_all) and its like need children of one error type.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// type Error = Box<dyn std::error::Error + Send + Sync>;
    ///
    /// let number = just("abc").infallible_into().try_then(str::parse::<i32>);
    /// let name = just_error::<String, _>("no name");
    /// let both = when_all((number.err_into::<Error>(), name.err_into::<Error>()));
    /// assert_eq!(sync_wait(both).unwrap_err().to_string(), "invalid digit found in string");
    /// ```
    ///
    /// # Panics
    ///
    /// A panic of the conversion is the completion.
    #[inline]
    fn err_into<E: From<Self::Error>>(self) -> ErrInto<Self, E> {
        ErrInto::new(self, PhantomData)
    }

    /// Gives a sender that cannot fail the error type that its neighbours have.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let checked = just_error::<i32, _>("no such file");
    /// let both = when_all((checked, just(1).infallible_into()));
    /// assert_eq!(sync_wait(both).unwrap_err(), "no such file");
    /// ```
    #[inline]
    fn infallible_into<E>(self) -> InfallibleInto<Self, E>
    where
        Self: Sender<Error = Infallible>,
    {
        InfallibleInto::new(self, PhantomData)
    }

    /// Turns value, error and stop into one value, an [`Outcome`](crate::Outcome).
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let seen = just_error::<i32, _>("late").into_outcome();
    /// assert_eq!(sync_wait(seen).unwrap(), Outcome::Error("late"));
    /// ```
    ///
    /// # Completions
    ///
    /// The result completes with a value, or with the sender's panic.
    #[inline]
    fn into_outcome(self) -> IntoOutcome<Self> {
        IntoOutcome::new(self)
    }

    /// Turns the value into `Some`, and an error or a stop into `None`.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// assert_eq!(sync_wait(just(1).into_option()).unwrap(), Some(1));
    /// assert_eq!(sync_wait(just_error::<i32, _>("late").into_option()).unwrap(), None);
    /// ```
    ///
    /// # Completions
    ///
    /// The result completes with a value, or with the sender's panic.
    #[inline]
    fn into_option(self) -> IntoOption<Self> {
        IntoOption::new(self)
    }

    /// Turns the value into `Some`, and a stop into `None`.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let stopped = just_stopped::<i32, &str>().stopped_as_option();
    /// assert_eq!(sync_wait(stopped).unwrap(), None);
    /// ```
    ///
    /// # Completions
    ///
    /// The result cannot complete stopped.
    #[inline]
    fn stopped_as_option(self) -> StoppedAsOption<Self> {
        StoppedAsOption::new(self)
    }

    /// Replaces a stop with an error.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let stopped = just_stopped::<i32, _>().stopped_as_error("cancelled");
    /// assert_eq!(sync_wait(stopped).unwrap_err(), "cancelled");
    /// ```
    ///
    /// # Completions
    ///
    /// The result cannot complete stopped.
    #[inline]
    fn stopped_as_error(self, error: Self::Error) -> StoppedAsError<Self, Self::Error>
    where
        Self::Error: Send,
    {
        StoppedAsError::new(self, error)
    }

    /// Runs a second sender, which a function makes of the value.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let total = just(vec![1, 2, 3]).let_value(|numbers| {
    ///     let count = numbers.len();
    ///     just_from(move || numbers.iter().sum::<i32>()).then(move |sum| (sum, count))
    /// });
    /// assert_eq!(sync_wait(total).unwrap(), (6, 3));
    /// ```
    ///
    /// # Completions
    ///
    /// The second sender's. The first operation is destroyed before the function is called, and the value is moved into the
    /// function. What the second sender keeps of the value lives until the second sender has completed.
    ///
    /// # Cancellation
    ///
    /// Both senders see the receiver's stop token.
    ///
    /// # Stack
    ///
    /// The two operations share one piece of storage. A chain that is built at run time goes through
    /// [`boxed`](Sender::boxed), which keeps the stack constant.
    #[inline]
    fn let_value<F, N>(self, function: F) -> LetValue<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce(Self::Value) -> N + Send,
        N: Sender,
        N::Error: ErrorIs<Self::Error>,
    {
        LetValue::new(self, function)
    }

    /// Runs a second sender, which a function makes of the error.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let cached = just_error::<_, _>("no network").let_error(|_| just("yesterday's news"));
    /// assert_eq!(sync_wait(cached).unwrap(), "yesterday's news");
    /// ```
    ///
    /// # Completions
    ///
    /// The first sender's value, or the completion of the second. The first operation is destroyed before the function is
    /// called.
    ///
    /// # Cancellation
    ///
    /// Both senders see the receiver's stop token.
    ///
    /// # Stack
    ///
    /// The two operations share one piece of storage. A chain that is built at run time goes through
    /// [`boxed`](Sender::boxed), which keeps the stack constant.
    #[inline]
    fn let_error<F, N>(self, function: F) -> LetError<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce(Self::Error) -> N + Send,
        N: Sender,
        N::Value: ValueIs<Self::Value>,
    {
        LetError::new(self, function)
    }

    /// Runs a second sender, which a function makes, in place of a stop.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let fallback = just_stopped().let_stopped(|| just("default"));
    /// assert_eq!(sync_wait(fallback).unwrap(), "default");
    /// ```
    ///
    /// # Completions
    ///
    /// The first sender's value or error, or the completion of the second. The first operation is destroyed before the
    /// function is called.
    ///
    /// # Cancellation
    ///
    /// Both senders see the receiver's stop token.
    ///
    /// # Stack
    ///
    /// The two operations share one piece of storage. A chain that is built at run time goes through
    /// [`boxed`](Sender::boxed), which keeps the stack constant.
    #[inline]
    fn let_stopped<F, N>(self, function: F) -> LetStopped<Self, F, Self::Value, Self::Error>
    where
        F: FnOnce() -> N + Send,
        N: Sender,
        N::Value: ValueIs<Self::Value>,
        N::Error: ErrorIs<Self::Error>,
    {
        LetStopped::new(self, function)
    }

    /// Runs this sender, then a second one, and completes with the second one's value.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let step = AtomicU32::new(0);
    /// let both = just_from(|| step.store(1, Ordering::Relaxed)).sequence(just_from(|| step.load(Ordering::Relaxed)));
    /// assert_eq!(sync_wait(both).unwrap(), 1);
    /// ```
    ///
    /// # Completions
    ///
    /// The second sender's. The first one's value is dropped. After an error, a stop or a panic of the first, the second is
    /// neither connected nor started.
    ///
    /// # Cancellation
    ///
    /// Both senders see the receiver's stop token.
    ///
    /// # Stack
    ///
    /// The second sender is connected in the storage that the first operation no longer needs.
    #[inline]
    fn sequence<B: Sender + Send>(self, second: B) -> Sequence<Self, B, Self::Value, Self::Error>
    where
        B::Error: ErrorIs<Self::Error>,
    {
        Sequence::new(self, second)
    }

    /// Runs this sender, then a clean-up, after every kind of completion.
    ///
    /// The clean-up cannot fail: handle its error with [`upon_error`](Sender::upon_error) or
    /// [`into_outcome`](Sender::into_outcome).
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// let closed = AtomicBool::new(false);
    /// let work = just_error::<(), _>("disk full").finally(just_from(|| closed.store(true, Ordering::Relaxed)));
    /// assert_eq!(sync_wait(work).unwrap_err(), "disk full");
    /// assert!(closed.load(Ordering::Relaxed));
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's, after the clean-up has completed. A stop of the clean-up changes nothing. A panic of the clean-up is
    /// the completion, unless the sender panicked before.
    ///
    /// # Cancellation
    ///
    /// The clean-up sees [`NeverStop`](crate::stop::NeverStop), so a stop that ended the work does not end the clean-up.
    #[inline]
    fn finally<C>(self, cleanup: C) -> Finally<Self, C, Self::Value, Self::Error>
    where
        C: Sender<Value = (), Error: Handled> + Send,
        Self::Value: Send,
        Self::Error: Send,
    {
        Finally::new(self, cleanup)
    }

    /// Runs the sender again and again, until its value satisfies a predicate.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let tries = AtomicU32::new(0);
    /// let tenth = just_from(|| tries.fetch_add(1, Ordering::Relaxed)).repeat_until(|&n| n == 9);
    /// assert_eq!(sync_wait(tenth).unwrap(), 9);
    /// ```
    ///
    /// # Completions
    ///
    /// The first value for which the predicate is true. An error, a stop or a panic of a round ends the loop.
    ///
    /// # Panics
    ///
    /// A panic of the sender's `Clone` is the completion.
    ///
    /// # Cancellation
    ///
    /// A round sees the receiver's stop token. The loop asks that token between rounds, and then completes stopped.
    #[inline]
    fn repeat_until<F>(self, predicate: F) -> RepeatUntil<Self, F>
    where
        Self: Clone + Send,
        F: FnMut(&Self::Value) -> bool + Send,
    {
        RepeatUntil::new(self, predicate)
    }

    /// Runs the sender a number of times, one after the other.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let count = AtomicU32::new(0);
    /// sync_wait(just_from(|| count.fetch_add(1, Ordering::Relaxed)).repeat_n(3)).unwrap();
    /// assert_eq!(count.into_inner(), 3);
    /// ```
    ///
    /// # Completions
    ///
    /// `()` after the last round; the values are dropped. Zero rounds complete at once. An error, a stop or a panic of a
    /// round ends the loop.
    ///
    /// # Panics
    ///
    /// A panic of the sender's `Clone` is the completion.
    ///
    /// # Cancellation
    ///
    /// A round sees the receiver's stop token. The loop asks that token between rounds, and then completes stopped.
    #[inline]
    fn repeat_n(self, rounds: usize) -> RepeatN<Self>
    where
        Self: Clone + Send,
    {
        RepeatN::new(self, rounds)
    }

    /// Runs the sender again for as long as it fails.
    ///
    /// [`retry_if`](Sender::retry_if) gives up at some point.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let tries = AtomicU32::new(0);
    /// let connect = just_from(|| tries.fetch_add(1, Ordering::Relaxed));
    /// let connected = connect.infallible_into().try_then(|n| if n < 4 { Err("refused") } else { Ok(n) });
    /// assert_eq!(sync_wait(connected.retry()).unwrap(), 4);
    /// ```
    ///
    /// # Completions
    ///
    /// The first value, stop or panic. The result cannot complete with an error.
    ///
    /// # Panics
    ///
    /// A panic of the sender's `Clone` is the completion.
    ///
    /// # Cancellation
    ///
    /// A round sees the receiver's stop token. The loop asks that token between rounds, and then completes stopped.
    #[inline]
    fn retry(self) -> Retry<Self>
    where
        Self: Clone + Send,
    {
        Retry::new(self)
    }

    /// Runs the sender again after every error that satisfies a predicate.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let mut tries = 0;
    /// let work = just_error::<(), _>("refused").retry_if(|_| {
    ///     tries += 1;
    ///     tries < 3
    /// });
    /// assert_eq!(sync_wait(work).unwrap_err(), "refused");
    /// assert_eq!(tries, 3);
    /// ```
    ///
    /// # Completions
    ///
    /// The first value, stop or panic, or the first error for which the predicate is false.
    ///
    /// # Panics
    ///
    /// A panic of the sender's `Clone` is the completion.
    ///
    /// # Cancellation
    ///
    /// A round sees the receiver's stop token. The loop asks that token between rounds, and then completes stopped.
    #[inline]
    fn retry_if<F>(self, predicate: F) -> RetryIf<Self, F>
    where
        Self: Clone + Send,
        F: FnMut(&Self::Error) -> bool + Send,
    {
        RetryIf::new(self, predicate)
    }

    /// Runs the sender again after an error, with the delays and up to the attempts of a policy.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::time::Duration;
    ///
    /// let attempts = AtomicU32::new(0);
    /// let connect = just_from(|| attempts.fetch_add(1, Ordering::Relaxed))
    ///     .infallible_into()
    ///     .try_then(|attempt| if attempt < 2 { Err("refused") } else { Ok("connected") });
    /// let policy = RetryPolicy::new().attempts(4).initial_delay(Duration::from_millis(1));
    /// assert_eq!(sync_wait(connect.retry_with(policy)).unwrap(), "connected");
    /// assert_eq!(attempts.into_inner(), 3);
    /// ```
    ///
    /// The delays are on the timer of the environment: a [`Timer`] that was added with [`with_env`](Sender::with_env), or the
    /// [global](Timer::global) one. After a delay the next attempt begins on the scheduler of the environment. Where there is
    /// none, it begins on the context of the timer.
    ///
    /// For an `async` function see [`task::retry_with`](crate::task::retry_with).
    ///
    /// # Completions
    ///
    /// The first value, stop or panic of an attempt, or the error of the last one. Every other error is dropped before its delay.
    ///
    /// # Panics
    ///
    /// A panic of the sender's `Clone` is the completion. So is one of [`Timer::global`], if the system refuses its thread.
    ///
    /// # Cancellation
    ///
    /// An attempt sees the receiver's stop token. A stop during a delay ends it at once, and is the completion.
    #[cfg(feature = "std")]
    fn retry_with(self, policy: RetryPolicy) -> RetryWith<Self>
    where
        Self: Clone + Send,
    {
        RetryWith::new(self, policy)
    }

    /// Runs the sender again after an error that satisfies a predicate, with the delays and up to the attempts of a policy.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let lookup = just_error::<(), _>("no such host").retry_with_if(RetryPolicy::new(), |error| *error == "busy");
    /// assert_eq!(sync_wait(lookup).unwrap_err(), "no such host");
    /// ```
    ///
    /// See [`retry_with`](Sender::retry_with). The first error for which the predicate is false is the completion. The predicate
    /// is not asked after the last attempt. Its panic is the completion.
    #[cfg(feature = "std")]
    fn retry_with_if<F>(self, policy: RetryPolicy, predicate: F) -> RetryWithIf<Self, F>
    where
        Self: Clone + Send,
        F: FnMut(&Self::Error) -> bool + Send,
    {
        RetryWithIf::new(self, policy, predicate)
    }

    /// Stops this sender when a trigger completes.
    ///
    /// The trigger is stopped when the sender completes, and awaited. The sender is started first: one that never leaves
    /// its `start` keeps the trigger from being started.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let work = never::<(), std::convert::Infallible>().stop_when(just("enough"));
    /// assert!(sync_wait(work).is_stopped());
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's, after both have completed. The trigger's value or error is dropped. The trigger's panic is the
    /// completion, unless the sender panicked too.
    ///
    /// # Cancellation
    ///
    /// A stop of the receiver's token reaches both.
    #[inline]
    fn stop_when<G: Sender>(self, trigger: G) -> StopWhen<Self, G>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        StopWhen::new(self, trigger)
    }

    /// Stops the sender when a duration has passed, by the global timer, and then fails.
    ///
    /// The sender is awaited after it was stopped: no part of it runs any more when the result completes. A sender that
    /// ignores its stop token runs to its end. The duration begins after the sender was started, so a sender that completes
    /// inside its `start` is never too late, and one that never leaves its `start` never times out.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// let slow = never::<i32, Infallible>().timeout(Duration::from_millis(5));
    /// assert_eq!(sync_wait(slow).unwrap_err(), TimeoutError::Elapsed);
    ///
    /// let quick = just(1).timeout(Duration::from_secs(5));
    /// assert_eq!(sync_wait(quick).unwrap(), 1);
    /// ```
    ///
    /// # Completions
    ///
    /// - The sender's value, even one that came after the duration had passed.
    /// - [`TimeoutError::Elapsed`](crate::TimeoutError::Elapsed), when the duration had passed and the sender stopped.
    /// - [`TimeoutError::Inner`](crate::TimeoutError::Inner) with the sender's error, whether the duration had passed or
    ///   not.
    /// - Stopped, when the sender stopped before the duration had passed.
    /// - The sender's panic.
    ///
    /// The result completes on the thread on which the last of sender and timer did.
    ///
    /// # Panics
    ///
    /// This method panics where [`Timer::global`](crate::scheduler::Timer::global) does.
    ///
    /// # Cancellation
    ///
    /// A stop of the receiver's token reaches the sender, and ends the timer.
    #[cfg(feature = "std")]
    fn timeout(self, duration: Duration) -> Timeout<Self>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        Timeout::new(self, Timer::global(), duration)
    }

    /// Stops the sender when a duration has passed, by the given timer, and then fails.
    ///
    /// See [`timeout`](Sender::timeout).
    #[cfg(feature = "std")]
    fn timeout_on(self, timer: &Timer, duration: Duration) -> Timeout<Self>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        Timeout::new(self, timer, duration)
    }

    /// Hides every stop from the sender.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let source = StopSource::new();
    /// source.request_stop();
    /// let work = read_env(StopRequested).unstoppable().with_stop_token(source.token());
    /// assert!(!sync_wait(work).unwrap());
    /// ```
    ///
    /// # Cancellation
    ///
    /// The sender sees [`NeverStop`](crate::stop::NeverStop).
    #[inline]
    fn unstoppable(self) -> Unstoppable<Self> {
        Unstoppable::new(self)
    }

    /// Changes one entry of the environment that the sender sees.
    ///
    /// This is the general form. [`with_scheduler`](Sender::with_scheduler) and [`with_env`](Sender::with_env) are short
    /// for it. [`WithStopToken`](crate::WithStopToken) replaces the receiver's stop token, where
    /// [`with_stop_token`](Sender::with_stop_token) adds one:
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let (inner, outer) = (StopSource::new(), StopSource::new());
    /// outer.request_stop();
    /// let work = read_env(StopRequested).write_env(WithStopToken(inner.token()));
    /// assert!(!sync_wait(work.with_stop_token(outer.token())).unwrap());
    /// ```
    ///
    /// # Cancellation
    ///
    /// A sender with a replaced stop token does not see the receiver's.
    #[inline]
    fn write_env<P: Patch>(self, patch: P) -> WriteEnv<Self, P> {
        WriteEnv::new(self, patch)
    }

    /// Stops the sender when its receiver's token is stopped, or the given one.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let source = StopSource::new();
    /// source.request_stop();
    /// let work = never::<(), std::convert::Infallible>().with_stop_token(source.token());
    /// assert!(sync_wait(work).is_stopped());
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's. The thread that requested the stop may be the one that completes.
    ///
    /// # Cancellation
    ///
    /// A stop of either token reaches the sender. [`write_env`](Sender::write_env) with a
    /// [`WithStopToken`](crate::WithStopToken) hides the receiver's token instead.
    #[inline]
    fn with_stop_token<K: StopToken>(self, token: K) -> AlsoStops<Self, K>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        AlsoStops::new(self, token)
    }

    /// Sets the scheduler in the environment that the sender sees.
    ///
    /// The sender does not move there: [`starts_on`](Sender::starts_on) starts it on a scheduler, and sets that one as
    /// well.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::InlineScheduler;
    ///
    /// let work = just(1).continues_on(ThreadPool::global().scheduler()).affine();
    /// assert_eq!(sync_wait(work.with_scheduler(InlineScheduler)).unwrap(), 1);
    /// ```
    #[inline]
    fn with_scheduler<C: Scheduler>(self, scheduler: C) -> WriteEnv<Self, WithScheduler<C>> {
        WriteEnv::new(self, WithScheduler(scheduler))
    }

    /// Adds a value of your own to the environment that the sender sees, found by its type.
    ///
    /// Wrap the value in a type of your own, so that two libraries do not both add a `String`. Its `Clone` must not panic:
    /// the process aborts where an environment is asked for. [`read_env`](crate::read_env) alone reports that panic.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// #[derive(Clone, Debug, PartialEq)]
    /// struct RequestId(u32);
    ///
    /// let work = read_env(Get::<RequestId>::new()).with_env(RequestId(7));
    /// assert_eq!(sync_wait(work).unwrap(), Some(RequestId(7)));
    /// ```
    #[inline]
    fn with_env<V: Clone + Send + Sync + 'static>(self, value: V) -> WriteEnv<Self, With<V>> {
        WriteEnv::new(self, With(value))
    }

    /// Starts the sender on a scheduler.
    ///
    /// The sender completes wherever it completes. It sees the given scheduler in its environment. The function
    /// [`starts_on`](crate::starts_on) has the same arguments the other way round.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::thread;
    ///
    /// let here = thread::current().id();
    /// let work = just_from(|| thread::current().id()).starts_on(ThreadPool::global().scheduler());
    /// assert_ne!(sync_wait(work).unwrap(), here);
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's. Stopped, without a start of the sender, when the stop was requested before the sender's turn came.
    ///
    /// # Panics
    ///
    /// A panic of the scheduler's `schedule` is the completion.
    ///
    /// # Cancellation
    ///
    /// The scheduler's until the sender's turn has come, then the sender's.
    #[inline]
    fn starts_on<C: Scheduler>(self, scheduler: C) -> StartsOn<Self, C>
    where
        Self: Send,
    {
        StartsOn::new(self, scheduler)
    }

    /// Completes on a scheduler: the adaptors that follow run there.
    ///
    /// ```
    /// use bowline::prelude::*;
    ///
    /// let data = [1, 2, 3];
    /// let there = just(&data[..]).continues_on(ThreadPool::global().scheduler());
    /// assert_eq!(sync_wait(there.then(|data| data.iter().sum::<i32>())).unwrap(), 6);
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's, on the scheduler. Stopped, in place of a value, when the stop was requested while the value waited for
    /// its turn. An error or a panic is never replaced by a stop.
    ///
    /// # Panics
    ///
    /// A panic of the scheduler's `schedule` is the completion, unless the sender panicked before.
    ///
    /// # Cancellation
    ///
    /// The sender's, then the scheduler's.
    #[inline]
    fn continues_on<C: Scheduler>(self, scheduler: C) -> ContinuesOn<Self, C, Self::Value, Self::Error>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        ContinuesOn::new(self, scheduler)
    }

    /// Runs the sender on a scheduler, and completes on the scheduler it was started on.
    ///
    /// The sender sees the given scheduler in its environment. The way back leads to the scheduler of the receiver's
    /// environment.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::thread;
    ///
    /// let here = thread::current().id();
    /// let work = just_from(|| thread::current().id()).on(ThreadPool::global().scheduler());
    /// let back = work.then(|there| (there, thread::current().id()));
    /// let (there, back) = sync_wait(back).unwrap();
    /// assert!(there != here && back == here);
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's, on the scheduler where it was started, on every channel. Stopped, without a start of the sender, when
    /// the stop was requested before the sender's turn came.
    ///
    /// # Panics
    ///
    /// A panic of a scheduler's `schedule` is the completion.
    ///
    /// # Cancellation
    ///
    /// The given scheduler's on the way there, then the sender's. The way back cannot be stopped.
    #[inline]
    fn on<C: Scheduler>(self, scheduler: C) -> On<Self, C>
    where
        Self: Send,
        Self::Value: Send,
        Self::Error: Send,
    {
        On::new(self, scheduler)
    }

    /// Completes on the scheduler of the receiver's environment, where the sender was started.
    ///
    /// A task does this at every `.await`. There is no trip back for a sender whose [`COMPLETES`](Sender::COMPLETES) says
    /// that it stays, nor for one that completes while it is being started.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::thread;
    ///
    /// let here = thread::current().id();
    /// let work = just(()).continues_on(ThreadPool::global().scheduler()).affine();
    /// assert_eq!(sync_wait(work.then(|()| thread::current().id())).unwrap(), here);
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's, on the scheduler where it was started, on every channel.
    ///
    /// # Panics
    ///
    /// A panic of the scheduler's `schedule` is the completion, and the sender is not started.
    ///
    /// # Cancellation
    ///
    /// The trip back sees a token that cannot stop, so it cannot fail.
    #[inline]
    fn affine(self) -> Affine<Self>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        Affine::new(self)
    }

    /// Calls a function for every index, with the value, then passes the value on.
    ///
    /// On a thread pool the calls run in parallel. Each worker takes a number of indices at a time.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let cells: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    /// let filled = just(10).bulk(cells.len(), |index, &base| cells[index].store(base + index, Ordering::Relaxed));
    /// assert_eq!(sync_wait(filled).unwrap(), 10);
    /// assert_eq!(cells[3].load(Ordering::Relaxed), 13);
    /// ```
    ///
    /// # Completions
    ///
    /// The value, after the function was called for each index exactly once.
    ///
    /// The workers of a [`ThreadPool`](crate::scheduler::ThreadPool) share the calls where the sender completes on one of
    /// them. Every idle worker takes part, and the last to finish completes: a thread of the pool, not always the one on
    /// which the work began. That holds on the pool of the environment's scheduler. After a sender that completes
    /// [anywhere](Completes::Anywhere), such as [`continues_on`](Sender::continues_on), it holds on any pool. Elsewhere the
    /// calls are made in order, where the sender completes.
    ///
    /// # Panics
    ///
    /// A panic of the function ends the rest and is the completion, before a stop. Of several panics, one arrives.
    ///
    /// # Cancellation
    ///
    /// The stop token is asked between calls. After a stop the rest is left out, and the result completes stopped.
    #[inline]
    fn bulk<F>(self, shape: usize, function: F) -> Bulk<Self, F>
    where
        Self::Value: Send + Sync,
        F: Fn(usize, &Self::Value) + Send + Sync,
    {
        Bulk::new(self, shape, function)
    }

    /// Calls a function for every index, with the value, each call a job of its own.
    ///
    /// A worker takes one index at a time, so as many calls may wait for each other as there are idle workers. In all else
    /// it is [`bulk`](Sender::bulk).
    #[inline]
    fn bulk_unchunked<F>(self, shape: usize, function: F) -> Bulk<Self, F>
    where
        Self::Value: Send + Sync,
        F: Fn(usize, &Self::Value) + Send + Sync,
    {
        Bulk::unchunked(self, shape, function)
    }

    /// Calls a function for ranges that cover every index once, with the value, then passes the value on.
    ///
    /// The scheduler decides how the range is cut. A [`ThreadPool`](crate::scheduler::ThreadPool) cuts it into pieces that
    /// its workers share, shorter at the beginning and at the end. Elsewhere the stop token is asked between the pieces.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let sum = AtomicUsize::new(0);
    /// let data: Vec<usize> = (0..1000).collect();
    /// let added = just(()).bulk_chunked(data.len(), |range, ()| {
    ///     sum.fetch_add(data[range].iter().sum(), Ordering::Relaxed);
    /// });
    /// sync_wait(added).unwrap();
    /// assert_eq!(sum.into_inner(), 499_500);
    /// ```
    ///
    /// # Completions
    ///
    /// The value, after the last call. The function is not called for an empty range. Threads, panics and cancellation are
    /// those of [`bulk`](Sender::bulk).
    #[inline]
    fn bulk_chunked<F>(self, shape: usize, function: F) -> BulkChunked<Self, F>
    where
        Self::Value: Send + Sync,
        F: Fn(Range<usize>, &Self::Value) + Send + Sync,
    {
        BulkChunked::new(self, shape, function)
    }

    /// Runs the sender once, for any number of receivers, each of which gets a clone of the result.
    ///
    /// The sender is started with the first clone that is started. Later receivers get the stored result.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static RUNS: AtomicU32 = AtomicU32::new(0);
    /// let shared = just_from(|| RUNS.fetch_add(1, Ordering::Relaxed)).then(|_| "loaded").split();
    /// let both = when_all((shared.clone(), shared));
    /// assert_eq!(sync_wait(both).unwrap(), ("loaded", "loaded"));
    /// assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    /// ```
    ///
    /// # Completions
    ///
    /// A clone of the value or of the error, or the stop.
    ///
    /// # Panics
    ///
    /// A panic of the sender arrives at every receiver, as its message, since a payload cannot be cloned. A panic of
    /// `Clone` arrives at the receiver that the clone was for.
    ///
    /// # Cancellation
    ///
    /// A receiver that is stopped leaves at once, with a stop; the others go on waiting. When the last handle and the last
    /// receiver are gone, the sender is stopped, and ends on its own.
    ///
    /// # Allocation
    ///
    /// One, in this call.
    #[cfg(feature = "alloc")]
    fn split(self) -> Split<Self>
    where
        Self: Send + 'static,
        Self::Value: Clone + Send + Sync,
        Self::Error: Clone + Send + Sync,
    {
        Split::new(self)
    }

    /// Starts the sender now, and keeps its result for the receiver that connects later.
    ///
    /// All that the start resumed has run when this method returns.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// static STARTED: AtomicBool = AtomicBool::new(false);
    /// let running = just_from(|| STARTED.store(true, Ordering::Relaxed)).then(|()| 7).ensure_started();
    /// assert!(STARTED.load(Ordering::Relaxed));
    /// assert_eq!(sync_wait(running).unwrap(), 7);
    /// ```
    ///
    /// # Cancellation
    ///
    /// Dropping the result stops the sender, which ends on its own. A receiver that is stopped leaves at once, with a stop,
    /// and so drops the result.
    ///
    /// # Allocation
    ///
    /// One, in this call.
    ///
    /// # Stack
    ///
    /// This call is a driver.
    #[cfg(feature = "alloc")]
    fn ensure_started(self) -> EnsureStarted<Self>
    where
        Self: 'static,
        Self::Value: Send,
        Self::Error: Send,
    {
        EnsureStarted::new(self)
    }

    /// Erases the type, for branches that differ and for work that is built at run time.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use std::convert::Infallible;
    ///
    /// fn countdown(n: u32) -> BoxedSender<'static, &'static str, Infallible> {
    ///     match n {
    ///         0 => just("lift-off").boxed(),
    ///         n => just(n - 1).let_value(countdown).boxed(),
    ///     }
    /// }
    /// assert_eq!(sync_wait(countdown(100_000)).unwrap(), "lift-off");
    /// ```
    ///
    /// # Completions
    ///
    /// The sender's. The sender sees the stop token and the user's values of the environment outside. It sees no scheduler,
    /// since a box may be started where there is none. Set one inside the box, with [`starts_on`](Sender::starts_on) or
    /// [`with_scheduler`](Sender::with_scheduler). A [`TaskScheduler`](crate::scheduler::TaskScheduler) can be passed to
    /// the code that builds the box.
    ///
    /// # Allocation
    ///
    /// One, in this call: the box holds the sender, and later the operation in the same place.
    ///
    /// # Stack
    ///
    /// Constant, however deep boxes are nested: the driver starts, completes and destroys the sender inside.
    ///
    /// Dropping a nest that was never started takes constant stack where each box is a child of the adaptors in the next
    /// one, as in `inner.then(..).boxed()` or `when_all((inner, other)).boxed()`. The outer boxes are destroyed first, and
    /// all of them when the drop returns. A box that is a *value* in the next one is destroyed by recursion: one that a
    /// closure has captured, or one in the list of a [`when_all_iter`](crate::when_all_iter). That takes about 80 bytes for
    /// each level, or 400 without optimisation.
    #[cfg(feature = "alloc")]
    fn boxed<'a>(self) -> BoxedSender<'a, Self::Value, Self::Error>
    where
        Self: Send + 'a,
        Self::Value: Send,
        Self::Error: Send,
    {
        BoxedSender::new(self)
    }
}
