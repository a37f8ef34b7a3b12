//! Helpers of the structured concurrency tests: schedulers on which tasks run, and typical task bodies.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::Task;

use crate::common::Counted;

/// The numbers of workers of the pools under test.
pub const WORKERS: [usize; 3] = [1, 2, 8];

/// Creates senders by `make`, runs them on a run loop and on pools of one, two and eight workers, and passes each outcome to
/// `check`.
pub fn on_each<S>(make: impl Fn() -> S, check: impl Fn(&mut dyn FnMut() -> Outcome<S::Value, S::Error>))
where
    S: Sender<Value: Send, Error: Send> + Send,
{
    check(&mut || sync_wait(make()));
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        check(&mut || sync_wait(starts_on(pool.scheduler(), make())));
    }
}

/// Runs a task of each `body()` on each of those schedulers. Every task completes with its value.
pub fn everywhere<F>(body: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    on_each(|| Task::new(body()), |run| assert!(run().is_value()));
}

/// Suspends this often through its scheduler's queue. A stop does not end it.
pub async fn hops(rounds: usize) {
    task::shield(wakes_itself(rounds)).await;
}

/// Suspends this often in a future that knows nothing of stops.
pub async fn wakes_itself(rounds: usize) {
    for _ in 0..rounds {
        let mut waited = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Polls a future once. Returns it unless it was ready, as one that another thread completes may be.
pub async fn begin_unless_ready<F: Future>(future: F) -> Option<Pin<Box<F>>> {
    let mut future = Box::pin(future);
    let pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    pending.then_some(future)
}

/// Polls a future once, and asserts that it is not ready.
pub async fn begin<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await;
    assert!(pending);
    future
}

/// Polls a future once and returns the result.
pub async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits for a stop, and stops.
pub async fn until_stopped<T: Send + 'static>() -> T {
    match never::<T, Infallible>().await {
        Ok(value) => value,
    }
}

/// Waits for a stop, then runs a while longer: cancelled, it still returns a value.
pub async fn lingers<T>(value: T, _held: Counted) -> T {
    let stopped = never::<(), Infallible>().stopped_as_option().await;
    assert_eq!(stopped, Ok(None));
    hops(20).await;
    value
}

/// A user-defined scheduler without a native queue, which forwards to another scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Via<S>(pub S);

impl<S: Scheduler> Scheduler for Via<S> {
    type Schedule = S::Schedule;
    const INFALLIBLE: bool = S::INFALLIBLE;

    fn schedule(&self) -> S::Schedule {
        self.0.schedule()
    }
}
