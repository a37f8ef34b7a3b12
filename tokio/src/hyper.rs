//! hyper's executor and timer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bowline::Scheduler;
use bowline::task::{self, SpawnOptions, TaskGroup};
use hyper::rt::{Executor, Sleep, Timer};

/// An executor of hyper's that runs futures as children of a group.
///
/// So the group awaits what a connection has started, and cancels it when the group is cancelled. A group that is cancelled or
/// over refuses more futures.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tokio::GroupExecutor;
/// use hyper::rt::Executor;
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// bowline_tokio::block_on(&runtime, async {
///     task::group(async |group| {
///         // hyper::server::conn::http2::Builder::new(executor) takes it.
///         let executor = GroupExecutor::new(&group);
///         executor.execute(async { task::yield_now().await });
///     })
///     .await
/// });
/// ```
#[derive(Clone)]
pub struct GroupExecutor {
    group: TaskGroup<()>,
}

impl GroupExecutor {
    /// Makes an executor of a group.
    pub fn new(group: &TaskGroup<()>) -> Self {
        GroupExecutor { group: group.clone() }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for GroupExecutor {
    fn execute(&self, future: F) {
        self.group.spawn(future);
    }
}

impl fmt::Debug for GroupExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupExecutor").finish_non_exhaustive()
    }
}

/// An executor of hyper's that runs futures as detached tasks on a scheduler.
///
/// No task waits for them. Prefer [`GroupExecutor`] where there is a group.
#[derive(Clone, Debug)]
pub struct DetachedExecutor<S> {
    scheduler: S,
}

impl<S: Scheduler + 'static> DetachedExecutor<S> {
    /// Makes an executor of an infallible scheduler.
    pub fn new(scheduler: S) -> Self {
        DetachedExecutor { scheduler }
    }
}

impl<S: Scheduler + 'static, F: Future<Output = ()> + Send + 'static> Executor<F> for DetachedExecutor<S> {
    fn execute(&self, future: F) {
        drop(task::detach_with(
            SpawnOptions::new().scheduler(self.scheduler.clone()),
            future,
        ));
    }
}

/// A timer of hyper's that uses bowline's [global](bowline::scheduler::Timer::global) timer.
///
/// It works in every executor. It needs no runtime with timers.
#[derive(Clone, Copy, Debug, Default)]
pub struct HyperTimer;

impl HyperTimer {
    /// Makes a timer.
    pub fn new() -> Self {
        HyperTimer
    }
}

impl Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(HyperSleep::new(task::sleep(duration).into_future()))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HyperSleep::new(task::sleep_until(deadline).into_future()))
    }
}

/// A wait for a timer. hyper wants futures that are `Sync`, and no thread ever waits for this lock.
struct HyperSleep(Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl HyperSleep {
    fn new(future: impl Future<Output = ()> + Send + 'static) -> Self {
        HyperSleep(Mutex::new(Box::pin(future)))
    }
}

impl Future for HyperSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.0.get_mut() {
            Ok(future) => future.as_mut().poll(cx),
            Err(poisoned) => poisoned.into_inner().as_mut().poll(cx),
        }
    }
}

impl Sleep for HyperSleep {}
