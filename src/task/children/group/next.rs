//! The futures of a group's methods.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context as Cx, Poll, Waker, ready};

use super::core::GroupRef;
use super::results::NextStep;
use super::wait::{Given, Granted, GroupWait, WaitFor};
use crate::Completion;
use crate::stop::StopToken;
use crate::task::awaiting::SenderFuture;
use crate::task::children::TaskError;
use crate::task::frame::{Activity, Awaited, Polling, Site, Stopping};

/// A wait in a group, by a sender that is created lazily.
#[derive(Default)]
pub(super) struct Waiting(pub(super) Option<SenderFuture<GroupWait>>, pub(super) Site);

impl Waiting {
    pub(super) fn poll(&mut self, core: &GroupRef, kind: WaitFor, cx: &mut Cx<'_>) -> Poll<Granted> {
        // A deadline may have ended the wait before. The task waits again, outside of it.
        self.0.take_if(|wait| wait.has_stopped());
        let wait = self.0.get_or_insert_with(|| {
            let core = core.clone();
            SenderFuture::at(self.1, GroupWait { core, kind })
        });
        let Poll::Ready(Ok(granted)) = Pin::new(wait).poll(cx) else {
            // The sender has noted its type, which tells a user nothing.
            Activity::with(|activity| activity.awaits_what(kind.what(), self.1));
            return Poll::Pending;
        };
        self.0 = None;
        Poll::Ready(granted)
    }

    /// Polls for the next ended child.
    ///
    /// # Safety
    ///
    /// `T` is the children's output.
    pub(super) unsafe fn poll_next<T>(
        &mut self,
        core: &GroupRef,
        cx: &mut Cx<'_>,
    ) -> Poll<Option<Completion<T, Infallible>>> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.next_drained(core) {
                Some(ended) => Poll::Ready(Some(ended)),
                None => self.poll_next_slowly(core, cx),
            }
        }
    }

    /// Takes the next of the ended children that were drained before. There are many of them at a time.
    ///
    /// # Safety
    ///
    /// As for [`poll_next`](Waiting::poll_next).
    #[inline(always)]
    unsafe fn next_drained<T>(&self, core: &GroupRef) -> Option<Completion<T, Infallible>> {
        if self.0.is_some() {
            return None;
        }
        // SAFETY: the child is done and owned, and the caller names its output.
        core.next_drained().map(|child| unsafe { child.take() })
    }

    /// Does what [`poll_next`](Waiting::poll_next) does when all children that were drained before are taken.
    ///
    /// # Safety
    ///
    /// As for [`poll_next`](Waiting::poll_next).
    #[cold]
    #[inline(never)]
    unsafe fn poll_next_slowly<T>(
        &mut self,
        core: &GroupRef,
        cx: &mut Cx<'_>,
    ) -> Poll<Option<Completion<T, Infallible>>> {
        let child = match self.0 {
            None => match core.try_next(Polling::with_waker_of(cx)) {
                NextStep::Ended(child) => Given::Child(child),
                NextStep::Nothing => Given::Nothing,
                NextStep::Wait => {
                    core.wanted_here();
                    Activity::with(|activity| activity.awaits_what(Awaited::NEXT_CHILD, self.1));
                    return Poll::Pending;
                }
                NextStep::Listen => ready!(self.poll(core, WaitFor::Next, cx)).take(),
            },
            Some(_) => ready!(self.poll(core, WaitFor::Next, cx)).take(),
        };
        Poll::Ready(match child {
            // SAFETY: the child is done and owned, and the caller names its output.
            Given::Child(child) => Some(unsafe { child.take() }),
            _ => None,
        })
    }
}

/// Stops the await of the frame that this thread polls, if that is cancelled.
pub(super) fn stop_if_cancelled(waker: &Waker) -> bool {
    Polling::with(|polling| match polling {
        Some(polling) if polling.context().token.stop_requested() => {
            Stopping::stop(polling, waker);
            true
        }
        _ => false,
    })
}

/// A future of the next child's value, created by [`TaskGroup::next`](super::TaskGroup::next).
#[must_use = "futures do nothing until they are awaited"]
pub struct Next<'g, T> {
    core: &'g GroupRef,
    waiting: Waiting,
    _value: PhantomData<fn() -> T>,
}

impl<'g, T> Next<'g, T> {
    /// Creates the future for a group whose children have the output `T`.
    pub(super) fn new(core: &'g GroupRef, site: Site) -> Self {
        Next {
            core,
            waiting: Waiting(None, site),
            _value: PhantomData,
        }
    }

    /// Continues a poll that has taken this child, which has no value, or found none that was drained before.
    #[cold]
    #[inline(never)]
    fn poll_slowly(&mut self, mut taken: Option<Completion<T, Infallible>>, cx: &mut Cx<'_>) -> Poll<Option<T>> {
        loop {
            let ended = match taken.take() {
                None => ready!(self.poll_ended(cx)),
                taken => taken,
            };
            match ended {
                None => return Poll::Ready(None),
                Some(Completion::Value(value)) => return Poll::Ready(Some(value)),
                Some(Completion::Panicked(payload)) => payload.resume(),
                // The child has stopped, and has no value. If that is because the task is cancelled, the caller stops too.
                Some(_) if stop_if_cancelled(cx.waker()) => return Poll::Pending,
                Some(_) => {}
            }
        }
    }

    fn poll_ended(&mut self, cx: &mut Cx<'_>) -> Poll<Option<Completion<T, Infallible>>> {
        // SAFETY: `T` is the children's output, since `TaskGroup<T>` created this.
        unsafe { self.waiting.poll_next(self.core, cx) }
    }
}

impl<T> Future for Next<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<T>> {
        // First, since nearly all children have a value.
        // SAFETY: `T` is the children's output, since `TaskGroup<T>` created this.
        match unsafe { self.waiting.next_drained(self.core) } {
            Some(Completion::Value(value)) => Poll::Ready(Some(value)),
            ended => self.poll_slowly(ended, cx),
        }
    }
}

/// A future of the next child's completion, created by [`TaskGroup::next_ended`](super::TaskGroup::next_ended).
#[must_use = "futures do nothing until they are awaited"]
pub struct NextEnded<'g, T>(pub(super) Next<'g, T>);

impl<T> Future for NextEnded<'_, T> {
    type Output = Option<Result<T, TaskError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        self.0.poll_ended(cx).map(|ended| ended.map(TaskError::result))
    }
}

/// A future of the next child's value or error, created by [`TaskGroup::try_next`](super::TaskGroup::try_next).
#[must_use = "futures do nothing until they are awaited"]
pub struct TryNext<'g, T, E>(pub(super) Next<'g, Result<T, E>>);

impl<T, E> Future for TryNext<'_, T, E> {
    type Output = Result<Option<T>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Option::transpose)
    }
}

/// A future that is ready when no child runs, created by [`TaskGroup::wait_for_all`](super::TaskGroup::wait_for_all).
#[must_use = "futures do nothing until they are awaited"]
pub struct WaitForAll {
    pub(super) core: GroupRef,
    pub(super) waiting: Waiting,
}

impl Future for WaitForAll {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.waiting.0.is_none() && this.core.counts().0 == 0 {
            return Poll::Ready(());
        }
        this.waiting.poll(&this.core, WaitFor::All, cx).map(drop)
    }
}

crate::opaque!(['g, T] Next<'g, T>);
crate::opaque!(['g, T] NextEnded<'g, T>);
crate::opaque!(['g, T, E] TryNext<'g, T, E>);
crate::opaque!([] WaitForAll);
