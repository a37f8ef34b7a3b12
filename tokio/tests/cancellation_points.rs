//! Each await of tokio's and smol's futures is a cancellation point on tokio's threads, and on the pools with tokio's sockets. The
//! scenarios are those of the same test of `bowline`.

#[path = "../../tests/cancellation_points/harness/mod.rs"]
mod harness;

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use bowline::prelude::*;
use bowline_tokio::{IoPool, TokioScheduler};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use harness::{Place, PlainPlace, end_at_each, end_plain_at_each, of_smol, of_tokio};

/// Ends the work of both at each await, in tasks at this place, which is inside of a runtime.
fn at_each_await(place: Place<'_>) {
    end_at_each(place, of_tokio::SCENARIOS, None);
    end_at_each(place, of_smol::SCENARIOS, None);
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn on_the_threads_of_a_runtime() {
    for threads in [1, 2] {
        let runtime = runtime(threads);
        let scheduler = TokioScheduler::new(runtime.handle());
        at_each_await(&|task, token| sync_wait(starts_on(scheduler, task.write_env(WithStopToken(token)))));
    }
}

#[test]
fn on_a_runtime_of_one_thread() {
    // Another thread drives it, since the checks wait for its sockets.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let scheduler = TokioScheduler::new(runtime.handle());
    let (end, ends) = tokio::sync::oneshot::channel::<()>();
    std::thread::scope(|threads| {
        // Dropped also by a failure.
        let _end = end;
        threads.spawn(|| runtime.block_on(ends));
        at_each_await(&|task, token| sync_wait(starts_on(scheduler, task.write_env(WithStopToken(token)))));
    });
}

#[test]
fn on_a_pool_that_waits_for_sockets_itself() {
    for threads in [1, 3] {
        let pool = IoPool::new(threads).unwrap();
        at_each_await(&|task, token| sync_wait(starts_on(pool.scheduler(), task.write_env(WithStopToken(token)))));
    }
}

#[test]
fn on_a_pool_inside_of_a_runtime() {
    let runtime = runtime(1);
    let pool = bowline_tokio::pool(runtime.handle(), 2).unwrap();
    at_each_await(&|task, token| sync_wait(starts_on(pool.scheduler(), task.write_env(WithStopToken(token)))));
}

#[test]
fn in_a_task_that_a_future_of_the_runtime_awaits() {
    let runtime = runtime(1);
    at_each_await(&|task, token| {
        let task = task.write_env(WithStopToken(token)).into_outcome();
        let Ok(outcome) = runtime.block_on(runtime.spawn(task.into_future())).unwrap();
        outcome
    });
}

/// A runtime of one thread: that of the caller while [`run`](OneThread::run) is called, and another one between two calls. The checks
/// of the scenarios wait for its sockets.
struct OneThread {
    runtime: Arc<Runtime>,
    /// The thread that drives the runtime between two calls, and what ends it.
    between: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

impl OneThread {
    fn new() -> Self {
        OneThread {
            runtime: Arc::new(Builder::new_current_thread().enable_all().build().unwrap()),
            between: Mutex::default(),
        }
    }

    /// Calls a function that drives the runtime on this thread.
    fn run<T>(&self, drive: impl FnOnce(&Runtime) -> T) -> T {
        self.end();
        let result = drive(&self.runtime);
        let (end, ends) = oneshot::channel();
        let runtime = self.runtime.clone();
        let thread = thread::spawn(move || _ = runtime.block_on(ends));
        *self.between.lock().unwrap() = Some((end, thread));
        result
    }

    /// Ends the other thread.
    fn end(&self) {
        if let Some((end, thread)) = self.between.lock().unwrap().take() {
            drop(end);
            thread.join().unwrap();
        }
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn in_a_task_that_the_body_of_main_awaits_on_a_runtime_of_one_thread() {
    let one = OneThread::new();
    at_each_await(&|task, token| {
        one.run(|runtime| {
            bowline_tokio::block_on(runtime, async {
                let Ok(outcome) = task.write_env(WithStopToken(token)).into_outcome().await;
                outcome
            })
        })
    });
}

#[test]
fn in_the_body_of_main_with_a_deadline_on_a_runtime_of_one_thread() {
    let one = OneThread::new();
    let place: PlainPlace<'_> = &|future| one.run(|runtime| bowline_tokio::block_on(runtime, future));
    end_plain_at_each(place, of_tokio::SCENARIOS, None);
    end_plain_at_each(place, of_smol::SCENARIOS, None);
}
