//! Awaiting the schedule sender of a pool. In a task whose home is that pool, the frame itself is queued.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use super::await_sender::{ValueFuture, sent_elsewhere};
use crate::scheduler::PoolSchedule;
use crate::stop::StopToken;
use crate::task::frame::{Header, Polling, Site, Turn};

/// An awaited schedule sender of a [`ThreadPool`](crate::scheduler::ThreadPool), created by `.await` or by
/// [`IntoFuture::into_future`].
///
/// In a task on that pool the frame itself is queued, without an operation and without an allocation. Everywhere else, and at
/// another priority, this is a [`ValueFuture`].
///
/// # Completions
///
/// `()`, in a later turn of the task. A stop that was requested by then stops the task.
///
/// # Panics
///
/// If it is polled in another task than at its first poll.
///
/// # Cancellation
///
/// The stop token is checked when the turn has come. If this is dropped before, the frame stays queued, and the task is polled
/// once more.
///
/// # Allocation
///
/// None on the pool of the task; otherwise that of [`ValueFuture`].
#[must_use = "futures do nothing until they are awaited"]
pub struct ScheduleFuture(ScheduleStage, Site);

/// ```text
///  Unstarted ──polled, the pool is the home──▶ Queued ──polled in a later turn──▶ Over
///      └──────polled elsewhere──▶ Sender ◀──polled again in the same turn─┘
/// ```
enum ScheduleStage {
    Unstarted(PoolSchedule),
    /// The frame was queued in this turn.
    Queued(PoolSchedule, Turn),
    Sender(ValueFuture<PoolSchedule>),
    Over,
}

impl ScheduleFuture {
    /// Polls the sender instead: outside of the task's own poll, on another pool, or twice in one turn. Code that polls twice
    /// may spin for the value without ending the turn, so another thread must provide it.
    #[cold]
    #[inline(never)]
    fn poll_sender(&mut self, cx: &mut Cx<'_>) -> Poll<()> {
        if let ScheduleStage::Queued(_, turn) = self.0
            && Header::current().is_none_or(|current| !turn.is_of(current))
        {
            sent_elsewhere();
        }
        if let ScheduleStage::Unstarted(schedule) | ScheduleStage::Queued(schedule, ..) = self.0 {
            self.0 = ScheduleStage::Sender(ValueFuture::at(self.1, schedule));
        }
        match &mut self.0 {
            ScheduleStage::Sender(future) => Pin::new(future).poll(cx),
            _ => Poll::Pending,
        }
    }
}

impl Future for ScheduleFuture {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        if let Some(polling) = Polling::with_waker_of(cx) {
            match self.0 {
                ScheduleStage::Unstarted(schedule) if polling.context().placement.home.is_target_of(&schedule) => {
                    self.0 = ScheduleStage::Queued(schedule, polling.requeue());
                    return Poll::Pending;
                }
                ScheduleStage::Queued(_, turn) if turn.is_of(polling.frame()) && turn != polling.turn() => {
                    self.0 = ScheduleStage::Over;
                    if polling.context().token.stop_requested() {
                        polling.stop_here();
                        return Poll::Pending;
                    }
                    return Poll::Ready(());
                }
                _ => {}
            }
        }
        self.poll_sender(cx)
    }
}

impl IntoFuture for PoolSchedule {
    type Output = ();
    type IntoFuture = ScheduleFuture;

    #[cfg_attr(feature = "inspect", track_caller)]
    #[inline]
    fn into_future(self) -> ScheduleFuture {
        ScheduleFuture(ScheduleStage::Unstarted(self), Site::here())
    }
}

crate::opaque!([] ScheduleFuture);
