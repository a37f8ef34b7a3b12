//! Children that are bound to a variable.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context as Cx, Poll, ready};

use super::awaiting::{conclude, foreign};
use super::children::{ChildClaim, InCache, solo};
use super::frame::{Header, Polling, Site};
use crate::memory::Cached;

/// Starts a child of the current task and binds it to a variable, to be awaited where its value is needed.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// async fn chop() -> &'static str { "vegetables" }
/// async fn marinate() -> &'static str { "meat" }
///
/// let dinner = Task::new(async {
///     let vegetables = task::let_async(chop());
///     let meat = task::let_async(marinate());
///     format!("{} and {}", vegetables.await, meat.await)
/// });
/// assert_eq!(sync_wait(dinner).unwrap(), "vegetables and meat");
/// ```
///
/// The child runs concurrently with the task from this call on, and inherits what the children of a [`group`](super::group)
/// inherit. Dropping the variable without awaiting it cancels the child. The drop does not block, so several children can be
/// cancelled together; the task finishes after all of them have ended.
///
/// `future` may be a future, a task or any sender. The child's value is what awaiting it gives: mostly a `Result` for a sender.
///
/// # Panics
///
/// Outside of a task, where [`detach`](super::detach) is the alternative. When the allocation fails.
///
/// # Allocation
///
/// One.
#[track_caller]
pub fn let_async<F>(future: F) -> AsyncLet<F::Output>
where
    F: IntoFuture<Output: Send + 'static>,
    F::IntoFuture: Send + 'static,
{
    assert!(
        Header::current().is_some(),
        "`let_async` starts a child of the current task, and there is none: use `task::detach`, or call it in a `Task`",
    );
    let site = Site::here();
    match Polling::with(|polling| solo::start::<_, _, InCache>(future.into_future(), polling, (None, Cached), site)) {
        Ok(claim) => AsyncLet(claim),
        Err(error) => panic!("cannot start a child: {error}"),
    }
}

/// A child bound to a variable, created by [`let_async`].
///
/// Awaiting it returns the child's output. If the child stopped, because it was cancelled or awaited something that stopped,
/// the awaiting task stops as well. A panic of the child unwinds.
///
/// In a cancelled task the child is cancelled too. The await still waits for the child, and returns its value if it has one. A child
/// that was bound inside a [`shield`](super::shield), a deadline or a task-local scope may be awaited outside. A child bound
/// inside a shield is not cancelled with the task, so awaiting it outside of the shield stops a cancelled task.
///
/// # Panics
///
/// When it is polled again after it has returned the child's value.
#[must_use = "a child that is not awaited is cancelled when this is dropped"]
pub struct AsyncLet<T: Send + 'static>(ChildClaim<T>);

impl<T: Send + 'static> AsyncLet<T> {
    /// Returns whether the child has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T: Send + 'static> Future for AsyncLet<T> {
    type Output = T;

    #[cfg_attr(feature = "inspect", track_caller)]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<T> {
        let site = Site::of_poll();
        let completion = ready!(self.get_mut().0.poll(cx, "an `AsyncLet`", site));
        let Ok(value) = match Polling::with_waker_of(cx) {
            Some(polling) => ready!(conclude(polling, completion)),
            None => foreign::conclude(completion),
        };
        Poll::Ready(value)
    }
}

impl<T: Send + 'static> fmt::Debug for AsyncLet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncLet")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
