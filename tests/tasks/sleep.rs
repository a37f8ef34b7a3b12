//! `task::sleep`, `task::sleep_until`: waiting for a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{LocalTask, Sleep, Task, sleep, sleep_until};
use bowline::{EmptyEnv, Patched};

const HOUR: Duration = Duration::from_secs(3600);

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns the latest instant that can be represented.
fn end_of_time() -> Instant {
    let mut end = Instant::now();
    let mut step = Duration::MAX;
    while step > Duration::ZERO {
        match end.checked_add(step) {
            Some(later) => end = later,
            None => step /= 2,
        }
    }
    end
}

/// Returns sleeps that do not end while a test runs.
fn endless() -> Vec<Sleep> {
    vec![
        sleep(HOUR),
        sleep(Duration::MAX),
        sleep(Duration::from_nanos(u64::MAX)),
        sleep(Duration::from_nanos(u64::MAX - 1)),
        sleep(Duration::from_secs(u64::MAX / 1_000_000_000 + 1)),
        sleep_until(Instant::now() + HOUR),
        sleep_until(end_of_time()),
    ]
}

/// Returns sleeps that end at once.
fn over() -> Vec<Sleep> {
    let now = Instant::now();
    vec![
        sleep(Duration::ZERO),
        sleep(Duration::from_nanos(1)),
        sleep_until(now),
        sleep_until(now.checked_sub(ms(1)).unwrap_or(now)),
        sleep_until(now.checked_sub(HOUR).unwrap_or(now)),
    ]
}

#[test]
fn is_never_early() {
    for delay in [ms(0), ms(1), ms(7)] {
        let begin = Instant::now();
        sync_wait(sleep(delay)).unwrap();
        assert!(begin.elapsed() >= delay);
        let until = Instant::now() + delay;
        sync_wait(sleep_until(until)).unwrap();
        assert!(Instant::now() >= until);
    }
}

#[test]
fn the_time_counts_from_the_start() {
    let mut slot = WaitSlot::new();
    let prepared = prepare(sleep(ms(4)), &mut slot);
    let before = Instant::now();
    while before.elapsed() < ms(5) {
        thread::yield_now();
    }
    let begin = Instant::now();
    prepared.wait().unwrap();
    assert!(begin.elapsed() >= ms(4));
}

#[test]
fn zero_and_the_past_are_over_at_once() {
    for sleep in over() {
        sync_wait(sleep.clone()).unwrap();
        pollster::block_on(async { sleep.await });
    }
}

#[test]
fn a_task_goes_on_where_it_runs() {
    for workers in [1, 2, 8] {
        let pool = Arc::new(ThreadPool::new(workers));
        let task = Task::new({
            let pool = pool.clone();
            async move {
                for sleep in over().into_iter().chain([sleep(ms(2))]) {
                    sleep.await;
                    assert!(pool.worker_index().is_some());
                }
            }
        });
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    }
    let home = thread::current().id();
    let task = LocalTask::new(async move {
        for sleep in over().into_iter().chain([sleep(ms(2))]) {
            sleep.await;
            assert_eq!(thread::current().id(), home);
        }
    });
    sync_wait(task).unwrap();
}

#[test]
fn many_sleep_side_by_side() {
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let begin = Instant::now();
        let sleepers = (0..200u64).map(|number| {
            Task::new(async move {
                sleep(ms(number % 5)).await;
                assert!(begin.elapsed() >= ms(number % 5));
                number
            })
        });
        let sum: u64 = sync_wait(starts_on(pool.scheduler(), when_all_iter(sleepers)))
            .unwrap()
            .into_iter()
            .sum();
        assert_eq!(sum, 199 * 200 / 2);
    }
}

#[test]
fn what_never_ends_is_stoppable() {
    for sleep in endless() {
        let source = StopSource::new();
        let env = Patched::new(WithStopToken(source.token()), EmptyEnv);
        let (record, recorded) = Record::in_env(env);
        submit(sleep, record);
        assert!(recorded.try_recv().is_err());
        source.request_stop();
        // On the thread that requests it.
        assert_eq!(recorded.try_recv(), Ok(Recorded::Stopped));
    }
}

#[test]
fn what_never_ends_is_stoppable_in_a_task() {
    let stopped = |workers: Option<usize>| {
        for endless in endless() {
            let source = StopSource::new();
            let stop = source.clone();
            let task = Task::new(async move {
                let Ok(()) = when_any((
                    endless,
                    sleep(ms(1))
                        .then(move |()| {
                            stop.request_stop();
                        })
                        .let_value(|()| never()),
                ))
                .await;
            });
            let task = task.write_env(WithStopToken(source.token()));
            let outcome = match workers {
                None => RunLoop::new().run_until(task),
                Some(workers) => sync_wait(starts_on(ThreadPool::new(workers).scheduler(), task)),
            };
            assert!(outcome.is_stopped());
        }
    };
    stopped(None);
    for workers in [1, 2, 8] {
        stopped(Some(workers));
    }
}

#[test]
fn a_sleep_that_begins_after_the_stop_is_stopped_at_once() {
    for workers in [1, 2, 8] {
        let pool = ThreadPool::new(workers);
        let source = StopSource::new();
        let after = Arc::new(AtomicUsize::new(0));
        let task = Task::new({
            let (source, after) = (source.clone(), after.clone());
            async move {
                source.request_stop();
                for sleep in endless().into_iter().chain(over()) {
                    assert_eq!(sleep.stopped_as_option().await, Ok(None));
                    after.fetch_add(1, SeqCst);
                }
                sleep(HOUR).await;
                after.fetch_add(1, SeqCst);
            }
        });
        let outcome = sync_wait(starts_on(pool.scheduler(), task).write_env(WithStopToken(source.token())));
        assert!(outcome.is_stopped());
        assert_eq!(after.load(SeqCst), endless().len() + over().len());
    }
}

#[test]
fn dropping_it_in_flight_ends_it() {
    let task = Task::new(async {
        let mut endless: Vec<_> = endless()
            .into_iter()
            .map(|sleep| Box::pin(async { sleep.await }))
            .collect();
        std::future::poll_fn(|context| {
            for sleep in &mut endless {
                assert!(Future::poll(sleep.as_mut(), context).is_pending());
            }
            std::task::Poll::Ready(())
        })
        .await;
        drop(endless);
        1
    });
    assert_eq!(sync_wait(task).unwrap(), 1);
    // In another executor.
    let endless = async { sleep(HOUR).await };
    let soon = async { sleep(ms(1)).await };
    pollster::block_on(futures_lite::future::or(endless, soon));
}

#[test]
fn allocates_nothing_in_a_task() {
    // Starts the timer's thread.
    sync_wait(sleep(Duration::ZERO)).unwrap();
    let crew = CrewAllocations::new();
    let pool = ThreadPool::builder()
        .threads(2)
        .on_start(move |_| crew.join())
        .build()
        .expect("a pool");
    let task = Task::new(async move {
        // The frame allocates its block when it first suspends.
        sleep(Duration::from_micros(10)).await;
        let before = crew.so_far();
        for _ in 0..20 {
            sleep(Duration::from_micros(10)).await;
        }
        crew.so_far() - before
    });
    assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 0);
}

#[test]
fn many_in_a_row_in_a_small_stack() {
    // Each is a round trip to the timer's thread.
    let rounds = ROUNDS / 50;
    let task = || {
        Task::new(async move {
            for _ in 0..rounds {
                sleep(Duration::ZERO).await;
            }
            rounds
        })
    };
    assert_eq!(with_stack(SMALL_STACK, || sync_wait(task()).unwrap()), rounds);
}
