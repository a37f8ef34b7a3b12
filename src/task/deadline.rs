//! Work that is to be over at a time.

use core::convert::Infallible;
use core::error::Error;
use core::fmt;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll};
use core::time::Duration;
use std::time::Instant;

use super::awaiting::await_sender::SenderFuture;
use super::cancellation::in_context;
use super::frame::{self, ContextScope, Header, Polling, Stops};
use super::strand::context::Context;
use super::strand::scoped_future::{self, Change, Ended, Leftover, ScopedFuture};
use crate::scheduler::{Timer, TimerSchedule};
use crate::sender::{current, start};
use crate::stop::{InplaceStopSource, InplaceStopToken, Relay, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::{Env, NoScheduler, Panic, Receiver, Sender, Transfer};

/// When the current task is to be over: the earliest of the deadlines that it is in. None where there is none, and outside of a
/// task.
#[inline]
pub fn deadline() -> Option<Instant> {
    in_context(|context| context.deadline).flatten()
}

/// How much time is left until the [`deadline`] of the current task. None where there is none; nothing when it has passed.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
/// use std::time::Duration;
///
/// let work = Task::new(async {
///     assert_eq!(task::time_left(), None);
///     let minute = Duration::from_secs(60);
///     task::with_timeout(minute, async { task::time_left() }).await
/// });
/// let left = sync_wait(work).unwrap().unwrap();
/// assert!(left.is_some_and(|left| left <= Duration::from_secs(60)));
/// ```
pub fn time_left() -> Option<Duration> {
    deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Runs a future, or awaits a sender, that is to be over at a time: when that has come, what is inside is cancelled.
///
/// A deadline is absolute, and inherited: all that is awaited inside, tasks and groups too, sees it as its
/// [`deadline`]. Of those that are nested the earliest holds. When it passes, the inside is cancelled with
/// [`Reason::Deadline`](super::Reason::Deadline), and nothing else: what runs beside it goes on.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, DeadlineExceeded, Task};
/// use std::convert::Infallible;
/// use std::time::{Duration, Instant};
///
/// let work = Task::new(async {
///     let soon = Instant::now() + Duration::from_millis(5);
///     let slow = task::with_deadline(soon, never::<u32, Infallible>()).await;
///     let quick = task::with_deadline(soon, async { 6 * 7 }).await;
///     (slow, quick)
/// });
/// assert_eq!(sync_wait(work).unwrap(), (Err(DeadlineExceeded), Ok(42)));
/// ```
///
/// A deadline that has passed already still lets the inside run, cancelled from the beginning. One that the clock cannot
/// reach is none.
///
/// # Completions
///
/// - The output, also one that came after the deadline: it is there.
/// - [`DeadlineExceeded`], when what was awaited inside stopped because this deadline had passed.
/// - Where it stopped for another reason, which came first, that passes on: the task stops. So a deadline further out is
///   reported there, and a cancellation of the task is not taken for a matter of time.
///
/// # Panics
///
/// The future's panic unwinds. It also panics where [`Timer::global`] does; and when it is sent to another task, or out of the
/// scope that it is in, after its first poll, and polled there.
///
/// # Cancellation
///
/// It is cooperative. What is awaited inside stops if it listens to its stop token, as the senders of this crate do. A future of
/// another crate does not: it is polled once more, so that code around it sees that it
/// [is cancelled](super::is_cancelled), and otherwise runs to its end. Wrap it in [`from_future`](crate::from_future), which
/// lets go of it, or tell it by a [handler](super::with_cancellation_handler).
///
/// A cancellation of the task reaches the inside as always, and what was moved out of it. When the inside has ended, the timer is
/// stopped, and the task ends after it.
///
/// **Outside of a task**, and under what polls with wakers of its own inside a task, nobody inside listens: there the future is
/// dropped when the deadline has passed and it was pending, and the error returned.
///
/// # Allocation
///
/// None in a task, where the timer is in this future. Elsewhere one. The future may borrow, and need not be `Send`.
pub fn with_deadline<F: IntoFuture>(deadline: Instant, operation: F) -> WithDeadline<F::IntoFuture> {
    WithDeadline::new(When::At(deadline), operation.into_future())
}

/// Runs a future, or awaits a sender, that is to be over so long after its first poll: [`with_deadline`], for a duration.
///
/// A time too long for the clock, such as [`Duration::MAX`], is no limit.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, DeadlineExceeded, Task};
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// let work = Task::new(async {
///     task::with_timeout(Duration::from_secs(60), async {
///         // The earlier one holds, and says so.
///         let inner = task::with_timeout(Duration::from_millis(1), never::<(), Infallible>()).await;
///         assert_eq!(inner, Err(DeadlineExceeded));
///         assert!(!task::is_cancelled());
///     })
///     .await
/// });
/// assert_eq!(sync_wait(work).unwrap(), Ok(()));
/// ```
pub fn with_timeout<F: IntoFuture>(duration: Duration, operation: F) -> WithDeadline<F::IntoFuture> {
    WithDeadline::new(When::After(duration), operation.into_future())
}

/// The deadline has passed, and the work stopped because of it: the error of [`with_deadline`] and [`with_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeadlineExceeded;

impl fmt::Display for DeadlineExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl Error for DeadlineExceeded {}

/// The future of [`with_deadline`] and [`with_timeout`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WithDeadline<F: Future> {
    inside: ScopedFuture<F, Limit>,
    /// A timer that is awaited beside the inside, where there is no frame for it to wake.
    foreign: Option<SenderFuture<TimerSchedule>>,
    /// Taken by the first poll.
    when: Option<When>,
    timer: Option<Timer>,
    _pinned: PhantomPinned,
}

#[derive(Clone, Copy, Debug)]
enum When {
    At(Instant),
    After(Duration),
}

impl When {
    /// None where it is beyond what `Instant` can represent: such a deadline never passes.
    fn instant(self) -> Option<Instant> {
        match self {
            When::At(at) => Some(at),
            When::After(duration) => Instant::now().checked_add(duration),
        }
    }
}

impl<F: Future> WithDeadline<F> {
    fn new(when: When, future: F) -> Self {
        WithDeadline {
            inside: ScopedFuture::new(future),
            foreign: None,
            when: Some(when),
            timer: None,
            _pinned: PhantomPinned,
        }
    }

    /// Has another timer watch the time than [`Timer::global`].
    ///
    /// ```
    /// use bowline::scheduler::{RunLoop, Timer};
    /// use bowline::task::{self, DeadlineExceeded, Task};
    /// use bowline::never;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// // No other thread has to do with it.
    /// let run_loop = RunLoop::new();
    /// let timer = Timer::on(&run_loop);
    /// let slow = Task::new(async move {
    ///     let millisecond = Duration::from_millis(1);
    ///     task::with_timeout(millisecond, never::<(), Infallible>()).on(&timer).await
    /// });
    /// assert_eq!(run_loop.run_until(slow).unwrap(), Err(DeadlineExceeded));
    /// ```
    pub fn on(mut self, timer: &Timer) -> Self {
        self.timer = Some(timer.clone());
        self
    }

    /// Sets the clock, at the first poll: to the timer that the scope starts in a task, or to one that is polled beside the
    /// inside.
    fn wind(&mut self, cx: &Cx<'_>) -> Limit {
        let Some(at) = self.when.take().and_then(When::instant) else {
            return Limit::new(None, None);
        };
        let schedule = match self.timer.take() {
            Some(timer) => timer.schedule_at(at),
            None => Timer::global().schedule_at(at),
        };
        if frame::frame_of(cx.waker()).is_some() {
            return Limit::new(Some(at), Some(schedule));
        }
        self.foreign = Some(SenderFuture::new(schedule));
        Limit::new(Some(at), None)
    }
}

impl<F: Future> Future for WithDeadline<F> {
    type Output = Result<F::Output, DeadlineExceeded>;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: the inside is not moved, and the rest may be.
        let this = unsafe { self.get_unchecked_mut() };
        let limit = this.when.is_some().then(|| this.wind(cx));
        // SAFETY: it is pinned with this.
        let mut inside = unsafe { Pin::new_unchecked(&mut this.inside) };
        let polled = inside
            .as_mut()
            .poll(cx, || limit.unwrap_or_else(|| Limit::new(None, None)));
        match polled {
            Poll::Ready(Ended::Value(value)) => Poll::Ready(Ok(value)),
            Poll::Ready(Ended::Stopped(true)) => Poll::Ready(Err(DeadlineExceeded)),
            Poll::Ready(Ended::Stopped(false)) => scoped_future::stop_outside(cx),
            Poll::Pending if inside.is_over() => Poll::Pending,
            Poll::Pending => {
                let Some(timer) = &mut this.foreign else {
                    return Poll::Pending;
                };
                let Poll::Ready(Ok(())) = Pin::new(timer).poll(cx) else {
                    return Poll::Pending;
                };
                // SAFETY: nothing is moved.
                unsafe { inside.get_unchecked_mut() }.end();
                Poll::Ready(Err(DeadlineExceeded))
            }
        }
    }
}

impl<F: Future> fmt::Debug for WithDeadline<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithDeadline").finish_non_exhaustive()
    }
}

/// A timer, and the stop source of what it limits.
///
/// It is in flight until the timer has completed, and the link to the source outside was ended and passes no stop on. Until then
/// it is an await of the frame, so what it points at is valid. When the scope is left the timer is stopped. The link stays for
/// what was moved out of the scope, and is ended when that has no user any more, or with the frame's future.
#[repr(C)]
pub(super) struct Limit {
    /// First, so that its address is that of the whole. Linked to the token outside.
    relay: Relay,
    /// The scope that this is in. Dangling before it has begun.
    scope: NonNull<ContextScope>,
    at: Option<Instant>,
    /// One for the timer, until it has completed; one for the relay, until that is over; one for `close` while it runs. And
    /// [`CLOSED`], which `close` sets with its hold, unless nothing is in flight: then the party that gives the last hold up ends the
    /// scope. All are read-modify-writes that acquire and release, so that party sees what the others have done.
    holds: AtomicU8,
    /// Nothing is in flight, or all of it was asked to end. Set, by a swap, by the thread that asks.
    ended: AtomicBool,
    /// The scope was left, so the time does not matter any more. Stored by the thread that leaves it, and loaded by the one that the
    /// timer completes on, with relaxed ordering: where both happen at once either may be first.
    is_left: AtomicBool,
    /// Stops the timer.
    stop: InplaceStopSource,
    /// Taken when it begins. None where this watches no time.
    schedule: Option<TimerSchedule>,
    timer: MaybeUninit<Timing>,
    /// The timer was started.
    is_timed: bool,
}

/// The scope has no user any more.
const CLOSED: u8 = 0x80;
const LAST_OF_CLOSED: u8 = CLOSED + 1;

/// The operation of the timer.
type Timing = <TimerSchedule as Sender>::Operation<Expiry>;

// SAFETY: what others touch is made of atomics; the rest belongs to the thread that polls, or to the last user of the scope.
unsafe impl Send for Limit {}
// SAFETY: as above.
unsafe impl Sync for Limit {}

impl Limit {
    fn new(at: Option<Instant>, schedule: Option<TimerSchedule>) -> Self {
        Limit {
            relay: Relay::new(Limit::relay_over),
            scope: NonNull::dangling(),
            at,
            holds: AtomicU8::new(0),
            ended: AtomicBool::new(true),
            is_left: AtomicBool::new(false),
            stop: InplaceStopSource::new(),
            schedule,
            timer: MaybeUninit::uninit(),
            is_timed: false,
        }
    }

    /// # Safety
    ///
    /// It has begun, and is in flight or the caller is a user of the scope.
    unsafe fn frame(&self) -> NonNull<Header> {
        // SAFETY: the caller's promise.
        unsafe { self.scope.as_ref() }.frame()
    }

    /// Stops the timer, and ends the link to the source outside, if that was not done.
    ///
    /// # Safety
    ///
    /// It has begun, and the caller is a user of the scope, or has a hold.
    unsafe fn end(this: NonNull<Limit>) -> Transfer {
        // SAFETY: by the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.swap(true, AcqRel) {
            return Transfer::none();
        }
        // The caller keeps the source of this stop.
        let stopped = limit.stop.request_stop_later();
        // SAFETY: once, as above.
        stopped.and(unsafe { Relay::end(this.cast()) })
    }

    /// The timer has completed: the time has come, or it was stopped.
    ///
    /// # Safety
    ///
    /// It does so once. This may be gone when it returns.
    unsafe fn timer_over(this: NonNull<Limit>, expired: bool) -> Transfer {
        let mut resumed = Transfer::none();
        if expired {
            // SAFETY: the timer has its hold.
            let limit = unsafe { this.as_ref() };
            if !limit.is_left.load(Relaxed)
                && let Some(stopped) = limit.relay.request_stop(Why::DEADLINE.here())
            {
                resumed = stopped;
                // What does not listen may ask.
                // SAFETY: the frame counts this.
                resumed.append(unsafe { Header::poll_again(limit.frame()) });
            }
        }
        // SAFETY: the timer gives its hold up.
        resumed.and(unsafe { Limit::let_go(this) })
    }

    /// # Safety
    ///
    /// The relay is that of such a limit, and over.
    unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the relay comes first, and gives its hold up.
        unsafe { Limit::let_go(relay.cast()) }
    }

    /// # Safety
    ///
    /// The caller gives a hold up.
    unsafe fn let_go(this: NonNull<Limit>) -> Transfer {
        // SAFETY: the caller has a hold. With the last one the await ends, which the frame counts until then; and where the scope
        // has no user any more, nothing else ends that.
        unsafe {
            let (frame, scope) = (this.as_ref().frame(), this.as_ref().scope);
            match this.as_ref().holds.fetch_sub(1, AcqRel) {
                1 => scoped_future::end_await(frame),
                LAST_OF_CLOSED => {
                    scoped_future::end::<Limit>(scope);
                    scoped_future::end_await(frame)
                }
                _ => Transfer::none(),
            }
        }
    }
}

impl Change for Limit {
    unsafe fn begin(this: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context) {
        let place = this.as_ptr();
        // SAFETY: the caller's promise: no other thread knows it yet.
        unsafe {
            (*place).scope = scope;
            let Some(at) = (*place).at else { return };
            context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
            let Some(schedule) = (*place).schedule.take() else {
                return;
            };
            // In flight from here on.
            (*place).ended = AtomicBool::new(false);
            (*place).holds = AtomicU8::new(1);
            let polling = Polling::new(scope.as_ref().frame());
            polling.count_wait();
            scope.as_ref().set_stops(Stops::PassedOn(context.token));
            Relay::link(this.cast(), context.token);
            context.token = (*place).relay.token();
            if (*place).relay.stop_requested() {
                // Whatever comes is not the first.
                return;
            }
            if at <= Instant::now() {
                // Nothing listens yet.
                drop((*place).relay.request_stop(Why::DEADLINE.here()));
                return;
            }
            (*place).is_timed = true;
            // No other thread looks at it before the timer was started.
            (*place).holds = AtomicU8::new(2);
            (*place).timer.write(schedule.connect(Expiry { limit: this }));
            polling.resume_later(start(Pin::new_unchecked((*place).timer.assume_init_mut())));
        }
    }

    unsafe fn leave(this: NonNull<Self>) -> Transfer {
        // SAFETY: the caller's promise.
        let limit = unsafe { this.as_ref() };
        limit.is_left.store(true, Relaxed);
        if limit.is_timed {
            limit.stop.request_stop_later()
        } else {
            Transfer::none()
        }
    }

    unsafe fn abandon(this: NonNull<Self>) -> Transfer {
        // SAFETY: the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.load(Acquire) {
            return Transfer::none();
        }
        let stopped = match limit.is_left.load(Relaxed) {
            // What was moved out is asked to stop by itself. A scope that was forgotten inside is a user for good.
            true => Transfer::none(),
            // What goes on inside, though it is not awaited, does not wait for the time that was left.
            false => limit.relay.request_stop(Why::SCOPE_LEFT).unwrap_or_default(),
        };
        // SAFETY: as above. The stop that was passed on may have ended it.
        stopped.and(unsafe { Limit::end(this) })
    }

    unsafe fn close(this: NonNull<Self>) -> Leftover {
        // SAFETY: the caller's promise. The hold keeps it until it is given up, and so does the fact that nothing is in flight.
        unsafe {
            let held = (this.as_ref().holds)
                .fetch_update(AcqRel, Acquire, |holds| (holds != 0).then_some((holds + 1) | CLOSED))
                .is_ok();
            if !held {
                return Leftover::Over;
            }
            current::run_later(Limit::end(this)).run();
            match this.as_ref().holds.fetch_sub(1, AcqRel) {
                LAST_OF_CLOSED => Leftover::Ended,
                _ => Leftover::InFlight,
            }
        }
    }

    fn has_stopped(&self) -> bool {
        self.relay.registry().why() == Some(Why::DEADLINE.here())
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if self.is_timed {
            // SAFETY: it was started and has completed, since the scope has no user any more. It is dropped this once.
            unsafe { self.timer.assume_init_drop() };
        }
    }
}

/// The receiver of the timer.
struct Expiry {
    limit: NonNull<Limit>,
}

// SAFETY: what it does with the limit is for any thread, and one completes it.
unsafe impl Send for Expiry {}

impl Expiry {
    fn over(self, expired: bool) -> Transfer {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: this is the one completion.
        unsafe { Limit::timer_over(this.limit, expired) }
    }
}

impl Receiver<(), Infallible> for Expiry {
    type Env = ExpiryEnv;

    fn env(&self) -> ExpiryEnv {
        // SAFETY: the limit is there until the timer has completed, which is how long its environment is used.
        ExpiryEnv(unsafe { self.limit.as_ref().stop.token().extend() })
    }

    fn set_value(self, (): ()) -> Transfer {
        self.over(true)
    }

    fn set_error(self, error: Infallible) -> Transfer {
        match error {}
    }

    fn set_stopped(self) -> Transfer {
        self.over(false)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        drop(payload);
        self.over(false)
    }
}

impl Drop for Expiry {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: it was not completed, so this is the one completion.
        unsafe { Limit::timer_over(self.limit, false) }.run();
    }
}

/// The environment of the timer.
#[derive(Clone, Copy, Debug)]
struct ExpiryEnv(InplaceStopToken<'static>);

impl Env for ExpiryEnv {
    type StopToken = InplaceStopToken<'static>;
    type Scheduler = NoScheduler;

    fn stop_token(&self) -> InplaceStopToken<'static> {
        self.0
    }

    fn scheduler(&self) -> NoScheduler {
        NoScheduler
    }

    fn visit(&self, _: core::any::TypeId, _: &mut dyn FnMut(&dyn core::any::Any)) {}
}
