//! Spawning with a wait for room, which is reserved until the child has started.

use core::future::Future;
use core::marker::PhantomData;
use core::panic::Location;
use core::pin::Pin;
use core::task::{Context as Cx, Poll, ready};
use std::boxed::Box;

use allocator_api2::alloc::Allocator;

use super::core::GroupRef;
use super::next::Waiting;
use super::spawn::{SpawnError, SpawnErrorKind};
use super::wait::{Granted, WaitFor};
use crate::memory::Cached;
use crate::task::children::{ChildPlace, InCache};
use crate::task::coroutine::{InAllocator, TaskContext};
use crate::task::frame::Site;

/// A child that waits for room, with its place and its allocator.
pub(super) struct Spawning<F, A> {
    core: GroupRef,
    waiting: Waiting,
    /// `None` once it was started or refused.
    child: Option<(F, Option<Box<ChildPlace>>, A)>,
    /// Invariant: the group stores the output of `F` as that of its children, so `F` must stay the type that it was created with.
    _child: PhantomData<fn(F) -> F>,
}

// The child is not pinned before it is started.
impl<F, A> Unpin for Spawning<F, A> {}

impl<F, A> Spawning<F, A> {
    /// Creates the wait. The output of `child` is that of the group's children. The child is spawned at `site`, too.
    pub(super) fn new(core: GroupRef, child: F, place: Option<Box<ChildPlace>>, allocator: A, site: Site) -> Self {
        Spawning {
            core,
            waiting: Waiting(None, site),
            child: Some((child, place, allocator)),
            _child: PhantomData,
        }
    }

    fn poll<C>(&mut self, cx: &mut Cx<'_>) -> Poll<Result<(), SpawnError<F>>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
        C: TaskContext<Allocator = A>,
    {
        let core = &self.core;
        let is_refused = self.waiting.0.is_none() && core.lock().limit == 0;
        let granted = if is_refused {
            None
        } else {
            Some(ready!(self.waiting.poll(core, WaitFor::Room, cx)))
        };
        let Some((child, place, allocator)) = self.child.take() else {
            return Poll::Pending;
        };
        if let Some(room) = granted.filter(Granted::is_room) {
            // The child has the place once it has started.
            let counted = Some(|| drop(room.take()));
            return Poll::Ready(core.spawn::<F::Output, _, C>(child, (allocator, place), counted, self.waiting.1));
        }
        let limit = core.lock().limit;
        let kind = match limit {
            _ if core.is_cancelled() => SpawnErrorKind::Cancelled,
            0 => SpawnErrorKind::NoRoom,
            _ => SpawnErrorKind::Ended,
        };
        Poll::Ready(Err(SpawnError::new(kind, child)))
    }
}

/// A future that starts a child when there is room, created by
/// [`TaskGroup::spawn_when_ready`](super::TaskGroup::spawn_when_ready).
///
/// Dropping it early drops the child.
#[must_use = "futures do nothing until they are awaited"]
pub struct SpawnWhenReady<F> {
    pub(super) spawning: TrySpawnWhenReady<F>,
    pub(super) location: &'static Location<'static>,
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
pub struct TrySpawnWhenReady<F>(pub(super) Spawning<F, Cached>);

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for TrySpawnWhenReady<F> {
    type Output = Result<(), SpawnError<F>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        self.0.poll::<InCache>(cx)
    }
}

/// A future that starts a child with options when there is room, created by
/// [`TaskGroup::spawn_when_ready_with`](super::TaskGroup::spawn_when_ready_with).
///
/// Dropping it early drops the child.
#[must_use = "futures do nothing until they are awaited"]
pub struct SpawnWhenReadyWith<F, A, H = ()> {
    pub(super) spawning: Spawning<F, A>,
    /// Taken by the completion.
    pub(super) handle: Option<H>,
    pub(super) location: &'static Location<'static>,
}

// The handle is not pinned.
impl<F, A, H> Unpin for SpawnWhenReadyWith<F, A, H> {}

impl<F, A, H> Future for SpawnWhenReadyWith<F, A, H>
where
    F: Future<Output: Send + 'static> + Send + 'static,
    A: Allocator + Clone + Send + Sync + 'static,
{
    type Output = H;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<H> {
        if let Err(refused) = ready!(self.spawning.poll::<InAllocator<A>>(cx)) {
            refused.report(self.location);
        }
        self.handle.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// A future that starts a child with options when there is room, or returns the child, created by
/// [`TaskGroup::try_spawn_when_ready_with`](super::TaskGroup::try_spawn_when_ready_with).
///
/// Dropping it early drops the child.
#[must_use = "futures do nothing until they are awaited"]
pub struct TrySpawnWhenReadyWith<F, A, H = ()> {
    pub(super) spawning: Spawning<F, A>,
    /// Taken by the completion.
    pub(super) handle: Option<H>,
}

// The handle is not pinned.
impl<F, A, H> Unpin for TrySpawnWhenReadyWith<F, A, H> {}

impl<F, A, H> Future for TrySpawnWhenReadyWith<F, A, H>
where
    F: Future<Output: Send + 'static> + Send + 'static,
    A: Allocator + Clone + Send + Sync + 'static,
{
    type Output = Result<H, SpawnError<F>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        match ready!(self.spawning.poll::<InAllocator<A>>(cx)) {
            Ok(()) => self
                .handle
                .take()
                .map_or(Poll::Pending, |handle| Poll::Ready(Ok(handle))),
            Err(refused) => Poll::Ready(Err(refused)),
        }
    }
}

crate::opaque!([F] SpawnWhenReady<F>);
crate::opaque!([F] TrySpawnWhenReady<F>);
crate::opaque!([F, A, H] SpawnWhenReadyWith<F, A, H>);
crate::opaque!([F, A, H] TrySpawnWhenReadyWith<F, A, H>);
