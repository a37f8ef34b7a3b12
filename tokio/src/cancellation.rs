//! Cancellation to and from [`CancellationToken`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use bowline::stop::{SharedStopToken, StopSource};
use bowline::task;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A stop that follows a [`CancellationToken`]: it is requested when the token is cancelled.
///
/// The stop is requested by the thread that cancels the token. No runtime is needed, and no task waits for the token. Dropping
/// this ends the connection.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tokio::StopFollowing;
/// use tokio_util::sync::CancellationToken;
///
/// let token = CancellationToken::new();
/// let stop = StopFollowing::new(token.clone());
/// let work = never::<(), std::convert::Infallible>().write_env(WithStopToken(stop.token()));
/// std::thread::spawn(move || token.cancel());
/// assert!(sync_wait(work).is_stopped());
/// ```
#[must_use = "dropping it ends the connection"]
pub struct StopFollowing {
    follower: Arc<Follower>,
}

/// The waker of the token's future.
struct Follower {
    source: StopSource,
    token: CancellationToken,
    /// Holds the registration with the token, and in it a reference to this. Emptied by the drop of [`StopFollowing`].
    waiting: Mutex<Option<Pin<Box<WaitForCancellationFutureOwned>>>>,
}

impl StopFollowing {
    /// Follows a token. If it is cancelled, the stop is requested at once.
    pub fn new(token: CancellationToken) -> Self {
        let follower = Arc::new(Follower {
            source: StopSource::new(),
            token: token.clone(),
            waiting: Mutex::new(None),
        });
        let mut waiting = Box::pin(token.cancelled_owned());
        let waker = Waker::from(follower.clone());
        if waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            follower.source.request_stop();
        } else {
            // A cancellation from here on wakes the follower.
            *follower.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
        }
        StopFollowing { follower }
    }

    /// Returns a token of the stop, for the environment of senders and tasks.
    pub fn token(&self) -> SharedStopToken {
        self.follower.source.token()
    }

    /// Returns whether the stop was requested.
    pub fn stop_requested(&self) -> bool {
        self.follower.source.stop_requested()
    }
}

impl Wake for Follower {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.token.is_cancelled() {
            self.source.request_stop();
        }
    }
}

impl Drop for StopFollowing {
    fn drop(&mut self) {
        let waiting = self
            .follower
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Dropped without the lock: it locks the token.
        drop(waiting);
    }
}

impl fmt::Debug for StopFollowing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopFollowing")
            .field("stop_requested", &self.stop_requested())
            .finish_non_exhaustive()
    }
}

/// Runs an operation with a [`CancellationToken`] that is cancelled when the current task is.
///
/// The token is for code that knows tokio's tokens and not bowline's tasks. It is cancelled at once if the task is cancelled
/// already, and not when the operation ends. Outside of a task it is never cancelled.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tokio::with_cancellation_token;
///
/// let source = StopSource::new();
/// source.request_stop();
/// let work = Task::new(async {
///     with_cancellation_token(async |token| {
///         token.cancelled().await;
///         "told"
///     })
///     .await
/// });
/// let told = sync_wait(work.write_env(WithStopToken(source.token())));
/// assert_eq!(told.unwrap(), "told");
/// ```
///
/// # Cancellation
///
/// The operation is not ended by the cancellation: it ends by what it does with the token, like that of
/// [`with_cancellation_handler`](task::with_cancellation_handler).
pub async fn with_cancellation_token<T>(operation: impl AsyncFnOnce(CancellationToken) -> T) -> T {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    task::with_cancellation_handler(move || cancelled.cancel(), operation(token)).await
}
