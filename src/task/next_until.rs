//! Results of a group until a deadline: partial results.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Cx, Poll, ready};
use std::time::Instant;

use super::cancellation::is_cancelled;
use super::children::group::{Next, TaskGroup};
use super::deadline::{DeadlineExceeded, WithDeadline, with_deadline_at};
use super::frame::Site;
use crate::scheduler::Timer;
use crate::stop::Reason;

impl<T: Send + 'static> TaskGroup<T> {
    /// Returns the value of the next child, as [`next`](TaskGroup::next) does, until a deadline. After the deadline the group is
    /// cancelled, and this returns the values that are left: those of children that have ended, and of those that still return one.
    ///
    /// So a loop over this has all that was ready in time, and ends after the last child:
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Reason, Task};
    /// use std::time::{Duration, Instant};
    ///
    /// let search = Task::new(task::group(async |group| {
    ///     for mirror in ["near", "far", "lost"] {
    ///         group.spawn(async move {
    ///             if mirror == "lost" {
    ///                 task::sleep(Duration::MAX).await;
    ///             }
    ///             mirror
    ///         });
    ///     }
    ///     let deadline = Instant::now() + Duration::from_millis(20);
    ///     let mut answers = Vec::new();
    ///     while let Some(answer) = group.next_until(deadline).await {
    ///         answers.push(answer);
    ///     }
    ///     (answers, group.cancellation_reason())
    /// }));
    /// let (mut answers, reason) = sync_wait(search).unwrap();
    /// answers.sort();
    /// assert_eq!(answers, ["far", "near"]);
    /// // The deadline has passed. `None` if all children had ended before.
    /// assert_eq!(reason, Some(Reason::Deadline));
    /// ```
    ///
    /// The deadline holds while this is awaited. If it passes at another time, the next call cancels the group. The body itself is
    /// not cancelled, and the children do not see the deadline as [theirs](super::deadline): put the whole group in
    /// [`with_deadline`](super::with_deadline) for that, and take the results with [`next_ended`](TaskGroup::next_ended).
    ///
    /// For children that return `Result`, write `group.next_until(deadline).await.transpose()?`.
    ///
    /// Dropping it loses no result.
    ///
    /// # Panics
    ///
    /// With the panic of the child, if it has panicked. Panics where [`Timer::global`] does.
    ///
    /// # Cancellation
    ///
    /// Children are cancelled with [`Reason::Deadline`]. A child that does not heed this is waited for. A cancelled task stops here,
    /// as at every `.await` of a sender that stops.
    ///
    /// # Allocation
    ///
    /// None if a result is there. Otherwise as for [`with_deadline`](super::with_deadline).
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn next_until(&self, deadline: Instant) -> NextUntil<'_, T> {
        NextUntil {
            group: self,
            deadline,
            timer: None,
            site: Site::here(),
            stage: Stage::Unpolled,
        }
    }
}

/// A future of the next child's value until a deadline, created by [`TaskGroup::next_until`].
#[must_use = "futures do nothing until they are awaited"]
pub struct NextUntil<'g, T> {
    group: &'g TaskGroup<T>,
    deadline: Instant,
    timer: Option<Timer>,
    site: Site,
    /// Structurally pinned.
    stage: Stage<'g, T>,
}

enum Stage<'g, T> {
    Unpolled,
    /// Waits, with a timer.
    Limited(WithDeadline<Next<'g, T>>),
    /// The group or the task is cancelled, so the deadline no longer matters.
    Cancelled(Next<'g, T>),
}

impl<T> NextUntil<'_, T> {
    /// Uses this timer instead of [`Timer::global`].
    ///
    /// ```
    /// use bowline::scheduler::{RunLoop, Timer};
    /// use bowline::task::{self, Task};
    /// use std::time::{Duration, Instant};
    ///
    /// // The timer runs on the same loop, so no other thread is involved.
    /// let run_loop = RunLoop::new();
    /// let timer = Timer::on(&run_loop);
    /// let task = Task::new(task::group(async move |group| {
    ///     group.spawn(task::sleep(Duration::MAX));
    ///     let soon = Instant::now() + Duration::from_millis(1);
    ///     group.next_until(soon).on(&timer).await
    /// }));
    /// assert_eq!(run_loop.run_until(task).unwrap(), None);
    /// ```
    pub fn on(mut self, timer: &Timer) -> Self {
        self.timer = Some(timer.clone());
        self
    }
}

impl<T: Send + 'static> Future for NextUntil<'_, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<T>> {
        // SAFETY: only the stage is pinned. It is replaced, which drops it in place, and not moved.
        let this = unsafe { self.get_unchecked_mut() };
        let site = this.site;
        loop {
            match &mut this.stage {
                Stage::Unpolled => {
                    let is_over = this.deadline <= Instant::now();
                    if is_over {
                        this.group.cancel_all_for(Reason::Deadline);
                    }
                    // A result that is there needs no timer.
                    let mut next = this.group.next_at(site);
                    if let Poll::Ready(value) = Pin::new(&mut next).poll(cx) {
                        return Poll::Ready(value);
                    }
                    if is_over || is_cancelled() {
                        this.stage = Stage::Cancelled(next);
                        return Poll::Pending;
                    }
                    drop(next);
                    let mut limited = with_deadline_at(site, this.deadline, this.group.next_at(site));
                    if let Some(timer) = this.timer.take() {
                        limited = limited.on(&timer);
                    }
                    this.stage = Stage::Limited(limited);
                }
                Stage::Limited(limited) => {
                    // SAFETY: the stage is structurally pinned.
                    match ready!(unsafe { Pin::new_unchecked(limited) }.poll(cx)) {
                        Ok(value) => return Poll::Ready(value),
                        Err(DeadlineExceeded) => {
                            this.group.cancel_all_for(Reason::Deadline);
                            this.stage = Stage::Cancelled(this.group.next_at(site));
                        }
                    }
                }
                Stage::Cancelled(next) => return Pin::new(next).poll(cx),
            }
        }
    }
}

crate::opaque!(['g, T] NextUntil<'g, T>);
