//! The table of the book: where the children of a group run, whether in parallel, and whether inside tokio's context. One test
//! for each row of `docs/io.md`.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline_tokio::{IoPool, TokioScheduler};
use tokio::runtime::Handle;

use crate::common::*;

/// What two children of a group found.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// The threads: tokio's, a pool's, or the one that waits.
    place: &'static str,
    parallel: bool,
    context: bool,
}

/// Returns whether the other child came while this one blocked its thread.
fn meet(both: &(Mutex<usize>, Condvar), patience: Duration) -> bool {
    let (count, changed) = both;
    let mut count = count.lock().unwrap();
    *count += 1;
    changed.notify_all();
    let (count, _) = changed.wait_timeout_while(count, patience, |count| *count < 2).unwrap();
    *count == 2
}

/// Spawns two children that wait for each other, without giving their threads back.
async fn children(expected_in_parallel: bool) -> Found {
    // Long where the children meet, short where they do not.
    let patience = if expected_in_parallel {
        PATIENCE
    } else {
        Duration::from_millis(50)
    };
    let both = Arc::new((Mutex::new(0), Condvar::new()));
    task::group(async |group| {
        for _ in 0..2 {
            let both = both.clone();
            group.spawn(async move {
                task::yield_now().await;
                let place = match here().as_str() {
                    "tokio-worker" => "tokio",
                    name if name.starts_with("mine-") => "own pool",
                    name if name.starts_with("bowline-") => "global pool",
                    "waiting" => "the waiting thread",
                    _ => "elsewhere",
                };
                let context = Handle::try_current().is_ok();
                (place, meet(&both, patience), context)
            });
        }
        let (first, second) = (group.next().await.unwrap(), group.next().await.unwrap());
        assert_eq!((first.0, first.2), (second.0, second.2));
        Found {
            place: first.0,
            // The second to come never waits.
            parallel: first.1 && second.1,
            context: first.2,
        }
    })
    .await
}

fn found(place: &'static str, parallel: bool, context: bool) -> Found {
    Found {
        place,
        parallel,
        context,
    }
}

/// Runs a test on a thread with a name of its own.
fn waiting<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    in_time(|| {
        let thread = std::thread::Builder::new().name("waiting".to_owned());
        thread.spawn(test).unwrap().join().unwrap()
    })
}

/// Returns whether two children on the global pool run at the same time: not on a machine with one processor.
fn global_is_parallel() -> bool {
    ThreadPool::global().threads() > 1
}

fn own_pool() -> ThreadPool {
    ThreadPool::builder()
        .threads(2)
        .names(|n| format!("mine-{n}"))
        .build()
        .unwrap()
}

#[test]
fn in_bowlines_main() {
    // `#[bowline::main]` is `task::block_on`.
    let there = waiting(|| task::block_on(children(global_is_parallel())));
    assert_eq!(there, found("global pool", global_is_parallel(), false));
}

#[test]
fn in_tokios_main_of_this_crate() {
    let there = in_time(|| bowline_tokio::block_on(&multi_thread(2), children(true)));
    assert_eq!(there, found("tokio", true, true));
    let there = waiting(|| bowline_tokio::block_on(&current_thread(), children(false)));
    assert_eq!(there, found("the waiting thread", false, true));
}

#[test]
fn in_a_task_under_sync_wait() {
    let there = waiting(|| sync_wait(Task::new(children(false))).unwrap());
    assert_eq!(there, found("the waiting thread", false, false));
}

#[test]
fn in_a_task_on_a_pool() {
    let there = in_time(|| sync_wait(starts_on(own_pool().scheduler(), Task::new(children(true)))).unwrap());
    assert_eq!(there, found("own pool", true, false));
}

/// A scheduler of the user's, which uses the queue of a pool for something else than the pool's own tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mine(PoolScheduler);

impl Scheduler for Mine {
    type Schedule = <PoolScheduler as Scheduler>::Schedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        self.0.schedule()
    }
}

#[test]
fn in_a_task_on_a_scheduler_of_the_users() {
    let there = in_time(|| {
        let pool = own_pool();
        sync_wait(starts_on(Mine(pool.scheduler()), Task::new(children(true)))).unwrap()
    });
    assert_eq!(there, found("own pool", true, false));
    let there = in_time(|| {
        let runtime = multi_thread(1);
        let names = ThreadPool::builder().threads(2).names(|n| format!("mine-{n}"));
        let pool = bowline_tokio::inside(runtime.handle(), names).build().unwrap();
        sync_wait(starts_on(Mine(pool.scheduler()), Task::new(children(true)))).unwrap()
    });
    assert_eq!(there, found("own pool", true, true));
}

#[test]
fn in_a_task_on_a_pool_inside_a_runtime() {
    let there = in_time(|| {
        let runtime = multi_thread(1);
        let names = ThreadPool::builder().threads(2).names(|n| format!("mine-{n}"));
        let pool = bowline_tokio::inside(runtime.handle(), names).build().unwrap();
        sync_wait(starts_on(pool.scheduler(), Task::new(children(true)))).unwrap()
    });
    assert_eq!(there, found("own pool", true, true));
}

#[test]
fn in_a_task_on_a_pool_with_a_runtime_of_its_own() {
    let there = in_time(|| {
        let names = ThreadPool::builder().threads(2).names(|n| format!("mine-{n}"));
        let pool = IoPool::with(names).unwrap();
        sync_wait(starts_on(pool.scheduler(), Task::new(children(true)))).unwrap()
    });
    assert_eq!(there, found("own pool", true, true));
}

#[test]
fn in_a_plain_future_of_tokio() {
    let there = in_time(|| {
        let runtime = multi_thread(2);
        let spawned = runtime.spawn(children(global_is_parallel()));
        runtime.block_on(spawned).unwrap()
    });
    assert_eq!(there, found("global pool", global_is_parallel(), false));
}

#[test]
fn in_a_task_awaited_by_a_future_of_tokio() {
    let there = in_time(|| {
        let runtime = multi_thread(2);
        let spawned = runtime.spawn(async {
            let Ok(found) = Task::new(children(false)).await;
            found
        });
        runtime.block_on(spawned).unwrap()
    });
    assert_eq!(there, found("tokio", false, true));
}

#[test]
fn in_a_task_on_the_scheduler_of_the_runtime() {
    let there = in_time(|| {
        let runtime = multi_thread(2);
        let spawned = runtime.spawn(async {
            let Ok(found) = starts_on(TokioScheduler::current(), Task::new(children(true))).await;
            found
        });
        runtime.block_on(spawned).unwrap()
    });
    assert_eq!(there, found("tokio", true, true));
}
