//! The handle of a group.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::panic::Location;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use allocator_api2::alloc::Allocator;
use futures_core::Stream;

use super::core::GroupRef;
use super::next::{self, Next, NextEnded, SpawnWhenReady, TrySpawnWhenReady, WaitForAll};
use super::results::TryNext;
use super::spawn_error::SpawnError;
use crate::memory::Cached;
use crate::task::children::{InCache, SpawnOptions};
use crate::task::coroutine::InAllocator;
use crate::task::strand::{Reason, current_level};
use crate::{Completion, Panic};

/// A group of tasks that run side by side: see [`group`](super::group), which makes one.
///
/// This is a handle, which may be copied, and used from children to spawn more, or to cancel all. It may also be kept: once
/// the group has ended it refuses children.
///
/// # Refused children
///
/// [`spawn`](TaskGroup::spawn), [`spawn_with`](TaskGroup::spawn_with) and [`spawn_when_ready`](TaskGroup::spawn_when_ready) drop a
/// child that the group refuses. In a cancelled group that is the normal course, and silent. A child refused for another reason,
/// such as a group that has ended, is [reported](crate::task::Report::ChildRefused). The methods that begin with `try_` return a
/// refused child in a [`SpawnError`] instead.
///
/// As a [`Stream`] it gives what [`next`](TaskGroup::next) gives.
pub struct TaskGroup<T> {
    core: GroupRef,
    /// Invariant: children of type `T` are put in, and values of type `T` are taken out.
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
            // SAFETY: it is done, and was taken out of the group; this is what the children give.
            Ok(child) => match unsafe { child.take::<T>() } {
                Completion::Panicked(payload) => Some(payload),
                _ => None,
            },
            Err(payload) => Some(payload),
        }
    }

    /// Takes what is left. Returns the first panic.
    pub(super) fn drain(&self, take: impl FnMut(T)) -> Option<Panic> {
        let mut first = None;
        self.drain_all(take, |panic| {
            first.get_or_insert(panic);
        });
        first
    }

    /// Takes what is left, values and panics.
    pub(super) fn drain_all(&self, mut take: impl FnMut(T), mut panicked: impl FnMut(Panic)) {
        if let Some(payload) = self.core.take_panic() {
            panicked(payload);
        }
        while let TryNext::Ended(child) = self.core.try_next(None) {
            // SAFETY: it is done, and was taken out of the group; this is what the children give.
            match unsafe { child.take::<T>() } {
                Completion::Value(value) => take(value),
                Completion::Panicked(payload) => panicked(payload),
                _ => {}
            }
        }
    }

    /// How many children there are whose result was not taken, whether they have ended or not.
    pub fn len(&self) -> usize {
        let (running, finished) = self.core.counts();
        running + finished
    }

    /// Whether there are none: then [`next`](TaskGroup::next) gives `None` at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cancels all children, and refuses others from now on. The task that the group is in is left alone.
    ///
    /// What the children give nevertheless can be taken as always.
    pub fn cancel_all(&self) {
        self.cancel_all_for(Reason::Requested);
    }

    /// The same, for a reason, which the children [can read](crate::task::cancellation_reason).
    pub fn cancel_all_for(&self, reason: Reason) {
        self.core.cancel(reason.into()).run();
    }

    /// Why it was cancelled, if it was.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.core.why().map(Reason::from)
    }

    /// Whether it was cancelled: by [`cancel_all`](TaskGroup::cancel_all), by a child that panicked, by an error that left the
    /// body, or with the task that it is in.
    pub fn is_cancelled(&self) -> bool {
        self.core.is_cancelled()
    }

    /// Has [`spawn_when_ready`](TaskGroup::spawn_when_ready) wait while this many children run. There is no limit to begin
    /// with. A limit of zero has it refuse.
    pub fn set_limit(&self, limit: usize) {
        self.core.set_limit(limit);
    }

    /// Ready when no child runs. Results stay to be taken.
    pub fn wait_for_all(&self) -> WaitForAll {
        WaitForAll::new(self.core.clone())
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
        if let Err(refused) = self.try_spawn(child) {
            refused.report(Location::caller());
        }
    }

    /// Starts a child, or returns it as a future where the group refuses it.
    ///
    /// # Errors
    ///
    /// The group is cancelled or has ended, or there is no memory for the child.
    pub fn try_spawn<F>(&self, child: F) -> Result<(), SpawnError<F::IntoFuture>>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
    {
        self.core
            .spawn::<T, _, InCache>(child.into_future(), Cached, None, None)
    }

    /// Starts a child with a priority, a scheduler, a name, or an allocator of its own.
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
    /// A child that is [refused](TaskGroup#refused-children) is dropped.
    #[track_caller]
    pub fn spawn_with<F, A>(&self, options: SpawnOptions<A>, child: F)
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        if let Err(refused) = self.try_spawn_with(options, child) {
            refused.report(Location::caller());
        }
    }

    /// Starts a child as [`spawn_with`](TaskGroup::spawn_with) does, or returns it as a future where the group refuses it.
    ///
    /// # Errors
    ///
    /// The group is cancelled or has ended, or there is no memory for the child.
    pub fn try_spawn_with<F, A>(&self, options: SpawnOptions<A>, child: F) -> Result<(), SpawnError<F::IntoFuture>>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
        A: Allocator + Clone + Send + Sync + 'static,
    {
        let (place, allocator) = options.into_parts();
        self.core
            .spawn::<T, _, InAllocator<A>>(child.into_future(), allocator, place, None)
    }

    /// Starts a child as soon as fewer than the [limit](TaskGroup::set_limit) run, and waits until then.
    ///
    /// Any number may wait, also in children of the group; who came first goes first. It does not wait in a group that was
    /// cancelled, or was while it waited: the child is [refused](TaskGroup#refused-children) and dropped.
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
        SpawnWhenReady::new(self.try_spawn_when_ready(child), Location::caller())
    }

    /// Starts a child as [`spawn_when_ready`](TaskGroup::spawn_when_ready) does, or returns it in a [`SpawnError`] where the group
    /// refuses it.
    pub fn try_spawn_when_ready<F>(&self, child: F) -> TrySpawnWhenReady<F::IntoFuture>
    where
        F: IntoFuture<Output = T>,
        F::IntoFuture: Send + 'static,
    {
        TrySpawnWhenReady::new(self.core.clone(), child.into_future())
    }

    /// The value of the next child that ends, in the order in which they do; `None` when there are no more, at once where
    /// there are none.
    ///
    /// A child that has stopped gives no value. It is passed over, unless the task is cancelled, and the child with it: then the
    /// task stops here, as it does at every `.await` of something that has stopped, and goes on in no case with fewer results
    /// than it asked for. [`next_ended`](TaskGroup::next_ended) shows it instead.
    ///
    /// Any number of these may wait at a time; who came first gets the first. Dropped, it takes nothing with it.
    ///
    /// # Panics
    ///
    /// With the panic of the child, if it has panicked.
    pub fn next(&self) -> Next<T> {
        Next::new(self.core.clone())
    }

    /// How the next child has ended: with a value, cancelled, or with a panic.
    pub fn next_ended(&self) -> NextEnded<T> {
        NextEnded::new(self.core.clone())
    }
}

impl<T: Send + 'static> Stream for TaskGroup<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Option<T>> {
        loop {
            match self.core.poll_next(cx.waker()) {
                Err(false) => return Poll::Ready(None),
                Err(true) => {
                    self.core.wanted_at(current_level());
                    self.core.stop_with_scope(cx.waker());
                    return Poll::Pending;
                }
                // SAFETY: this is what the children give.
                Ok(finished) => match unsafe { finished.take::<T>() } {
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
