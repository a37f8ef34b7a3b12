//! Clean-up that a cancellation does not reach.

use core::fmt;
use core::future::{Future, IntoFuture};
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use core::ptr::NonNull;

use super::frame::{ContextScope, Stops};
use super::strand::context::Context;
use super::strand::scoped_future::{self, Change, Ended, ScopedFuture};
use crate::stop::ErasedStopToken;

/// Runs a future, or awaits a sender, inside of which nothing is seen of the task's cancellation.
///
/// There [`is_cancelled`](super::is_cancelled) is `false` and the stop token never stops, for all that is awaited, and for the
/// tasks and groups that begin inside. The deadline is lifted too: [`deadline`](super::deadline) is `None`, and one that
/// passes meanwhile does not reach the inside. A limit of its own is set inside, with
/// [`with_timeout`](super::with_timeout). Afterwards all is as before, and a cancellation that came meanwhile is seen.
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
///         // Anything that listens to the cancellation would stop right here.
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
/// # Completions
///
/// The future's output. Where something that is awaited inside stops by itself, that passes on: the task stops.
///
/// # Panics
///
/// The future's panic unwinds. It also panics when it is sent to another task after its first poll, and polled there.
///
/// # Cancellation
///
/// Dropped, it is gone: a shield holds off what asks, not who lets go. So a task that is dropped while it runs, or a `select!`
/// that it lost, ends it.
///
/// Outside of a task there is nothing to hold off.
///
/// # Allocation
///
/// None but for the memory of the frame, which has the context of the scope. The future may borrow, and need not be `Send`.
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

/// Nothing stops what is inside.
struct Shielded;

impl Change for Shielded {
    unsafe fn begin(_: NonNull<Self>, scope: NonNull<ContextScope>, context: &mut Context) {
        // SAFETY: the scope is alive: it is being made.
        unsafe { scope.as_ref() }.set_stops(Stops::Never);
        context.token = ErasedStopToken::NEVER;
        context.deadline = None;
    }
}

impl<F: Future> Future for Shield<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        // SAFETY: it is pinned with this.
        let inside = unsafe { self.map_unchecked_mut(|this| &mut this.inside) };
        match inside.poll(cx, || Shielded) {
            Poll::Ready(Ended::Value(value)) => Poll::Ready(value),
            Poll::Ready(Ended::Stopped(_)) => scoped_future::stop_outside(cx),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<F> fmt::Debug for Shield<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shield").finish_non_exhaustive()
    }
}
