//! `task::sleep`, `task::sleep_until`: waiting for a time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{DeadlineExceeded, LocalTask, Sleep, Task, group, shield, sleep, sleep_until, with_timeout};
use bowline::{EmptyEnv, Patched};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

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
    let task = || {
        Task::new(async move {
            // The frame allocates its block when it first suspends.
            sleep(Duration::from_micros(10)).await;
            let before = crew.so_far();
            for _ in 0..20 {
                sleep(Duration::from_micros(10)).await;
            }
            crew.so_far() - before
        })
    };
    let counts = || sync_wait(starts_on(pool.scheduler(), task())).unwrap();
    assert_eq!(settles_at(0, counts), 0);
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

/// Polls a sleep once in a task, so that its timer is in the future itself.
async fn polled<F: Future<Output = ()>>(mut future: Pin<Box<F>>) -> Pin<Box<F>> {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    future
}

#[test]
fn a_sleep_that_began_in_a_task_goes_on_wherever_it_is_polled() {
    let pool = ThreadPool::new(2);
    let begun = || {
        let begin = polled(Box::pin(sleep(ms(2)).into_future()));
        sync_wait(starts_on(pool.scheduler(), Task::new(begin))).unwrap()
    };
    // In another task, under a waker of its own in one, and in other executors.
    let future = begun();
    sync_wait(starts_on(pool.scheduler(), Task::new(future))).unwrap();
    let futures: FuturesUnordered<_> = [begun(), begun()].into_iter().collect();
    sync_wait(starts_on(pool.scheduler(), Task::new(futures.collect::<Vec<_>>()))).unwrap();
    pollster::block_on(begun());
    // After its time, and never again.
    let over = begun();
    thread::sleep(ms(5));
    pollster::block_on(over);
    drop(begun());
}

#[test]
fn a_sleep_that_began_in_a_task_is_stopped_with_the_task_and_scope_that_polls_it() {
    let pool = ThreadPool::new(2);
    let endless = || {
        let begin = polled(Box::pin(sleep(HOUR).into_future()));
        sync_wait(starts_on(pool.scheduler(), Task::new(begin))).unwrap()
    };
    let (deadline, task) = (endless(), endless());
    let timed = Task::new(with_timeout(ms(1), deadline));
    assert_eq!(
        sync_wait(starts_on(pool.scheduler(), timed)).unwrap(),
        Err(DeadlineExceeded)
    );
    let cancelled = Task::new(group(async move |group| {
        group.spawn(task);
        group.cancel_all();
    }));
    sync_wait(starts_on(pool.scheduler(), cancelled)).unwrap();
    // A shield protects it.
    static DONE: AtomicBool = AtomicBool::new(false);
    let source = StopSource::new();
    let stop = source.clone();
    let shielded = Task::new(async move {
        let short = polled(Box::pin(sleep(ms(3)).into_future())).await;
        shield(async move {
            stop.request_stop();
            short.await;
            DONE.store(true, SeqCst);
        })
        .await;
    });
    let outcome = sync_wait(starts_on(pool.scheduler(), shielded).write_env(WithStopToken(source.token())));
    assert!(DONE.load(SeqCst), "{outcome:?}");
}

#[test]
fn a_sleep_that_is_forgotten_wakes_a_task_that_has_ended() {
    let pool = ThreadPool::new(2);
    for _ in 0..20 {
        let task = Task::new(async { forget(polled(Box::pin(sleep(ms(1)).into_future())).await) });
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    }
    thread::sleep(ms(3));
    sync_wait(starts_on(pool.scheduler(), Task::new(async { sleep(ms(1)).await }))).unwrap();
}

/// Sleeps that end by a drop, by another waker or by a move to another thread at the time at which they fire.
#[test]
fn the_end_of_a_sleep_races_with_its_time() {
    let pool = ThreadPool::new(2);
    let mut random = XorShift::new(7);
    for _ in 0..300 {
        let (time, pause, how) = (random.below(100), random.below(200), random.below(3));
        let begin = polled(Box::pin(sleep(Duration::from_micros(time)).into_future()));
        let future = sync_wait(starts_on(pool.scheduler(), Task::new(begin))).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(pause) {
            std::hint::spin_loop();
        }
        match how {
            0 => drop(future),
            1 => pollster::block_on(future),
            _ => sync_wait(starts_on(pool.scheduler(), Task::new(future))).unwrap(),
        }
    }
}
