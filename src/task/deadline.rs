//! Deadlines: work that is cancelled at a given time.

use core::error::Error;
use core::fmt;
use core::future::{Future, IntoFuture};
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};
use core::time::Duration;
use std::time::Instant;

use super::awaiting::SenderFuture;
use super::cancellation::in_context;
use super::deadline_scope::DeadlineScope;
use super::frame::{self, Site};
use super::strand::ScopedFuture;
use crate::scheduler::{Timer, TimerSchedule};

/// Returns the deadline of the current task, the earliest of those that are nested. Returns `None` if it has none, and outside
/// of tasks.
#[inline]
pub fn deadline() -> Option<Instant> {
    in_context(|context| context.deadline).flatten()
}

/// Returns the time left until the [`deadline`] of the current task: zero after it has passed, `None` without one.
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

/// Runs a future, or awaits a sender, and cancels it when the deadline passes.
///
/// A deadline is absolute and inherited: everything awaited inside sees it as its [`deadline`], tasks and groups included. The
/// earliest of nested deadlines applies. When it passes, the inside is cancelled with
/// [`Reason::Deadline`](super::Reason::Deadline); the rest of the task continues.
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
/// If the deadline has already passed, the inside still runs, cancelled from the start. A deadline beyond what `Instant` can
/// represent never fires.
///
/// # Completions
///
/// - The output, even if it comes after the deadline.
/// - [`DeadlineExceeded`], if something awaited inside stopped because this deadline had passed, or if the operation was dropped
///   for it.
/// - If it stopped for another reason, which came first, the task stops. So an outer deadline is reported by its own future,
///   and a cancellation of the task is not reported as a deadline.
///
/// # Panics
///
/// The future's panic unwinds. Panics where [`Timer::global`] does. Panics if it is polled in another task than at its
/// first poll.
///
/// # Cancellation
///
/// Cancellation is cooperative. Senders stop if they listen to their stop token, as those of this crate do. Futures of other crates
/// do not listen. If the operation waits for such futures alone when the deadline has passed, it is dropped. A
/// [`shield`](super::shield) inside protects them, and a [handler](super::with_cancellation_handler) inside ends them its own way.
///
/// A cancellation of the task reaches the inside, and operations moved out of it. The end of the inside stops the timer, and
/// the task ends after the timer has completed.
///
/// **Outside of a task**, and under a waker of another executor inside a task, nothing inside listens. There the pending future
/// is dropped when the deadline passes, and the error is returned.
///
/// # Allocation
///
/// None in a task, whose frame holds the timer; one elsewhere. The future may borrow, and need not be `Send`.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn with_deadline<F: IntoFuture>(deadline: Instant, operation: F) -> WithDeadline<F::IntoFuture> {
    WithDeadline::at(Site::here(), When::At(deadline), operation.into_future())
}

/// Runs a future, or awaits a sender, with a deadline relative to its first poll: see [`with_deadline`].
///
/// A duration beyond what `Instant` can represent, such as [`Duration::MAX`], is no limit.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, DeadlineExceeded, Task};
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// let work = Task::new(async {
///     task::with_timeout(Duration::from_secs(60), async {
///         // The inner deadline is the earlier one, and reports the error.
///         let inner = task::with_timeout(Duration::from_millis(1), never::<(), Infallible>()).await;
///         assert_eq!(inner, Err(DeadlineExceeded));
///         assert!(!task::is_cancelled());
///     })
///     .await
/// });
/// assert_eq!(sync_wait(work).unwrap(), Ok(()));
/// ```
#[cfg_attr(feature = "inspect", track_caller)]
pub fn with_timeout<F: IntoFuture>(duration: Duration, operation: F) -> WithDeadline<F::IntoFuture> {
    WithDeadline::at(Site::here(), When::After(duration), operation.into_future())
}

/// Does what [`with_deadline`] does, for an await at `site`.
pub(super) fn with_deadline_at<F: Future>(site: Site, deadline: Instant, operation: F) -> WithDeadline<F> {
    WithDeadline::at(site, When::At(deadline), operation)
}

/// The error of [`with_deadline`] and [`with_timeout`]: the deadline has passed, and the work stopped because of it.
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
    /// The timer, polled beside the inside if there is no frame that it could wake.
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
    /// Returns `None` if the time is beyond what `Instant` can represent: such a deadline never passes.
    fn instant(self) -> Option<Instant> {
        match self {
            When::At(at) => Some(at),
            When::After(duration) => Instant::now().checked_add(duration),
        }
    }
}

impl<F: Future> WithDeadline<F> {
    /// Creates the future for an await at `site`.
    fn at(site: Site, when: When, future: F) -> Self {
        WithDeadline {
            inside: ScopedFuture::at(site, future),
            foreign: None,
            when: Some(when),
            timer: None,
            _pinned: PhantomPinned,
        }
    }

    /// Uses this timer instead of [`Timer::global`].
    ///
    /// ```
    /// use bowline::scheduler::{RunLoop, Timer};
    /// use bowline::task::{self, DeadlineExceeded, Task};
    /// use bowline::never;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    ///
    /// // The timer runs on the same loop, so no other thread is involved.
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

    /// Creates the timer at the first poll: as part of the scope in a task, or to be polled beside the inside elsewhere.
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
        // SAFETY: `inside` is not moved; the other fields are not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        let limit = this.when.is_some().then(|| this.wind(cx));
        // SAFETY: `inside` is structurally pinned.
        let mut inside = unsafe { Pin::new_unchecked(&mut this.inside) };
        let polled = inside
            .as_mut()
            .poll(cx, || limit.unwrap_or_else(|| DeadlineScope::new(None, None)));
        match polled {
            Poll::Ready(value) => Poll::Ready(value.ok_or(DeadlineExceeded)),
            Poll::Pending if inside.is_over() => Poll::Pending,
            // Outside of a task the timer is polled here, and its expiry drops the future: nothing inside hears a stop.
            Poll::Pending => {
                let Some(timer) = &mut this.foreign else {
                    return Poll::Pending;
                };
                let Poll::Ready(Ok(())) = Pin::new(timer).poll(cx) else {
                    return Poll::Pending;
                };
                // SAFETY: `end` drops the future in place.
                unsafe { inside.get_unchecked_mut() }.end();
                Poll::Ready(Err(DeadlineExceeded))
            }
        }
    }
}

crate::opaque!([F: Future] WithDeadline<F>);
