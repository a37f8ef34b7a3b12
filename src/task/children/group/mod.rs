//! Groups: children that are always awaited.
//!
//! `core` is what a group is behind its handles, `body` runs the body and waits for the children, `wait` is the sender that
//! everything here suspends with, `next` are the futures around it, and `gather` awaits children by a policy.

mod body;
mod child;
mod core;
mod end;
mod gather;
mod next;
mod options;
mod policy;
mod raise;
mod results;
mod spawn;
mod spawn_error;
mod state;
mod wait;

use ::core::fmt;
use ::core::marker::PhantomData;
use ::core::panic::Location;
use ::core::pin::Pin;
use ::core::task::{Context as Cx, Poll};

use allocator_api2::alloc::Allocator;
use futures_core::Stream;

pub use self::body::{Collecting, Discarding, GroupFuture, Supervising, Trying};
use self::core::CoreRef;
pub use self::gather::{AllResults, ChildError, FirstSuccess, Gather, JoinPolicy, NoQuorum, Quorum, gather};
pub use self::next::{Next, NextEnded, SpawnWhenReady, TrySpawnWhenReady, WaitForAll};
pub use self::options::SpawnOptions;
use self::results::TryNext;
pub use self::spawn_error::{SpawnError, SpawnErrorKind};
use super::spawned::InCache;
use crate::memory::Cached;
use crate::task::coroutine::context::InAllocator;
use crate::task::strand::raising::current_level;
use crate::task::strand::reason::Reason;
use crate::{Completion, Panic};

/// Runs `body` with a group, into which it can spawn children; returns what it returns, when all of them have ended.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let sum = Task::new(async {
///     task::group(async |group| {
///         for number in 1..=10 {
///             group.spawn(async move { number * number });
///         }
///         let mut sum = 0;
///         while let Some(square) = group.next().await {
///             sum += square;
///         }
///         sum
///     })
///     .await
/// });
/// assert_eq!(sync_wait(sum).unwrap(), 385);
/// ```
///
/// **Children are always awaited.** The group ends when the body and all children have, whether or not somebody asked for
/// their results. It does not depend on this future: dropped half-way it cancels the children, and the task in which it was
/// awaited is not done before they have ended; the same where the body panics, or is stopped, or where this is leaked.
///
/// **What children inherit**: the scheduler, the priority, the deadline, task-local values, and cancellation: when the task
/// is cancelled, so is the group with its children; [`cancel_all`](TaskGroup::cancel_all) leaves the task alone.
///
/// Outside of a task, in an executor of another crate, the children run on the [global
/// pool](crate::scheduler::ThreadPool::global), and what drops this half-way does not wait for them.
///
/// # Panics
///
/// With the panic of the body, or else with that of the first child that panicked, after all have ended. A child that
/// panics cancels the others.
///
/// # Cancellation
///
/// Of the task: the children are cancelled with it. What the body awaits next stops it, as everywhere; and what the group
/// itself waits for, its children, it goes on waiting for.
///
/// # Allocation
///
/// One for the group, and one for each child, until its result was taken.
///
/// # Stack
///
/// Constant.
pub fn group<T, B, F>(body: B) -> GroupFuture<B, F, T, F::Output, Collecting>
where
    T: Send + 'static,
    B: FnOnce(TaskGroup<T>) -> F,
    F: Future,
{
    GroupFuture::new(body)
}

/// A [`group`] whose children may fail: each gives a `Result`, and so does the body.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
/// use std::num::ParseIntError;
///
/// async fn sum(texts: Vec<&'static str>) -> Result<i32, ParseIntError> {
///     task::try_group(async |group| {
///         for text in texts {
///             group.spawn(async move { text.parse::<i32>() });
///         }
///         let mut sum = 0;
///         // The first error leaves the body: the others are cancelled, and awaited.
///         while let Some(number) = group.next().await.transpose()? {
///             sum += number;
///         }
///         Ok(sum)
///     })
///     .await
/// }
///
/// assert_eq!(sync_wait(Task::try_new(sum(vec!["1", "2"]))).unwrap(), 3);
/// assert!(sync_wait(Task::try_new(sum(vec!["1", "two"]))).is_error());
/// ```
///
/// When the body returns an error the children are cancelled, then awaited, and that error is returned. When it returns a
/// value, a child whose error nobody has taken cancels the others, and its error is returned in the end; what was taken
/// with [`next`](TaskGroup::next), and not returned, cancels nobody.
///
/// All else is as for [`group`].
///
/// # Errors
///
/// That of the body, or else the first of a child that nobody took.
pub fn try_group<T, E, R, B, F>(body: B) -> GroupFuture<B, F, Result<T, E>, Result<R, E>, Trying>
where
    T: Send + 'static,
    E: Send + 'static,
    B: FnOnce(TaskGroup<Result<T, E>>) -> F,
    F: Future<Output = Result<R, E>>,
{
    GroupFuture::new(body)
}

/// A [`group`] whose children give nothing: each is freed as soon as it has ended, so that any number of them may come and
/// go.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let served = Arc::new(AtomicU32::new(0));
/// let counter = served.clone();
/// let server = Task::new(task::discarding_group(async move |group| {
///     for _request in 0..100 {
///         let counter = counter.clone();
///         group.spawn(async move {
///             counter.fetch_add(1, Ordering::Relaxed);
///         });
///     }
/// }));
/// sync_wait(server).unwrap();
/// assert_eq!(served.load(Ordering::Relaxed), 100);
/// ```
///
/// [`next`](TaskGroup::next) has nothing to give here, and waits until no child runs. All else is as for [`group`].
pub fn discarding_group<B, F>(body: B) -> GroupFuture<B, F, (), F::Output, Discarding>
where
    B: FnOnce(TaskGroup<()>) -> F,
    F: Future,
{
    GroupFuture::new(body)
}

/// A [`group`] in which the failure of one child is not that of the others: one that panics cancels nobody, and the group
/// does not panic for it.
///
/// How each has ended is for the body to see, with [`next_ended`](TaskGroup::next_ended); what nobody asks about is dropped.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let survivors = Task::new(task::supervised_group(async |group| {
///     for number in 0..4 {
///         group.spawn(async move {
///             assert_ne!(number, 2, "I do not like this number");
///             number
///         });
///     }
///     let mut survivors = 0;
///     while let Some(ended) = group.next_ended().await {
///         survivors += u32::from(ended.is_ok());
///     }
///     survivors
/// }));
/// assert_eq!(sync_wait(survivors).unwrap(), 3);
/// ```
pub fn supervised_group<T, B, F>(body: B) -> GroupFuture<B, F, T, F::Output, Supervising>
where
    T: Send + 'static,
    B: FnOnce(TaskGroup<T>) -> F,
    F: Future,
{
    GroupFuture::new(body)
}

/// A group of tasks that run side by side: see [`group`], which makes one.
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
    core: CoreRef,
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
    fn new(core: CoreRef) -> Self {
        TaskGroup {
            core,
            _value: PhantomData,
        }
    }

    /// Takes the panic of a child whose result was not taken.
    fn take_panicked(core: &CoreRef) -> Option<Panic> {
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
    fn drain(&self, take: impl FnMut(T)) -> Option<Panic> {
        let mut first = None;
        self.drain_all(take, |panic| {
            first.get_or_insert(panic);
        });
        first
    }

    /// Takes what is left, values and panics.
    fn drain_all(&self, mut take: impl FnMut(T), mut panicked: impl FnMut(Panic)) {
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

impl<T: Send + 'static, E: Send + 'static> TaskGroup<Result<T, E>> {
    /// The value or error of the next child that ends: [`next`](TaskGroup::next), by the name that says that an error is
    /// looked at here. It cancels nobody.
    pub fn next_result(&self) -> Next<Result<T, E>> {
        self.next()
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
