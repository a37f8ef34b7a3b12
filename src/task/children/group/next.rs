//! The futures of a group's methods.

use core::convert::Infallible;
use core::future::Future;
use core::marker::PhantomData;
use core::panic::Location;
use core::pin::Pin;
use core::task::{Context as Cx, Poll, Waker, ready};

use super::core::GroupRef;
use super::results::TryNext;
use super::spawn_error::{SpawnError, SpawnErrorKind};
use super::wait::{GroupWait, WaitFor, Waited};
use crate::Completion;
use crate::memory::Cached;
use crate::stop::StopToken;
use crate::task::awaiting::SenderFuture;
use crate::task::children::{InCache, TaskError};
use crate::task::frame::{Polling, Stopping};
use crate::task::strand::current_level;

/// A wait in a group, by a sender that is created lazily.
struct WaitFuture {
    core: GroupRef,
    kind: WaitFor,
    wait: Option<SenderFuture<GroupWait>>,
}

impl WaitFuture {
    fn new(core: GroupRef, kind: WaitFor) -> Self {
        WaitFuture { core, kind, wait: None }
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<Waited> {
        let wait = self.wait.get_or_insert_with(|| {
            let (core, kind) = (self.core.clone(), self.kind);
            SenderFuture::new(GroupWait { core, kind })
        });
        let Ok(waited) = ready!(Pin::new(wait).poll(cx));
        self.wait = None;
        Poll::Ready(waited)
    }
}

/// A future of the next ended child.
struct NextFinished<T> {
    waiting: WaitFuture,
    _value: PhantomData<fn() -> T>,
}

impl<T> NextFinished<T> {
    fn new(core: GroupRef) -> Self {
        NextFinished {
            waiting: WaitFuture::new(core, WaitFor::Next),
            _value: PhantomData,
        }
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<Option<Completion<T, Infallible>>> {
        let waiting = &mut self.waiting;
        if waiting.wait.is_none() {
            match waiting.core.try_next(Polling::with_waker_of(cx)) {
                // SAFETY: the child is done and owned; `T` is the children's output.
                TryNext::Ended(child) => return Poll::Ready(Some(unsafe { child.take() })),
                TryNext::Nothing => return Poll::Ready(None),
                TryNext::Wait => {
                    waiting.core.wanted_at(current_level());
                    return Poll::Pending;
                }
                TryNext::Listen => {}
            }
        }
        match ready!(waiting.poll(cx)) {
            // SAFETY: `T` is the children's output.
            Waited::Child(finished) => Poll::Ready(Some(unsafe { finished.take() })),
            _ => Poll::Ready(None),
        }
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
pub struct Next<T>(NextFinished<T>);

impl<T> Next<T> {
    pub(super) fn new(core: GroupRef) -> Self {
        Next(NextFinished::new(core))
    }
}

impl<T> Future for Next<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<T>> {
        loop {
            match ready!(self.0.poll(cx)) {
                None => return Poll::Ready(None),
                Some(Completion::Value(value)) => return Poll::Ready(Some(value)),
                Some(Completion::Panicked(payload)) => payload.resume(),
                // The child has stopped, and has no value. If that is because the task is cancelled, the caller stops too.
                Some(_) if stop_if_cancelled(cx.waker()) => return Poll::Pending,
                Some(_) => {}
            }
        }
    }
}

/// A future of the next child's completion, created by [`TaskGroup::next_ended`](super::TaskGroup::next_ended).
#[must_use = "futures do nothing until they are awaited"]
pub struct NextEnded<T>(NextFinished<T>);

impl<T> NextEnded<T> {
    pub(super) fn new(core: GroupRef) -> Self {
        NextEnded(NextFinished::new(core))
    }
}

impl<T> Future for NextEnded<T> {
    type Output = Option<Result<T, TaskError>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(|ended| ended.map(TaskError::result))
    }
}

/// A future that is ready when no child runs, created by [`TaskGroup::wait_for_all`](super::TaskGroup::wait_for_all).
#[must_use = "futures do nothing until they are awaited"]
pub struct WaitForAll(WaitFuture);

impl WaitForAll {
    pub(super) fn new(core: GroupRef) -> Self {
        WaitForAll(WaitFuture::new(core, WaitFor::All))
    }
}

impl Future for WaitForAll {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        if self.0.wait.is_none() && self.0.core.counts().0 == 0 {
            return Poll::Ready(());
        }
        self.0.poll(cx).map(drop)
    }
}

/// A future that starts a child when there is room, created by
/// [`TaskGroup::spawn_when_ready`](super::TaskGroup::spawn_when_ready).
///
/// Dropping it early drops the child.
#[must_use = "futures do nothing until they are awaited"]
pub struct SpawnWhenReady<F> {
    spawning: TrySpawnWhenReady<F>,
    location: &'static Location<'static>,
}

impl<F> SpawnWhenReady<F> {
    pub(super) fn new(spawning: TrySpawnWhenReady<F>, location: &'static Location<'static>) -> Self {
        SpawnWhenReady { spawning, location }
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for SpawnWhenReady<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<()> {
        if let Err(refused) = ready!(Pin::new(&mut self.spawning).poll(cx)) {
            refused.report(self.location);
        }
        Poll::Ready(())
    }
}

/// A future that starts a child when there is room, or returns the child, created by
/// [`TaskGroup::try_spawn_when_ready`](super::TaskGroup::try_spawn_when_ready).
///
/// Dropping it early drops the child.
#[must_use = "futures do nothing until they are awaited"]
pub struct TrySpawnWhenReady<F> {
    waiting: WaitFuture,
    child: Option<F>,
}

// The child is not pinned before it is started.
impl<F> Unpin for TrySpawnWhenReady<F> {}

impl<F> TrySpawnWhenReady<F> {
    pub(super) fn new(core: GroupRef, child: F) -> Self {
        TrySpawnWhenReady {
            waiting: WaitFuture::new(core, WaitFor::Room),
            child: Some(child),
        }
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for TrySpawnWhenReady<F> {
    type Output = Result<(), SpawnError<F>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let waited = if this.waiting.wait.is_none() && this.waiting.core.limit() == 0 {
            None
        } else {
            Some(ready!(this.waiting.poll(cx)))
        };
        let Some(child) = this.child.take() else {
            return Poll::Pending;
        };
        let core = &this.waiting.core;
        let kind = match waited {
            Some(Waited::Room(room)) => {
                return Poll::Ready(core.spawn::<F::Output, _, InCache>(child, Cached, None, Some(room)));
            }
            _ if core.is_cancelled() => SpawnErrorKind::Cancelled,
            _ if core.limit() == 0 => SpawnErrorKind::NoRoom,
            _ => SpawnErrorKind::Ended,
        };
        Poll::Ready(Err(SpawnError::new(kind, child)))
    }
}

crate::opaque!([T] Next<T>);
crate::opaque!([T] NextEnded<T>);
crate::opaque!([F] SpawnWhenReady<F>);
crate::opaque!([F] TrySpawnWhenReady<F>);
crate::opaque!([] WaitForAll);
