//! Clean-up work that a cancellation does not interrupt.

use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context as Cx, Poll, ready};

use super::frame::{ContextScope, Stops};
use super::strand::{Change, Context, ScopedFuture};
use crate::stop::ErasedStopToken;

/// Runs a future, or awaits a sender, without letting the task's cancellation or deadline reach it.
///
/// Inside, [`is_cancelled`](super::is_cancelled) is `false`, [`deadline`](super::deadline) is `None`, and the stop token never
/// stops. This holds for everything awaited inside, and for tasks and groups that begin there. Use
/// [`with_timeout`](super::with_timeout) inside for a limit. A cancellation that arrived meanwhile is observed after the
/// shield. A future of another crate that is awaited inside is not dropped because of a cancellation.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::scheduler::Timer;
/// use bowline::task::{self, Task};
/// use std::time::Duration;
///
/// let source = StopSource::new();
/// source.request_stop();
/// let work = Task::new(async {
///     assert!(task::is_cancelled());
///     let flushed = task::shield(async {
///         // Outside of the shield, this would stop at once.
///         Timer::global().schedule_after(Duration::from_millis(1)).await;
///         !task::is_cancelled()
///     })
///     .await;
///     assert!(task::is_cancelled());
///     flushed
/// });
/// assert!(sync_wait(work.write_env(WithStopToken(source.token()))).unwrap());
/// ```
///
/// An operation inside that stops for another reason stops the task.
///
/// # Panics
///
/// The future's panic unwinds. Panics if the shield is polled in another task than at its first poll.
///
/// # Cancellation
///
/// Dropping the shield drops the future: a shield blocks requests to stop, not drops. So a task that is dropped while it runs,
/// or a `select!` that took another branch, ends it.
///
/// The future may borrow, and need not be `Send`. The context of the scope is in the memory of the frame.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn shield<F: IntoFuture>(operation: F) -> Shield<F::IntoFuture> {
    Shield {
        inside: ScopedFuture::new(operation.into_future()),
    }
}

/// The future of [`shield`].
#[must_use = "futures do nothing until they are awaited"]
pub struct Shield<F> {
    inside: ScopedFuture<F, Shielded>,
}

/// The change of a shield: the inside never stops.
struct Shielded;

impl Change for Shielded {
    const HOLDS: bool = true;

    unsafe fn begin(_: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context) {
        // SAFETY: `begin` is called with a scope that is alive.
        let scope = unsafe { scope.as_ref() };
        scope.stops.set(Stops::Never);
        // The stop that a handler around the shield answers does not reach the inside. So a stop there is another one, such as a deadline's.
        scope.handled.set(None);
        context.token = ErasedStopToken::NEVER;
        context.deadline = None;
    }
}

impl<F: Future> Future for Shield<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: `inside` is structurally pinned.
        let inside = unsafe { self.map_unchecked_mut(|this| &mut this.inside) };
        ready!(inside.poll(cx, || Shielded)).map_or(Poll::Pending, Poll::Ready)
    }
}

crate::opaque!([F] Shield<F>);
