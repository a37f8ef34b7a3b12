//! Work that is to be over at a time.

use core::error::Error;
use core::fmt;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};
use core::time::Duration;
use std::time::Instant;

use super::awaiting::await_sender::SenderFuture;
use super::cancellation::in_context;
use super::deadline_scope::DeadlineScope;
use super::frame;
use super::strand::scoped_future::{self, Ended, ScopedFuture};
use crate::scheduler::{Timer, TimerSchedule};

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
        f.write_str("deadline exceeded")
    }
}

impl Error for DeadlineExceeded {}

/// The future of [`with_deadline`] and [`with_timeout`].
#[must_use = "futures do nothing until they are awaited"]
pub struct WithDeadline<F: Future> {
    inside: ScopedFuture<F, DeadlineScope>,
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
    fn wind(&mut self, cx: &Cx<'_>) -> DeadlineScope {
        let Some(at) = self.when.take().and_then(When::instant) else {
            return DeadlineScope::new(None, None);
        };
        let schedule = match self.timer.take() {
            Some(timer) => timer.schedule_at(at),
            None => Timer::global().schedule_at(at),
        };
        if frame::frame_of(cx.waker()).is_some() {
            return DeadlineScope::new(Some(at), Some(schedule));
        }
        self.foreign = Some(SenderFuture::new(schedule));
        DeadlineScope::new(Some(at), None)
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
            .poll(cx, || limit.unwrap_or_else(|| DeadlineScope::new(None, None)));
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
