//! Trying a future again after an error.

use core::future::{Future, poll_fn};
use core::pin::pin;

use super::awaiting::ValueFuture;
use super::frame::{Activity, Site};
use crate::adaptors::RetryPolicy;
use crate::scheduler::Timer;
use crate::{Get, read_env};

/// Runs the future that a function makes, again and again after an error, with the delays of a policy.
///
/// [`Sender::retry_with`](crate::Sender::retry_with) does the same for senders. [`retry_with_if`] decides by the error as well.
///
/// ```
/// use bowline::prelude::*;
/// use std::time::Duration;
///
/// async fn fetch(attempt: u32) -> Result<&'static str, &'static str> {
///     task::yield_now().await;
///     if attempt < 3 { Err("busy") } else { Ok("the page") }
/// }
///
/// let work = Task::new(async {
///     let mut attempt = 0;
///     let policy = RetryPolicy::new().initial_delay(Duration::from_millis(1));
///     task::retry_with(policy, || {
///         attempt += 1;
///         fetch(attempt)
///     })
///     .await
/// });
/// assert_eq!(sync_wait(work).unwrap(), Ok("the page"));
/// ```
///
/// The delays are on the timer of the environment: a [`Timer`] that was added with
/// [`with_env`](crate::Sender::with_env), or the [global](Timer::global) one. A cancelled task is stopped during a delay, as at
/// every await of a sender.
///
/// # Errors
///
/// The error of the last attempt.
///
/// # Panics
///
/// With the panic of the function or of its future. If the global timer is used first here, and the system
/// refuses its thread.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn retry_with<F, A, T, E>(policy: RetryPolicy, attempt: F) -> impl Future<Output = Result<T, E>>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T, E>>,
{
    retry_at(Site::here(), policy, |_| true, attempt)
}

/// Runs the future that a function makes, again and again after an error that satisfies a predicate, with the delays of a
/// policy.
///
/// ```
/// use bowline::prelude::*;
///
/// let work = Task::new(async {
///     let lookup = || async { Err::<(), _>("no such host") };
///     task::retry_with_if(RetryPolicy::new(), |error| *error == "busy", lookup).await
/// });
/// assert_eq!(sync_wait(work).unwrap(), Err("no such host"));
/// ```
///
/// See [`retry_with`]. The predicate is not asked after the last attempt.
///
/// # Errors
///
/// The first error for which the predicate is false, or the error of the last attempt.
///
/// # Panics
///
/// Like [`retry_with`], and with the panic of the predicate.
#[cfg_attr(feature = "inspect", track_caller)]
pub fn retry_with_if<P, F, A, T, E>(policy: RetryPolicy, predicate: P, attempt: F) -> impl Future<Output = Result<T, E>>
where
    P: FnMut(&E) -> bool,
    F: FnMut() -> A,
    A: Future<Output = Result<T, E>>,
{
    retry_at(Site::here(), policy, predicate, attempt)
}

/// Does what [`retry_with_if`] does, for an await at `site`: the caller of an `async fn` is not known inside.
async fn retry_at<P, F, A, T, E>(site: Site, policy: RetryPolicy, mut predicate: P, mut attempt: F) -> Result<T, E>
where
    P: FnMut(&E) -> bool,
    F: FnMut() -> A,
    A: Future<Output = Result<T, E>>,
{
    let mut delays = policy.delays();
    loop {
        let ended = {
            let mut attempt = pin!(attempt());
            poll_fn(|cx| {
                let polled = attempt.as_mut().poll(cx);
                if polled.is_pending() {
                    Activity::with(|activity| activity.awaits_around(site));
                }
                polled
            })
            .await
        };
        let error = match ended {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let Some(delay) = delays.next().filter(|_| predicate(&error)) else {
            return Err(error);
        };
        drop(error);
        if delay.is_zero() {
            // A loop of attempts that fail at once is a cancellation point, too, and lets other work run.
            ValueFuture::at(site, super::yield_now()).await;
            continue;
        }
        let Ok(timer) = read_env(Get::<Timer>::new()).await;
        let pause = timer.as_ref().unwrap_or_else(|| Timer::global()).schedule_after(delay);
        ValueFuture::at(site, pause).await;
    }
}
