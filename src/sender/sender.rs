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
use crate::{adaptors::Timeout, scheduler::Timer};

/// A description of work: what it will give, and how to connect it to where that goes.
///
/// A sender does nothing until it is connected to a [`Receiver`] and the [`Operation`] that makes is started. Usually
/// something else does both: [`sync_wait`](crate::sync_wait), or another sender around it. Adaptors are methods, as on
/// [`Iterator`], and a function that makes work returns `impl Sender<Value = T, Error = E>`.
///
/// There is one value type and one error type. Several values are a tuple, alternatives an enum; an error that cannot
/// be is [`Infallible`].
///
/// # Writing your own
///
/// The chapter *Writing your own* of the book in `docs/` shows a factory, an adaptor and a receiver, whole.
///
/// # Safety
///
/// Whoever implements this trait promises, of every operation that [`connect`](Sender::connect) returns, for every
/// receiver:
///
/// - **Nothing of it is touched once the receiver's completion is called**, or once another thread may call it (after
///   its [`Job`](crate::Job) was pushed, say). The completion may destroy the operation, even while
///   [`start`](Operation::start) is still on the stack.
/// - **Its type is not [`Unpin`]**, so that the compiler does not take the reference for valid throughout `start`: a
///   [`PhantomPinned`](core::marker::PhantomPinned) field sees to it.
/// - **[`COMPLETES`](Sender::COMPLETES) is true**, relative to that receiver's environment.
/// - Where the sender is [`Send`], the operation may be started and dropped on other threads than the one that connected
///   it.
/// - A receiver that is dropped uncompleted has been completed: it is taken out first (`drop(self.receiver.take())`, not
///   `self.receiver = None`), since the drop may destroy the operation.
/// - `connect` keeps its receiver in the operation that it returns, and does not complete it. Where it unwinds, it drops it.
/// - Neither `start` nor anything it leads to unwinds. User code is called through
///   [`Panic::catch`](crate::Panic::catch).
///
/// A sender that adapts another by wrapping its receiver, and completes inside the child's completion, keeps all of
/// them because the child does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sender",
    label = "a sender is needed here",
    note = "wrap a plain value with `just(value)`, a function with `just_from(|| ..)`, a future with `from_future(future)`"
)]
#[must_use = "senders do nothing until they are connected and started"]
pub unsafe trait Sender: Sized {
    /// What it completes with when all goes well.
    type Value;

    /// What it completes with when not; [`Infallible`] where it cannot fail.
    type Error;

    /// Where it completes. The default promises nothing.
    const COMPLETES: Completes = Completes::Anywhere;

    /// The sender connected to an `R`.
    type Operation<R: Receiver<Self::Value, Self::Error>>: Operation;

    /// Connects the sender to where its result goes. Runs nothing.
    fn connect<R: Receiver<Self::Value, Self::Error>>(self, receiver: R) -> Self::Operation<R>;

    /// Moves the boxes that this sender owns to `list`, which destroys them after the sender.
    ///
    /// A box calls this on the sender inside when the box is destroyed unstarted. So a nest of boxes is destroyed in a loop,
    /// in constant stack. Adaptors forward the call to their children.
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

    /// Maps the value with a function. See [`Then`].
    #[inline]
    fn then<F, U>(self, function: F) -> Then<Self, F>
    where
        F: FnOnce(Self::Value) -> U + Send,
    {
        Then::new(self, function)
    }

    /// Maps the value with a function that may fail. See [`TryThen`].
    #[inline]
    fn try_then<F, U, E>(self, function: F) -> TryThen<Self, F>
    where
        F: FnOnce(Self::Value) -> Result<U, E> + Send,
        E: ErrorIs<Self::Error>,
    {
        TryThen::new(self, function)
    }

    /// Turns an error into a value with a function. See [`UponError`].
    #[inline]
    fn upon_error<F>(self, function: F) -> UponError<Self, F>
    where
        F: FnOnce(Self::Error) -> Self::Value + Send,
    {
        UponError::new(self, function)
    }

    /// Turns a stop into a value with a function. See [`UponStopped`].
    #[inline]
    fn upon_stopped<F>(self, function: F) -> UponStopped<Self, F>
    where
        F: FnOnce() -> Self::Value + Send,
    {
        UponStopped::new(self, function)
    }

    /// Maps the error with a function. See [`MapErr`].
    #[inline]
    fn map_err<F, E>(self, function: F) -> MapErr<Self, F>
    where
        F: FnOnce(Self::Error) -> E + Send,
    {
        MapErr::new(self, function)
    }

    /// Converts the error with [`From`]. See [`ErrInto`].
    #[inline]
    fn err_into<E: From<Self::Error>>(self) -> ErrInto<Self, E> {
        ErrInto::new(self, PhantomData)
    }

    /// Gives a sender that cannot fail any error type. See [`InfallibleInto`].
    #[inline]
    fn infallible_into<E>(self) -> InfallibleInto<Self, E>
    where
        Self: Sender<Error = Infallible>,
    {
        InfallibleInto::new(self, PhantomData)
    }

    /// Makes value, error and stop one value. See [`IntoOutcome`].
    #[inline]
    fn into_outcome(self) -> IntoOutcome<Self> {
        IntoOutcome::new(self)
    }

    /// Keeps the value, and makes `None` of an error or a stop. See [`IntoOption`].
    #[inline]
    fn into_option(self) -> IntoOption<Self> {
        IntoOption::new(self)
    }

    /// Makes `None` of a stop. See [`StoppedAsOption`].
    #[inline]
    fn stopped_as_option(self) -> StoppedAsOption<Self> {
        StoppedAsOption::new(self)
    }

    /// Makes an error of a stop. See [`StoppedAsError`].
    #[inline]
    fn stopped_as_error(self, error: Self::Error) -> StoppedAsError<Self, Self::Error>
    where
        Self::Error: Send,
    {
        StoppedAsError::new(self, error)
    }

    /// Runs what a function makes of the value. See [`LetValue`].
    #[inline]
    fn let_value<F, N>(self, function: F) -> LetValue<Self, F>
    where
        F: FnOnce(Self::Value) -> N + Send,
        N: Sender,
        N::Error: ErrorIs<Self::Error>,
    {
        LetValue::new(self, function)
    }

    /// Runs what a function makes of the error. See [`LetError`].
    #[inline]
    fn let_error<F, N>(self, function: F) -> LetError<Self, F>
    where
        F: FnOnce(Self::Error) -> N + Send,
        N: Sender,
        N::Value: ValueIs<Self::Value>,
    {
        LetError::new(self, function)
    }

    /// Runs what a function makes in place of a stop. See [`LetStopped`].
    #[inline]
    fn let_stopped<F, N>(self, function: F) -> LetStopped<Self, F>
    where
        F: FnOnce() -> N + Send,
        N: Sender,
        N::Value: ValueIs<Self::Value>,
        N::Error: ErrorIs<Self::Error>,
    {
        LetStopped::new(self, function)
    }

    /// This, then `second`. See [`Sequence`].
    #[inline]
    fn sequence<B: Sender + Send>(self, second: B) -> Sequence<Self, B>
    where
        B::Error: ErrorIs<Self::Error>,
    {
        Sequence::new(self, second)
    }

    /// This, then a clean-up, whatever became of it. See [`Finally`].
    #[inline]
    fn finally<C>(self, cleanup: C) -> Finally<Self, C>
    where
        C: Sender<Value = (), Error: Handled> + Send,
        Self::Value: Send,
        Self::Error: Send,
    {
        Finally::new(self, cleanup)
    }

    /// Again and again, until the value satisfies a predicate. See [`RepeatUntil`].
    #[inline]
    fn repeat_until<F>(self, predicate: F) -> RepeatUntil<Self, F>
    where
        Self: Clone + Send,
        F: FnMut(&Self::Value) -> bool + Send,
    {
        RepeatUntil::new(self, predicate)
    }

    /// A number of times, one after the other. See [`RepeatN`].
    #[inline]
    fn repeat_n(self, rounds: usize) -> RepeatN<Self>
    where
        Self: Clone + Send,
    {
        RepeatN::new(self, rounds)
    }

    /// Again, for as long as it fails. See [`Retry`].
    #[inline]
    fn retry(self) -> Retry<Self>
    where
        Self: Clone + Send,
    {
        Retry::new(self)
    }

    /// Again, after every error that satisfies a predicate. See [`RetryIf`].
    #[inline]
    fn retry_if<F>(self, predicate: F) -> RetryIf<Self, F>
    where
        Self: Clone + Send,
        F: FnMut(&Self::Error) -> bool + Send,
    {
        RetryIf::new(self, predicate)
    }

    /// Asks this to stop when `trigger` completes. See [`StopWhen`].
    #[inline]
    fn stop_when<G: Sender>(self, trigger: G) -> StopWhen<Self, G>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        StopWhen::new(self, trigger)
    }

    /// Asks this to stop when the time is up, by the global timer, and fails then. See [`Timeout`].
    #[cfg(feature = "std")]
    fn timeout(self, duration: Duration) -> Timeout<Self>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        Timeout::new(self, Timer::global(), duration)
    }

    /// The same by another timer. See [`Timeout`].
    #[cfg(feature = "std")]
    fn timeout_on(self, timer: &Timer, duration: Duration) -> Timeout<Self>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        Timeout::new(self, timer, duration)
    }

    /// Hides every stop from this. See [`Unstoppable`].
    #[inline]
    fn unstoppable(self) -> Unstoppable<Self> {
        Unstoppable::new(self)
    }

    /// Changes one thing in the environment that this sees. See [`WriteEnv`].
    #[inline]
    fn write_env<P: Patch>(self, patch: P) -> WriteEnv<Self, P> {
        WriteEnv::new(self, patch)
    }

    /// Stops the sender when its receiver's token or the given one is stopped.
    #[inline]
    fn with_stop_token<K: StopToken>(self, token: K) -> AlsoStops<Self, K>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        AlsoStops::new(self, token)
    }

    /// Shows the sender another scheduler.
    #[inline]
    fn with_scheduler<C: Scheduler>(self, scheduler: C) -> WriteEnv<Self, WithScheduler<C>> {
        WriteEnv::new(self, WithScheduler(scheduler))
    }

    /// Shows the sender a value of the user's own.
    #[inline]
    fn with_env<V: Clone + Send + Sync + 'static>(self, value: V) -> WriteEnv<Self, With<V>> {
        WriteEnv::new(self, With(value))
    }

    /// Starts this on a scheduler. See [`StartsOn`].
    #[inline]
    fn starts_on<C: Scheduler>(self, scheduler: C) -> StartsOn<Self, C>
    where
        Self: Send,
    {
        StartsOn::new(self, scheduler)
    }

    /// Completes on a scheduler. See [`ContinuesOn`].
    #[inline]
    fn continues_on<C: Scheduler>(self, scheduler: C) -> ContinuesOn<Self, C>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        ContinuesOn::new(self, scheduler)
    }

    /// Runs this on a scheduler and comes back. See [`On`].
    #[inline]
    fn on<C: Scheduler>(self, scheduler: C) -> On<Self, C>
    where
        Self: Send,
        Self::Value: Send,
        Self::Error: Send,
    {
        On::new(self, scheduler)
    }

    /// Completes on the scheduler it was started on. See [`Affine`].
    #[inline]
    fn affine(self) -> Affine<Self>
    where
        Self::Value: Send,
        Self::Error: Send,
    {
        Affine::new(self)
    }

    /// Calls a function for every index, with the value. See [`Bulk`].
    #[inline]
    fn bulk<F>(self, shape: usize, function: F) -> Bulk<Self, F>
    where
        Self::Value: Send + Sync,
        F: Fn(usize, &Self::Value) + Send + Sync,
    {
        Bulk::new(self, shape, function)
    }

    /// Calls a function for every index, each a piece of work of its own. See [`Bulk`].
    #[inline]
    fn bulk_unchunked<F>(self, shape: usize, function: F) -> Bulk<Self, F>
    where
        Self::Value: Send + Sync,
        F: Fn(usize, &Self::Value) + Send + Sync,
    {
        Bulk::unchunked(self, shape, function)
    }

    /// Calls a function for ranges that cover every index once. See [`BulkChunked`].
    #[inline]
    fn bulk_chunked<F>(self, shape: usize, function: F) -> BulkChunked<Self, F>
    where
        Self::Value: Send + Sync,
        F: Fn(Range<usize>, &Self::Value) + Send + Sync,
    {
        BulkChunked::new(self, shape, function)
    }

    /// Runs once, for any number of receivers. See [`Split`].
    #[cfg(feature = "alloc")]
    fn split(self) -> Split<Self>
    where
        Self: Send + 'static,
        Self::Value: Clone + Send + Sync,
        Self::Error: Clone + Send + Sync,
    {
        Split::new(self)
    }

    /// Starts now, and keeps the result for whoever connects. See [`EnsureStarted`].
    #[cfg(feature = "alloc")]
    fn ensure_started(self) -> EnsureStarted<Self>
    where
        Self: 'static,
        Self::Value: Send,
        Self::Error: Send,
    {
        EnsureStarted::new(self)
    }

    /// Erases the type. See [`BoxedSender`].
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
