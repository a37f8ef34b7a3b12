//! Each await of tokio's and smol's futures is a cancellation point: work is ended at every one, by every kind of stop and deadline.

mod harness;

use std::future::{Future, IntoFuture};
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;
use std::time::Duration;

use async_executor::Executor;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool};
use bowline::task::{self, DeadlineExceeded, LocalTask, Task};
use futures_lite::future::block_on;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::harness::{
    LOOPBACK, LocalPlace, Place, PlainPlace, Scenario, end_at_each, end_local_at_each, end_plain_at_each, of_smol,
    of_tokio,
};

/// The runtime whose timers and sockets the work uses in places that have none.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap()
    })
}

/// Ends the work of both at each await, in tasks at this place.
fn at_each_await(place: Place<'_>) {
    end_at_each(place, of_tokio::SCENARIOS, Some(runtime().handle()));
    end_at_each(place, of_smol::SCENARIOS, None);
}

#[test]
fn on_a_run_loop() {
    at_each_await(&|task, token| RunLoop::new().run_until(task.write_env(WithStopToken(token))));
}

#[test]
fn on_a_pool_of_one_worker() {
    let pool = ThreadPool::new(1);
    at_each_await(&|task, token| sync_wait(starts_on(pool.scheduler(), task.write_env(WithStopToken(token)))));
}

#[test]
fn on_a_pool_of_several_workers() {
    let pool = ThreadPool::new(4);
    at_each_await(&|task, token| sync_wait(starts_on(pool.scheduler(), task.write_env(WithStopToken(token)))));
}

#[test]
fn in_a_task_of_smols_executor() {
    let executor = Executor::new();
    at_each_await(&|task, token| {
        let task = task.write_env(WithStopToken(token)).into_outcome();
        let Ok(outcome) = block_on(executor.run(executor.spawn(task.into_future())));
        outcome
    });
}

#[test]
fn in_a_task_of_a_runtime_without_a_scheduler_there() {
    at_each_await(&|task, token| {
        let task = task.write_env(WithStopToken(token)).into_outcome();
        let Ok(outcome) = runtime().block_on(runtime().spawn(task.into_future())).unwrap();
        outcome
    });
}

/// Ends the work of both at each await, in the frames of local tasks at this place.
fn at_each_local_await(place: LocalPlace<'_>) {
    end_local_at_each(place, of_tokio::SCENARIOS, Some(runtime().handle()));
    end_local_at_each(place, of_smol::SCENARIOS, None);
}

#[test]
fn in_a_local_task_of_its_own() {
    at_each_local_await(&|task, token| sync_wait(task.write_env(WithStopToken(token))));
}

#[test]
fn in_a_local_task_that_a_local_task_awaits() {
    // The token is that of the caller.
    at_each_local_await(&|task, token| {
        let caller = LocalTask::new(async move {
            let Ok(ended) = task.await;
            ended
        });
        sync_wait(caller.write_env(WithStopToken(token)))
    });
}

#[test]
fn in_a_local_task_that_another_executor_awaits() {
    at_each_local_await(&|task, token| {
        let task = task.write_env(WithStopToken(token)).into_outcome();
        let Ok(outcome) = pollster::block_on(task.into_future());
        outcome
    });
}

#[test]
fn in_a_task_that_the_body_of_main_awaits() {
    // The body has no token. A stop of what it awaits is an outcome.
    at_each_await(&|task, token| {
        task::block_on(async {
            let Ok(outcome) = task.write_env(WithStopToken(token)).into_outcome().await;
            outcome
        })
    });
}

/// Ends the work of both at each await, by deadlines around plain futures at this place.
fn at_each_plain_await(place: PlainPlace<'_>) {
    let both: [(&[Scenario], Option<&Handle>); 2] = [
        (of_tokio::SCENARIOS, Some(runtime().handle())),
        (of_smol::SCENARIOS, None),
    ];
    for (scenarios, context) in both {
        end_plain_at_each(place, scenarios, context);
    }
}

#[test]
fn in_the_body_of_main_with_a_deadline() {
    at_each_plain_await(&|future| task::block_on(future));
}

#[test]
fn in_plain_futures_with_a_deadline() {
    let executor = Executor::new();
    at_each_plain_await(&|future| block_on(executor.run(executor.spawn(future))));
    at_each_plain_await(&|future| runtime().block_on(runtime().spawn(future)).unwrap());
    at_each_plain_await(&|future| pollster::block_on(future));
}

#[test]
fn an_await_that_does_not_suspend_fails_the_test() {
    fn message(test: impl FnOnce()) -> String {
        let caught = std::panic::catch_unwind(AssertUnwindSafe(test));
        *caught.unwrap_err().downcast::<String>().unwrap()
    }
    let place: Place<'_> = &|task, token| sync_wait(task.write_env(WithStopToken(token)));
    let ready = message(|| end_at_each(place, &[of_tokio::READY], None));
    assert!(ready.contains("`notified` does not suspend"), "{ready}");
    let unknown = message(|| end_at_each(place, &[of_tokio::UNKNOWN], None));
    assert!(unknown.contains("the awaits that have suspended"), "{unknown}");
}

/// A read from a socket whose other side stays silent, with a deadline.
async fn silent_read() -> Result<usize, DeadlineExceeded> {
    use async_io::Async;
    use futures_lite::AsyncReadExt as _;
    use std::net::{TcpListener, TcpStream};

    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let mut socket = Async::<TcpStream>::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let _silent = listener.accept().unwrap();
    let mut buffer = [0; 16];
    let read = task::with_timeout(Duration::from_millis(100), socket.read(&mut buffer)).await;
    read.map(Result::unwrap)
}

#[test]
fn a_read_of_smols_ends_with_its_deadline() {
    fn on_executor<T: Send>(future: impl Future<Output = T> + Send) -> T {
        let executor = Executor::new();
        block_on(executor.run(executor.spawn(future)))
    }
    assert_eq!(on_executor(silent_read()), Err(DeadlineExceeded));
    assert_eq!(
        on_executor(Task::new(silent_read()).into_future()),
        Ok(Err(DeadlineExceeded))
    );
    let in_a_group = || {
        task::group(async |group| {
            group.spawn(silent_read());
            group.next().await
        })
    };
    // Outside of a task the children run on the global pool.
    assert_eq!(on_executor(in_a_group()), Some(Err(DeadlineExceeded)));
    assert_eq!(sync_wait(Task::new(in_a_group())).unwrap(), Some(Err(DeadlineExceeded)));
}
