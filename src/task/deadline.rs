//! Work that is to be over at a time.

use core::cell::Cell;
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

use super::await_sender::SenderFuture;
use super::cancellation::in_context;
use super::context::Context;
use super::frame::{self, Header};
use super::inside::{self, Ended, Inside};
use super::relay::Relay;
use super::unit::{Attached, AttachedVtable};
use super::wait::wait_until;
use crate::scheduler::{Timer, TimerSchedule};
use crate::sender::stage::container_of;
use crate::stop::{InplaceStopSource, InplaceStopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::{Env, NoScheduler, Operation, Panic, Receiver, Sender, Transfer};

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
/// A cancellation of the task reaches the inside as always. When the inside has ended, the timer is stopped, and waited for.
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
    /// First, so that it is dropped before what stops it.
    inside: Inside<F>,
    clock: Clock,
    /// Taken by the first poll.
    when: Option<When>,
    timer: Option<Timer>,
    /// How the inside has ended, while the timer has not.
    ended: Option<Result<F::Output, Failed>>,
    _pinned: PhantomPinned,
}

#[derive(Clone, Copy, Debug)]
enum When {
    At(Instant),
    After(Duration),
}

/// Why there is no output.
enum Failed {
    Exceeded,
    Stopped,
}

/// Who watches the time.
enum Clock {
    /// Nobody, yet or any more; or there is no limit.
    Nobody,
    /// A timer that cancels the inside, in a task.
    Own(Limit),
    /// A timer that is awaited beside the inside, elsewhere.
    Foreign(SenderFuture<TimerSchedule>),
}

impl<F: Future> WithDeadline<F> {
    fn new(when: When, future: F) -> Self {
        WithDeadline {
            inside: Inside::new(future),
            clock: Clock::Nobody,
            when: Some(when),
            timer: None,
            ended: None,
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

    /// Chooses a clock, at the first poll. Returns when the deadline is.
    fn wind(&mut self, cx: &Cx<'_>) -> Option<Instant> {
        let at = match self.when.take()? {
            When::At(at) => at,
            When::After(duration) => Instant::now().checked_add(duration)?,
        };
        let schedule = match self.timer.take() {
            Some(timer) => timer.schedule_at(at),
            None => Timer::global().schedule_at(at),
        };
        self.clock = match frame::frame_of(cx.waker()) {
            Some(frame) => Clock::Own(Limit::new(frame, at, schedule)),
            None => Clock::Foreign(SenderFuture::new(schedule)),
        };
        Some(at)
    }
}

impl<F: Future> Future for WithDeadline<F> {
    type Output = Result<F::Output, DeadlineExceeded>;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        // SAFETY: what is pinned is not moved: the inside, and the clock once it runs.
        let this = unsafe { self.get_unchecked_mut() };
        if this.ended.is_none() {
            if this.inside.is_over() {
                return Poll::Pending;
            }
            let at = this.wind(cx);
            let clock = &mut this.clock;
            // SAFETY: it is pinned with this.
            let mut inside = unsafe { Pin::new_unchecked(&mut this.inside) };
            let polled = inside.as_mut().poll(cx, |_, context| {
                if let Some(at) = at {
                    context.deadline = Some(context.deadline.map_or(at, |outer| outer.min(at)));
                }
                if let Clock::Own(limit) = clock {
                    // SAFETY: it is pinned with this, whose first poll this is, in the frame that it was made for.
                    unsafe { Limit::begin(NonNull::from(limit), context) };
                }
            });
            match (polled, &mut this.clock) {
                (Poll::Ready(Ended::Value(value)), _) => this.ended = Some(Ok(value)),
                (Poll::Ready(Ended::Stopped), Clock::Own(limit)) if limit.has_expired() => {
                    this.ended = Some(Err(Failed::Exceeded));
                }
                (Poll::Ready(Ended::Stopped), _) => this.ended = Some(Err(Failed::Stopped)),
                (Poll::Pending, Clock::Foreign(timer)) => {
                    // SAFETY: it is pinned with this.
                    let Poll::Ready(Ok(())) = unsafe { Pin::new_unchecked(timer) }.poll(cx) else {
                        return Poll::Pending;
                    };
                    // SAFETY: nothing is moved.
                    unsafe { inside.get_unchecked_mut() }.end();
                    this.ended = Some(Err(Failed::Exceeded));
                }
                (Poll::Pending, _) => return Poll::Pending,
            }
        }
        match &mut this.clock {
            Clock::Own(limit) => {
                // SAFETY: it was begun, and is pinned with this.
                if !unsafe { Limit::end(NonNull::from(limit)) } {
                    if frame::frame_of(cx.waker()).is_none() {
                        // It wakes the task where it began. Who polls it now has to look again.
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
            }
            Clock::Foreign(_) => this.clock = Clock::Nobody,
            Clock::Nobody => {}
        }
        match this.ended.take() {
            Some(Ok(value)) => Poll::Ready(Ok(value)),
            Some(Err(Failed::Exceeded)) => Poll::Ready(Err(DeadlineExceeded)),
            Some(Err(Failed::Stopped)) => inside::stop_outside(),
            None => Poll::Pending,
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
/// The frame counts it as an await, and the scope around as one that uses it, from its beginning until it is over: so what it
/// is linked to is there. It is over when the timer has completed and no stop is being passed on.
#[repr(C)]
struct Limit {
    /// First, so that its address is that of the whole. It is linked to the token outside.
    relay: Relay,
    frame: NonNull<Header>,
    /// That outside, which is there until this is over. None before it was begun.
    context: Cell<Option<NonNull<Context>>>,
    at: Instant,
    /// Has it end where the future of the frame is gone, but not this: it was forgotten, or sent away.
    attached: Attached,
    /// One for the timer, until it has completed; one for the relay, until that is over. Given back with release; the last
    /// one acquires, and then all is over.
    holds: AtomicU8,
    /// Set by the first who ends it: who polls, or drops it; or the frame.
    ended: AtomicBool,
    /// `end` is running, in a poll. Only looked at by the thread that polls the frame.
    ending: Cell<bool>,
    /// It is over, and the memory may go. Set, with release, by whoever gave the last hold back; it touches nothing of this
    /// afterwards.
    over: AtomicBool,
    /// Stops the timer.
    stop: InplaceStopSource,
    /// Taken when it is begun.
    schedule: Option<TimerSchedule>,
    timer: MaybeUninit<Timing>,
    /// The timer was started.
    is_timed: bool,
    _pinned: PhantomPinned,
}

/// The operation of the timer.
type Timing = <TimerSchedule as Sender>::Operation<Expiry>;

// SAFETY: what others touch is made of atomics; the rest belongs to who polls or drops it.
unsafe impl Send for Limit {}
// SAFETY: as above.
unsafe impl Sync for Limit {}

impl Limit {
    fn new(frame: NonNull<Header>, at: Instant, schedule: TimerSchedule) -> Self {
        Limit {
            relay: Relay::new(Limit::relay_over),
            frame,
            context: Cell::new(None),
            at,
            attached: Attached::new(&AttachedVtable {
                leave: Limit::leave,
                running: None,
            }),
            holds: AtomicU8::new(1),
            ended: AtomicBool::new(false),
            ending: Cell::new(false),
            over: AtomicBool::new(false),
            stop: InplaceStopSource::new(),
            schedule: Some(schedule),
            timer: MaybeUninit::uninit(),
            is_timed: false,
            _pinned: PhantomPinned,
        }
    }

    /// Links it to the token of the context, puts its own there, and starts the timer.
    ///
    /// # Safety
    ///
    /// This is what the poll of its frame is running, with the context that this was copied from. It is pinned, and this is
    /// called once.
    unsafe fn begin(this: NonNull<Limit>, context: &mut Context) {
        let place = this.as_ptr();
        // SAFETY: by the caller's promise: nobody else knows it yet.
        unsafe {
            let frame = (*place).frame;
            let outside = Header::context(frame);
            outside.as_ref().enter();
            (*place).context.set(Some(outside));
            Header::count_wait(frame);
            Attached::attach(NonNull::new_unchecked(&raw mut (*place).attached), frame);
            Relay::link(this.cast(), context.token);
            context.token = (*place).relay.token();
            let Some(schedule) = (*place).schedule.take() else {
                return;
            };
            if (*place).relay.stop_requested() {
                // Whatever comes is not the first.
                return;
            }
            if (*place).at <= Instant::now() {
                // Nobody listens yet.
                drop((*place).relay.request_stop(Why::DEADLINE.here()));
                return;
            }
            (*place).is_timed = true;
            // Nobody else looks at it before the timer was started.
            (*place).holds = AtomicU8::new(2);
            (*place).timer.write(schedule.connect(Expiry { limit: this }));
            let started = Pin::new_unchecked((*place).timer.assume_init_mut()).start();
            Header::resume_later(frame, started);
        }
    }

    /// Whether it was this that stopped what is inside.
    fn has_expired(&self) -> bool {
        self.relay.registry().why() == Some(Why::DEADLINE.here())
    }

    fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Ends it, if nobody has; says whether it is over. Where it is not, the frame is woken when it is.
    ///
    /// # Safety
    ///
    /// It was begun, and the caller polls it.
    unsafe fn end(this: NonNull<Limit>) -> bool {
        // SAFETY: the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.load(Acquire) || !Header::is_current(limit.frame) {
            // Elsewhere, or for the second time. The frame is not done before this is over.
            if !limit.is_over() {
                // SAFETY: as above.
                unsafe { Limit::end_anywhere(this) }.run();
            }
            return limit.is_over();
        }
        limit.attached.detach();
        limit.ending.set(true);
        // SAFETY: this is what the frame's poll is running. The memory is ours.
        unsafe {
            let resumed = Limit::end_anywhere(this);
            Header::resume_later(limit.frame, resumed);
        }
        if limit.ending.replace(false) {
            return false;
        }
        // SAFETY: as above; it was counted, and is over.
        unsafe {
            Header::uncount_wait(limit.frame);
            limit.exit();
        }
        true
    }

    /// Stops the timer, and lets go of the source outside, if nobody has.
    ///
    /// # Safety
    ///
    /// It was begun, and is there until this returns.
    unsafe fn end_anywhere(this: NonNull<Limit>) -> Transfer {
        // SAFETY: by the caller's promise.
        let limit = unsafe { this.as_ref() };
        if limit.ended.swap(true, AcqRel) {
            return Transfer::none();
        }
        // The relay's hold keeps the source of this stop.
        let stopped = limit.stop.request_stop_later();
        // SAFETY: once, as above.
        stopped.and(unsafe { Relay::end(this.cast()) })
    }

    /// The scope around need not wait any more.
    ///
    /// # Safety
    ///
    /// It was begun, and this is called once.
    unsafe fn exit(&self) {
        if let Some(context) = self.context.get() {
            // SAFETY: it is there until this is over.
            unsafe { context.as_ref() }.exit();
        }
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
            if let Some(stopped) = limit.relay.request_stop(Why::DEADLINE.here()) {
                resumed = stopped;
                // What does not listen may ask.
                // SAFETY: it counts this.
                resumed.append(unsafe { Header::poll_again(limit.frame) });
            }
        }
        // SAFETY: the timer gives its hold back.
        resumed.and(unsafe { Limit::let_go(this) })
    }

    /// # Safety
    ///
    /// The relay is that of such a limit, and over.
    unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the relay comes first, and gives its hold back.
        unsafe { Limit::let_go(relay.cast()) }
    }

    /// # Safety
    ///
    /// The caller gives a hold back.
    unsafe fn let_go(this: NonNull<Limit>) -> Transfer {
        // SAFETY: the caller has a hold.
        let limit = unsafe { this.as_ref() };
        if limit.holds.fetch_sub(1, AcqRel) != 1 {
            return Transfer::none();
        }
        let frame = limit.frame;
        if Header::is_current(frame) && limit.ending.replace(false) {
            // `end` is beneath us, and does the rest.
            limit.over.store(true, Release);
            return Transfer::none();
        }
        // SAFETY: that was the last hold.
        unsafe { limit.exit() };
        limit.over.store(true, Release);
        // SAFETY: the frame counts this.
        unsafe { Header::end_wait(frame, Context::is_here) }
    }

    /// # Safety
    ///
    /// It is attached.
    unsafe fn leave(attached: NonNull<Attached>) -> Transfer {
        // SAFETY: it is a field of a limit, which is there until it has left.
        let this = unsafe { container_of!(attached, Limit, attached) };
        // SAFETY: as above.
        let limit = unsafe { this.as_ref() };
        // What goes on inside, though nobody awaits it, is not to wait for the time that was left.
        let stopped = limit.relay.request_stop(Why::SCOPE_LEFT).unwrap_or_default();
        // SAFETY: as above. Whoever has it waits until it is over.
        let ended = unsafe { Limit::end_anywhere(this) };
        limit.attached.left();
        stopped.and(ended)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if self.context.get().is_none() {
            return;
        }
        // While it is not over, the frame is not done, and so it may be attached.
        self.attached.detach();
        if !self.is_over() {
            // SAFETY: it was begun, and is there.
            unsafe { Limit::end_anywhere(NonNull::from(&mut *self)) }.run();
            wait_until(|| self.is_over());
        }
        if self.is_timed {
            // SAFETY: it was started, has completed, and is dropped this once, in place.
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
