//! The handle of a group.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::panic::Location;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use allocator_api2::alloc::Allocator;
use futures_core::Stream;

use super::child_handle::SpawnHandle;
use super::core::GroupRef;
use super::next::{self, Next, NextEnded, TryNext, WaitForAll, Waiting};
use super::ready::Ready;
use super::results::NextStep;
use super::spawn::{SpawnError, UNCOUNTED};
use super::spawn_when_ready::{SpawnWhenReady, SpawnWhenReadyWith, Spawning, TrySpawnWhenReady, TrySpawnWhenReadyWith};
use super::state::GroupState;
use crate::memory::Cached;
use crate::stop::Reason;
use crate::task::children::{InCache, SpawnOptions};
use crate::task::coroutine::InAllocator;
use crate::task::frame::{Activity, Awaited, Polling, Site};
use crate::{Completion, Panic};

/// A handle of a group of concurrent tasks, created by [`group`](super::group).
///
/// The handle can be cloned, and used in children to spawn more, or to cancel all. A handle that is kept after the end of the
/// group refuses children.
///
/// # Refused children
///
/// [`spawn`](TaskGroup::spawn), [`spawn_when_ready`](TaskGroup::spawn_when_ready) and their variants with options drop a child that
/// the group refuses. In a cancelled group that is the normal course, and silent. A child refused for another reason, such as a
/// group that has ended, is [reported](crate::task::Report::ChildRefused). The methods that begin with `try_` return a refused child
/// in a [`SpawnError`] instead.
///
/// As a [`Stream`] it yields the results of [`next`](TaskGroup::next).
pub struct TaskGroup<T> {
    pub(super) core: GroupRef,
    /// Invariant: children of type `T` are stored, and values of type `T` are returned.
    _value: PhantomData<fn(T) -> T>,
}

impl<T> Clone for TaskGroup<T> {
    fn clone(&self) -> Self {
        TaskGroup {
            core: self.core.clone(),
            _value: PhantomData,
        }
    }
}

impl<T> TaskGroup<T> {
    pub(super) fn new(core: GroupRef) -> Self {
        TaskGroup {
            core,
            _value: PhantomData,
        }
    }

    /// Takes the panic of a child whose result was not taken.
    pub(super) fn take_panicked(core: &GroupRef) -> Option<Panic> {
        match core.take_panicked()? {
            // SAFETY: the child is done and was removed from the group; `T` is the children's output.
            Ok(child) => match unsafe { child.take::<T>() } {
                Completion::Panicked(payload) => Some(payload),
                _ => None,
            },
            Err(payload) => Some(payload),
        }
    }

    /// Takes the remaining values. Returns the first panic.
    pub(super) fn drain(&self, take: impl FnMut(T)) -> Option<Panic> {
        let mut first = None;
        self.drain_all(take, |panic| {
            first.get_or_insert(panic);
        });
        first
    }

    /// Takes the remaining values and panics.
    pub(super) fn drain_all(&self, mut take: impl FnMut(T), mut panicked: impl FnMut(Panic)) {
        let panic = self.core.lock().panic.take();
        if let Some(payload) = panic {
            panicked(payload);
        }
        let next = || self.core.lock().pop_finished();
        while let Some(child) = next() {
            // SAFETY: the child is done and was removed from the group; `T` is the children's output.
            match unsafe { child.take::<T>() } {
                Completion::Value(value) => take(value),
                Completion::Panicked(payload) => panicked(payload),
                _ => {}
            }
        }
    }

    /// Returns the number of children whose result was not taken, running or ended.
    pub fn len(&self) -> usize {
        let (running, finished) = self.core.counts();
        running + finished
    }

    /// Returns whether there are none: then [`next`](TaskGroup::next) returns `None` at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cancels all children, and refuses others from now on. The task of the group is not affected.
    ///
    /// Results that the children still return can be taken as usual.
    pub fn cancel_all(&self) {
        self.cancel_all_for(Reason::Requested);
    }

    /// Cancels all children with a reason, which they [can read](crate::task::cancellation_reason).
    pub fn cancel_all_for(&self, reason: Reason) {
        self.core.cancel(reason.into()).run();
    }

    /// Returns why the group was cancelled, or `None` if it was not.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.core.relay.registry().why().map(Reason::from)
    }

    /// Returns whether the group was cancelled. The causes are [`cancel_all`](TaskGroup::cancel_all), a child's panic, a failure of
    /// the body or of a child after it, and a cancellation of the task.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Makes [`spawn_when_ready`](TaskGroup::spawn_when_ready) and [`ready`](TaskGroup::ready) wait while this many children run.
    /// There is no limit by default. With a limit of zero they refuse.
    pub fn set_limit(&self, limit: usize) {
        self.core.set_limit(limit);
    }

    /// Waits until fewer children than the [limit](TaskGroup::set_limit) run. A server calls it before it accepts work, so that work
    /// which it cannot begin stays where it is.
    ///
    /// Returns `true` if there is room: at once in a group without a limit. Returns `false` if the group refuses children: it is
    /// cancelled, has ended, or has a limit of zero. So a loop over this ends with the group:
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Task};
    ///
    /// let (sender, requests) = async_channel::unbounded();
    /// for number in 0..100 {
    ///     sender.try_send(number).unwrap();
    /// }
    /// drop(sender);
    /// let server = Task::new(task::discarding_group(async move |group| {
    ///     group.set_limit(8);
    ///     while group.ready().await {
    ///         let Ok(request) = requests.recv().await else { break };
    ///         group.spawn(async move { drop(request) });
    ///     }
    /// }));
    /// sync_wait(server).unwrap();
    /// ```
    ///
    /// **Nothing is reserved.** If the group's body alone spawns children, the room is there until it does, and the limit is never
    /// exceeded. If other tasks spawn too, they may take the room first. Then start the child with
    /// [`spawn_when_ready`](TaskGroup::spawn_when_ready), which waits again if necessary.
    ///
    /// Any number of these may wait, and none waits while there is room. A child that waits in `spawn_when_ready` has precedence.
    /// Dropping one of these waits has no effect.
    ///
    /// # Cancellation
    ///
    /// A cancelled task stops here, as at every `.await` of a sender that stops.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn ready(&self) -> Ready {
        Ready::new(self.core.clone(), Site::here())
    }

    /// Waits until no child runs. Results can still be taken.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn wait_for_all(&self) -> WaitForAll {
        WaitForAll {
            core: self.core.clone(),
            waiting: Waiting(None, Site::here()),
        }
    }
}

impl<T: Send + 'static> TaskGroup<T> {
    /// Starts a child: a future, a task, or any sender.
    ///
    /// A child that is [refused](TaskGroup#refused-children) is dropped.
    #[track_caller]
    pub fn spawn<F>(&self, child: F)
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
    {
        let spawned = self
            .core
            .spawn::<T, _, InCache>(child.into_future(), (Cached, None), UNCOUNTED, Site::here());
        if let Err(refused) = spawned {
            refused.report(Location::caller());
        }
    }

    /// Starts a child, or returns it as a future if the group refuses it.
    ///
    /// # Errors
    ///
    /// The group is cancelled or has ended, or the allocation failed.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn try_spawn<F>(&self, child: F) -> Result<(), SpawnError<F::IntoFuture>>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
    {
        self.core
            .spawn::<T, _, InCache>(child.into_future(), (Cached, None), UNCOUNTED, Site::here())
    }

    /// Starts a child with options, such as a priority or a scheduler of its own.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::ThreadPool;
    /// use bowline::task::{self, SpawnOptions, Task};
    ///
    /// let pool = ThreadPool::new(1);
    /// let options = SpawnOptions::new().priority(Priority::Background).scheduler(pool.scheduler());
    /// let task = Task::new(task::group(async move |group| {
    ///     group.spawn_with(options, async { std::thread::current().id() });
    ///     group.next().await
    /// }));
    /// assert_ne!(sync_wait(task).unwrap(), Some(std::thread::current().id()));
    /// ```
    ///
    /// Returns nothing, or the [`ChildHandle`](super::ChildHandle) of a child with
    /// [cancellable](crate::task::SpawnOptions::cancellable) options.
    ///
    /// A child that is [refused](TaskGroup#refused-children) is dropped. Its handle says that it has finished.
    #[track_caller]
    pub fn spawn_with<F, A, H>(&self, options: SpawnOptions<A, H>, child: F) -> H
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
        H: SpawnHandle,
    {
        let (place, allocator, handle) = options.into_parts();
        let child = child.into_future();
        let place = (allocator, place);
        if let Err(refused) = self
            .core
            .spawn::<T, _, InAllocator<A>>(child, place, UNCOUNTED, Site::here())
        {
            refused.report(Location::caller());
        }
        handle
    }

    /// Starts a child like [`spawn_with`](TaskGroup::spawn_with), or returns it as a future if the group refuses it.
    ///
    /// # Errors
    ///
    /// The group is cancelled or has ended, or the allocation failed.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn try_spawn_with<F, A, H>(&self, options: SpawnOptions<A, H>, child: F) -> Result<H, SpawnError<F::IntoFuture>>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
        H: SpawnHandle,
    {
        let (place, allocator, handle) = options.into_parts();
        self.core
            .spawn::<T, _, InAllocator<A>>(child.into_future(), (allocator, place), UNCOUNTED, Site::here())
            .map(|()| handle)
    }

    /// Waits until fewer children than the [limit](TaskGroup::set_limit) run, then starts a child.
    ///
    /// Any number may wait, also in children of the group, in FIFO order. If the group is cancelled, before or during the wait,
    /// the child is [refused](TaskGroup#refused-children) and dropped.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Task};
    ///
    /// let task = Task::new(task::group(async |group| {
    ///     group.set_limit(2);
    ///     for page in 0..10 {
    ///         group.spawn_when_ready(async move { page }).await;
    ///     }
    ///     let mut pages = Vec::new();
    ///     while let Some(page) = group.next().await {
    ///         pages.push(page);
    ///     }
    ///     pages.len()
    /// }));
    /// assert_eq!(sync_wait(task).unwrap(), 10);
    /// ```
    #[track_caller]
    pub fn spawn_when_ready<F>(&self, child: F) -> SpawnWhenReady<F::IntoFuture>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
    {
        SpawnWhenReady {
            spawning: self.try_spawn_when_ready(child),
            location: Location::caller(),
        }
    }

    /// Starts a child like [`spawn_when_ready`](TaskGroup::spawn_when_ready), or returns it in a [`SpawnError`] if the group
    /// refuses it.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn try_spawn_when_ready<F>(&self, child: F) -> TrySpawnWhenReady<F::IntoFuture>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
    {
        let child = child.into_future();
        TrySpawnWhenReady(Spawning::new(self.core.clone(), child, None, Cached, Site::here()))
    }

    /// Waits like [`spawn_when_ready`](TaskGroup::spawn_when_ready), then starts a child with options like
    /// [`spawn_with`](TaskGroup::spawn_with).
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, SpawnOptions, Task};
    ///
    /// let task = Task::new(task::group(async |group| {
    ///     group.set_limit(2);
    ///     for page in 0..10 {
    ///         let options = SpawnOptions::new().name(format!("page {page}"));
    ///         let child = async { task::current().and_then(|task| task.name().map(str::to_owned)) };
    ///         group.spawn_when_ready_with(options, child).await;
    ///     }
    ///     let mut pages = Vec::new();
    ///     while let Some(page) = group.next().await {
    ///         pages.extend(page);
    ///     }
    ///     pages.sort();
    ///     pages
    /// }));
    /// assert_eq!(sync_wait(task).unwrap()[3], "page 3");
    /// ```
    #[track_caller]
    pub fn spawn_when_ready_with<F, A, H>(
        &self,
        options: SpawnOptions<A, H>,
        child: F,
    ) -> SpawnWhenReadyWith<F::IntoFuture, A, H>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
        H: SpawnHandle,
    {
        let (place, allocator, handle) = options.into_parts();
        SpawnWhenReadyWith {
            spawning: Spawning::new(self.core.clone(), child.into_future(), place, allocator, Site::here()),
            handle: Some(handle),
            location: Location::caller(),
        }
    }

    /// Starts a child like [`spawn_when_ready_with`](TaskGroup::spawn_when_ready_with), or returns it in a [`SpawnError`] if the
    /// group refuses it.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, SpawnErrorKind, SpawnOptions, Task};
    ///
    /// let task = Task::new(task::group(async |group| {
    ///     group.cancel_all();
    ///     let options = SpawnOptions::new().name("late");
    ///     let refused = group.try_spawn_when_ready_with(options, async {}).await.unwrap_err();
    ///     refused.kind()
    /// }));
    /// assert_eq!(sync_wait(task).unwrap(), SpawnErrorKind::Cancelled);
    /// ```
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn try_spawn_when_ready_with<F, A, H>(
        &self,
        options: SpawnOptions<A, H>,
        child: F,
    ) -> TrySpawnWhenReadyWith<F::IntoFuture, A, H>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
        H: SpawnHandle,
    {
        let (place, allocator, handle) = options.into_parts();
        TrySpawnWhenReadyWith {
            spawning: Spawning::new(self.core.clone(), child.into_future(), place, allocator, Site::here()),
            handle: Some(handle),
        }
    }

    /// Returns the value of the next child, in the order in which they end; `None` if no child is left.
    ///
    /// A child that has stopped has no value, and is skipped. If it stopped because the task is cancelled, the task stops here,
    /// as at every `.await` of a sender that stops. So the task never continues with fewer results than it asked for.
    /// [`next_ended`](TaskGroup::next_ended) returns such a child instead.
    ///
    /// Any number of these may wait at a time, in FIFO order. Dropping one loses no result.
    ///
    /// # Panics
    ///
    /// With the panic of the child, if it has panicked.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn next(&self) -> Next<'_, T> {
        self.next_at(Site::here())
    }

    /// Does what [`next`](TaskGroup::next) does, for an await at `site`.
    pub(in crate::task) fn next_at(&self, site: Site) -> Next<'_, T> {
        Next::new(&self.core, site)
    }

    /// Returns how the next child has ended: with a value, cancelled, or with a panic.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn next_ended(&self) -> NextEnded<'_, T> {
        NextEnded(self.next())
    }
}

impl<T: Send + 'static, E: Send + 'static> TaskGroup<Result<T, E>> {
    /// Returns the value of the next child, as [`next`](TaskGroup::next) does, or its error. So an error leaves the body with `?`.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, Task};
    /// use std::num::ParseIntError;
    ///
    /// let sum = Task::try_new(task::try_group(async |group| {
    ///     for text in ["1", "2", "3"] {
    ///         group.spawn(async move { text.parse::<u32>() });
    ///     }
    ///     let mut sum = 0;
    ///     while let Some(number) = group.try_next().await? {
    ///         sum += number;
    ///     }
    ///     Ok::<_, ParseIntError>(sum)
    /// }));
    /// assert_eq!(sync_wait(sum).unwrap(), 6);
    /// ```
    ///
    /// In a [`try_group`](super::try_group), an error that leaves the body cancels the other children. The group awaits them, and
    /// then returns the error. In the other groups the body's result is a value like any other: the children that are left continue,
    /// and are awaited.
    ///
    /// # Errors
    ///
    /// The error of that child. The others are not affected, and their results can still be taken.
    ///
    /// # Panics
    ///
    /// With the panic of the child, if it has panicked.
    #[cfg_attr(feature = "inspect", track_caller)]
    pub fn try_next(&self) -> TryNext<'_, T, E> {
        TryNext(self.next())
    }
}

impl<T: Send + 'static> Stream for TaskGroup<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<T>> {
        loop {
            match self.core.try_next(Polling::with_waker_of(cx)) {
                NextStep::Nothing => return Poll::Ready(None),
                NextStep::Listen if self.core.watch(Some(cx.waker()), GroupState::has_next) => {}
                NextStep::Wait | NextStep::Listen => {
                    self.core.wanted_here();
                    self.core.stop_with_scope(cx.waker());
                    // The caller is an adaptor of another crate, so the place is that of the group.
                    Activity::with(|activity| activity.awaits_what(Awaited::NEXT_CHILD, Site::default()));
                    return Poll::Pending;
                }
                // SAFETY: `T` is the children's output.
                NextStep::Ended(child) => match unsafe { child.take::<T>() } {
                    Completion::Value(value) => return Poll::Ready(Some(value)),
                    Completion::Panicked(payload) => payload.resume(),
                    _ if next::stop_if_cancelled(cx.waker()) => return Poll::Pending,
                    _ => {}
                },
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, None)
    }
}

impl<T> PartialEq for TaskGroup<T> {
    fn eq(&self, other: &Self) -> bool {
        self.core == other.core
    }
}

impl<T> Eq for TaskGroup<T> {}

impl<T> Hash for TaskGroup<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.core.as_ptr().hash(state);
    }
}

impl<T> fmt::Debug for TaskGroup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (running, finished) = self.core.counts();
        f.debug_struct("TaskGroup")
            .field("running", &running)
            .field("finished", &finished)
            .field("is_cancelled", &self.is_cancelled())
            .finish()
    }
}
