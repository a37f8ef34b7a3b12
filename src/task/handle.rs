//! Detached tasks and their handles.

use core::fmt;
use core::future::Future;
use core::hash::{Hash, Hasher};
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use allocator_api2::alloc::Allocator;

use super::children::{ChildClaim, InCache, SpawnOptions, TaskError, solo};
use super::coroutine::InAllocator;
use super::frame::Site;
use super::strand::TaskRef;
use crate::Priority;
use crate::memory::{Cached, OutOfMemoryError};
use crate::stop::Reason;

/// Starts an unstructured task: no other task waits for it, and it inherits nothing. It runs on the [global
/// pool](crate::scheduler::ThreadPool::global).
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task;
///
/// let handle = task::detach(async { 6 * 7 });
/// assert_eq!(task::block_on(handle).unwrap(), 42);
/// ```
///
/// `future` may be a future, a task or any sender, whose value is what awaiting it gives. Use it for work that is to outlive its
/// starter; otherwise prefer a [`group`](super::group).
///
/// # Panics
///
/// When the allocation fails, or the pool cannot start a thread. A panic of the task is returned by the handle; if the handle
/// was dropped, it is [reported](super::set_report_hook).
///
/// # Allocation
///
/// One.
#[track_caller]
pub fn detach<F>(future: F) -> Handle<F::Output>
where
    F: IntoFuture<Output: Send + 'static>,
    F::IntoFuture: Send + 'static,
{
    let start = (None, Cached);
    Handle::new(solo::start::<_, _, InCache>(
        future.into_future(),
        None,
        start,
        Site::here(),
    ))
}

/// Starts a task like [`detach`], with a priority, a scheduler, a name or an allocator.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use bowline::task::{self, SpawnOptions};
///
/// let pool = ThreadPool::new(1);
/// let options = SpawnOptions::new().priority(Priority::Utility).scheduler(pool.scheduler());
/// let handle = task::detach_with(options, async { std::thread::current().id() });
/// assert_ne!(task::block_on(handle).unwrap(), std::thread::current().id());
/// ```
#[track_caller]
pub fn detach_with<F, A>(options: SpawnOptions<A>, future: F) -> Handle<F::Output>
where
    F: IntoFuture<Output: Send + 'static>,
    F::IntoFuture: Send + 'static,
    A: Allocator + Clone + Send + Sync + 'static,
{
    let (place, allocator, ()) = options.into_parts();
    let start = (place, allocator);
    let future = future.into_future();
    Handle::new(solo::start::<_, _, InAllocator<A>>(future, None, start, Site::here()))
}

/// A handle of a [detached](detach) task. Awaiting it returns the task's output.
///
/// Dropping the handle, even while it is awaited, lets the task continue.
///
/// Two handles are equal if they refer to the same task.
///
/// # Panics
///
/// When it is polled again after it has returned the task's result.
pub struct Handle<T: Send + 'static>(ChildClaim<T>);

// SAFETY: a shared handle gives access only to the task's state, which is `Sync`; the result needs `&mut`.
unsafe impl<T: Send + 'static> Sync for Handle<T> {}

impl<T: Send + 'static> Handle<T> {
    #[track_caller]
    fn new(started: Result<ChildClaim<T>, OutOfMemoryError>) -> Self {
        match started {
            Ok(claim) => Handle(claim),
            Err(error) => panic!("cannot detach a task: {error}"),
        }
    }

    /// Cancels the task. It ends at the next await of something that listens to the stop token.
    ///
    /// The task may still return a value, which awaiting the handle then returns.
    pub fn cancel(&self) {
        self.cancel_for(Reason::Requested);
    }

    /// Cancels the task with a reason, which the task [can read](super::cancellation_reason).
    pub fn cancel_for(&self, reason: Reason) {
        self.0.cancel(reason.into());
    }

    /// Returns whether the task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation_reason().is_some()
    }

    /// Returns why the task was cancelled, or `None` if it was not.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.0.why().map(Reason::from)
    }

    /// Returns a reference to the task, which stays valid after the task has ended.
    ///
    /// ```
    /// use bowline::task;
    ///
    /// let handle = task::detach(async { task::current() });
    /// let detached = handle.task();
    /// assert_eq!(task::block_on(handle).unwrap(), Some(detached));
    /// ```
    pub fn task(&self) -> TaskRef {
        self.0.task()
    }

    /// Raises the task permanently to at least this priority, and with it everything that it waits for.
    ///
    /// Awaiting the handle raises the task to the priority of the awaiting task.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, SpawnOptions};
    ///
    /// let options = SpawnOptions::new().priority(Priority::Background);
    /// let handle = task::detach_with(options, async { "done" });
    /// // A user waits for the result now.
    /// handle.raise(Priority::UserInitiated);
    /// assert_eq!(task::block_on(handle).unwrap(), "done");
    /// ```
    pub fn raise(&self, priority: Priority) {
        self.0.raise(priority);
    }

    /// Returns whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T: Send + 'static> Future for Handle<T> {
    type Output = Result<T, TaskError>;

    #[cfg_attr(feature = "inspect", track_caller)]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let site = Site::of_poll();
        self.get_mut().0.poll(cx, "a `Handle`", site).map(TaskError::result)
    }
}

impl<T: Send + 'static> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Send + 'static> Eq for Handle<T> {}

impl<T: Send + 'static> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: Send + 'static> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("is_finished", &self.is_finished())
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
