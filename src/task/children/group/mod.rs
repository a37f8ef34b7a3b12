//! Groups: children that are always awaited.
//!
//! Handles, children and waiters point at a [`GroupCore`](self::core::GroupCore), whose lock protects the lists and counts in its
//! [`GroupState`](self::state::GroupState). A child starts in `spawn`, and `child_handle` cancels it alone. It ends in `inbox` while
//! only the frame waits, and otherwise in `results`. `wait` is the operation of everything that waits: `next` for a result or for all
//! children, `ready` and `spawn_when_ready` for room. `body` runs the body, and `end` what follows it.
//!
//! A group is `Open` while the body runs, `Closed` after it while children run, `Over` after the last child. A closed group still takes
//! children, from children that run.

mod body;
mod child;
mod child_handle;
mod core;
mod end;
mod gather;
mod inbox;
mod next;
mod ready;
mod results;
pub(in crate::task) mod solo;
mod spawn;
mod spawn_when_ready;
mod state;
mod task_group;
mod wait;

pub use self::body::{Collecting, Discarding, GroupFuture, Supervising, Trying};
pub(super) use self::child_handle::OwnStop;
pub use self::child_handle::{ChildHandle, SpawnHandle};
pub use self::gather::{AllResults, ChildError, FirstSuccess, Gather, JoinPolicy, Quorum, QuorumError, gather};
pub use self::next::{Next, NextEnded, TryNext, WaitForAll};
pub use self::ready::Ready;
pub use self::spawn::{SpawnError, SpawnErrorKind};
pub use self::spawn_when_ready::{SpawnWhenReady, SpawnWhenReadyWith, TrySpawnWhenReady, TrySpawnWhenReadyWith};
pub use self::task_group::TaskGroup;

/// Runs `body` with a group into which it can spawn children. Returns the body's output after all children have ended.
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
/// **Children are always awaited.** The group ends when the body and all children have ended, whether or not their results were
/// taken. This does not depend on the future: dropping it early cancels the children, and the awaiting task ends after them.
/// The same holds if the body panics or stops, or if this future is leaked.
///
/// **Children inherit** the scheduler, the priority, the deadline, task-local values, and cancellation. A cancellation of the
/// task cancels the group with its children; [`cancel_all`](TaskGroup::cancel_all) does not affect the task.
///
/// Outside of a task, in an executor of another crate, the children run on the [global
/// pool](crate::scheduler::ThreadPool::global). Dropping this future early does not wait for them.
///
/// # Panics
///
/// With the panic of the body, or else of the first child that panicked, after all have ended. A child that panics cancels the
/// others. It also ends a body that waits for something else than its children.
///
/// # Cancellation
///
/// The children are cancelled with the task. The next await of the body stops it, as in every task; the group continues to wait
/// for its children.
///
/// # Allocation
///
/// One for the group, and one for each child, until its result is taken.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn group<T, B, F>(body: B) -> GroupFuture<B, F, T, F::Output, Collecting>
where
    T: Send + 'static,
    B: FnOnce(TaskGroup<T>) -> F,
    F: Future,
{
    GroupFuture::new(body)
}

/// Runs a [`group`] whose children and body return `Result`.
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
///         // The first error ends the body: the others are cancelled, and awaited.
///         while let Some(number) = group.try_next().await? {
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
/// An error of the body cancels the children, and is returned after they have ended. After a value of the body, an error that
/// was not taken cancels the other children, and is returned in the end. An error that was taken with
/// [`next`](TaskGroup::next) or [`try_next`](TaskGroup::try_next), and not returned, cancels nothing.
///
/// Everything else is as for [`group`].
///
/// # Errors
///
/// The body's error, or else the first error of a child that was not taken.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn try_group<T, E, R, B, F>(body: B) -> GroupFuture<B, F, Result<T, E>, Result<R, E>, Trying>
where
    T: Send + 'static,
    E: Send + 'static,
    B: FnOnce(TaskGroup<Result<T, E>>) -> F,
    F: Future<Output = Result<R, E>>,
{
    GroupFuture::new(body)
}

/// Runs a [`group`] whose children return nothing: each is freed as soon as it has ended, so any number of them may come and
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
/// [`next`](TaskGroup::next) has no result here, and waits until no child runs. Everything else is as for [`group`].
#[cfg_attr(feature = "inspect", track_caller)]
pub fn discarding_group<B, F>(body: B) -> GroupFuture<B, F, (), F::Output, Discarding>
where
    B: FnOnce(TaskGroup<()>) -> F,
    F: Future,
{
    GroupFuture::new(body)
}

/// Runs a [`group`] in which a failed child does not affect the others: its panic neither cancels them nor panics the group.
///
/// The body sees how each child has ended with [`next_ended`](TaskGroup::next_ended). Values that are not taken are dropped. A panic
/// that is not taken is [reported](crate::task::Report::ChildPanic).
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
#[cfg_attr(feature = "inspect", track_caller)]
pub fn supervised_group<T, B, F>(body: B) -> GroupFuture<B, F, T, F::Output, Supervising>
where
    T: Send + 'static,
    B: FnOnce(TaskGroup<T>) -> F,
    F: Future,
{
    GroupFuture::new(body)
}
