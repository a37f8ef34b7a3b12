use core::fmt;
use core::future::Future;
use core::hash::{Hash, Hasher};
use core::pin::Pin;
use core::task::{Context as Cx, Poll, ready};

use allocator_api2::alloc::Allocator;

use super::awaiting::await_sender::SenderFuture;
use super::children::error::TaskError;
use super::children::group::SpawnOptions;
use super::children::solo::{self, AsResult, ChildClaim, ChildJoin, ChildStart};
use super::children::spawned::InCache;
use super::coroutine::context::InAllocator;
use super::strand::reason::Reason;
use super::strand::task_ref::TaskRef;
use crate::Priority;
use crate::memory::Cached;

/// Starts a task that belongs to nobody: it runs to its end by itself, on the [global
/// pool](crate::scheduler::ThreadPool::global), and inherits nothing.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task;
///
/// let handle = task::detach(async { 6 * 7 });
/// assert_eq!(task::block_on(handle).unwrap(), 42);
/// ```
///
/// It takes a future, a task, or any sender, whose result is a `Result` then. A [`group`](super::group) is what to use
/// where its end matters to somebody; this is for what is to outlive whoever starts it.
///
/// # Panics
///
/// When there is no memory, or the system does not give a single thread for the pool. The panic of the task itself is in
/// the handle; where that was dropped it is [reported](super::set_report_hook).
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
    let start = ChildStart {
        place: None,
        allocator: Cached,
    };
    match solo::start::<_, _, InCache>(future.into_future(), None, start) {
        Ok(claim) => Handle::new(claim),
        Err(error) => panic!("cannot detach a task: {error}"),
    }
}

/// [`detach`], with a priority, a scheduler, a name or an allocator.
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
    let (place, allocator) = options.into_parts();
    let start = ChildStart { place, allocator };
    match solo::start::<_, _, InAllocator<A>>(future.into_future(), None, start) {
        Ok(claim) => Handle::new(claim),
        Err(error) => panic!("cannot detach a task: {error}"),
    }
}

/// A task that was [detached](detach): awaited, it gives what the task gave.
///
/// Dropped, it lets the task run on. It may be dropped while it is awaited, and then does the same.
///
/// Two handles are equal when they are of one task.
pub struct Handle<T: Send + 'static> {
    /// Goes before the claim, on behalf of which it waits.
    join: Option<SenderFuture<ChildJoin<T, AsResult>>>,
    claim: ChildClaim<T>,
}

// SAFETY: through a shared handle nothing is reached but the task, which is made for all threads.
unsafe impl<T: Send + 'static> Sync for Handle<T> {}

impl<T: Send + 'static> Handle<T> {
    fn new(claim: ChildClaim<T>) -> Self {
        Handle {
            join: Some(SenderFuture::new(claim.join())),
            claim,
        }
    }

    /// Cancels the task: it sees that from now on, and ends where it awaits something that listens.
    ///
    /// It may still give a result, which is what awaiting it gives then.
    pub fn cancel(&self) {
        self.cancel_for(Reason::Requested);
    }

    /// The same, for a reason, which the task [can read](super::cancellation_reason).
    pub fn cancel_for(&self, reason: Reason) {
        self.claim.task().cancel(reason.into());
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation_reason().is_some()
    }

    /// Why it was cancelled, if it was.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.claim.task().why().map(Reason::from)
    }

    /// The task, to ask about: also when it has ended.
    ///
    /// ```
    /// use bowline::task;
    ///
    /// let handle = task::detach(async { task::current() });
    /// let detached = handle.task();
    /// assert_eq!(task::block_on(handle).unwrap(), Some(detached));
    /// ```
    pub fn task(&self) -> TaskRef {
        self.claim.task().task()
    }

    /// Makes the task at least as urgent, for good, and with it all that it waits for.
    ///
    /// Awaiting the handle does the same, with the level of who awaits it.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::task::{self, SpawnOptions};
    ///
    /// let options = SpawnOptions::new().priority(Priority::Background);
    /// let handle = task::detach_with(options, async { "done" });
    /// // Somebody has asked for it.
    /// handle.raise(Priority::UserInitiated);
    /// assert_eq!(task::block_on(handle).unwrap(), "done");
    /// ```
    pub fn raise(&self, priority: Priority) {
        self.claim.task().raise(priority);
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.claim.task().is_finished()
    }
}

impl<T: Send + 'static> Future for Handle<T> {
    type Output = Result<T, TaskError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(join) = &mut this.join else {
            panic!("a `Handle` was polled again after it had given its result");
        };
        let Ok(result) = ready!(Pin::new(join).poll(cx));
        this.join = None;
        Poll::Ready(result)
    }
}

impl<T: Send + 'static> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.claim.task().address() == other.claim.task().address()
    }
}

impl<T: Send + 'static> Eq for Handle<T> {}

impl<T: Send + 'static> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.claim.task().address().hash(state);
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
