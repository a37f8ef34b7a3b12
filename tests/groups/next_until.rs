//! Partial results: what children have returned when a deadline passes.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::common::tasks::*;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, AllResults, Reason, Task, TaskError, TaskGroup};

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Takes the results until a deadline, in order of their values.
async fn collect_until(group: &TaskGroup<usize>, deadline: Instant) -> Vec<usize> {
    let mut all = Vec::new();
    while let Some(value) = group.next_until(deadline).await {
        all.push(value);
    }
    all.sort_unstable();
    all
}

fn soon() -> Instant {
    Instant::now() + MILLISECOND
}

fn late() -> Instant {
    Instant::now() + HOUR
}

#[test]
fn without_a_late_child_it_is_next() {
    everywhere(|| async {
        task::group(async |group| {
            assert_eq!(poll_once(group.next_until(late())).await, Some(None));
            for number in 0..20 {
                group.spawn(async move {
                    hops(number % 5).await;
                    number
                });
            }
            assert_eq!(collect_until(&group, late()).await, (0..20).collect::<Vec<_>>());
            assert!(!group.is_cancelled());
        })
        .await;
    });
}

#[test]
fn the_deadline_cancels_the_others_and_not_the_body() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            for number in 0..10 {
                let held = census.value();
                group.spawn(async move {
                    if number % 2 == 1 {
                        until_stopped::<()>().await;
                    }
                    drop(held);
                    number
                });
            }
            assert_eq!(collect_until(&group, soon()).await, [0, 2, 4, 6, 8]);
            assert_eq!(census.alive(), 0, "all have ended");
            assert_eq!(group.cancellation_reason(), Some(Reason::Deadline));
            assert!(!task::is_cancelled() && task::deadline().is_none());
            // The body continues.
            task::sleep(MILLISECOND).await;
        })
        .await;
    });
}

#[test]
fn children_that_end_during_the_cancellation_are_there() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            for number in 0..10 {
                group.spawn(lingers(number, census.value()));
            }
            group.spawn(until_stopped());
            assert_eq!(collect_until(&group, soon()).await, (0..10).collect::<Vec<_>>());
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn results_that_wait_when_the_deadline_has_passed_are_there() {
    everywhere(|| async {
        task::group(async |group| {
            for number in 0..10 {
                group.spawn(async move { number });
            }
            group.wait_for_all().await;
            group.spawn(until_stopped());
            // The deadline is in the past, so the first call cancels the child that runs.
            let past = Instant::now();
            assert!(group.next_until(past).await.is_some());
            assert_eq!(group.cancellation_reason(), Some(Reason::Deadline));
            assert_eq!(collect_until(&group, past).await.len(), 9);
        })
        .await;
    });
}

#[test]
fn no_result_is_lost_when_children_end_with_the_deadline() {
    everywhere(|| async {
        for round in 0..100_u32 {
            task::group(async |group| {
                let deadline = Instant::now() + Duration::from_micros(20 * u64::from(round)).min(MILLISECOND);
                for number in 0..8 {
                    // Each returns its value, whenever it hears of the deadline.
                    group.spawn(async move {
                        let mut left = 200;
                        while !task::is_cancelled() && left != 0 {
                            hops(1).await;
                            left -= 1;
                        }
                        number
                    });
                }
                assert_eq!(collect_until(&group, deadline).await, (0..8).collect::<Vec<_>>());
            })
            .await;
        }
    });
}

#[test]
fn several_take_results_until_a_deadline() {
    everywhere(|| async {
        task::group(async |group| {
            for number in 0..10 {
                group.spawn(async move { number });
            }
            for _ in 0..3 {
                group.spawn(until_stopped());
            }
            let deadline = soon();
            let (mut first, second) =
                futures_util::future::join(collect_until(&group, deadline), collect_until(&group, deadline)).await;
            first.extend(second);
            first.sort_unstable();
            assert_eq!(first, (0..10).collect::<Vec<_>>());
        })
        .await;
    });
}

#[test]
fn one_that_is_dropped_cancels_nothing_and_loses_nothing() {
    everywhere(|| async {
        task::group(async |group| {
            group.spawn(async {
                hops(5).await;
                1
            });
            drop(begin_unless_ready(group.next_until(late())).await);
            assert!(!group.is_cancelled());
            let mut sum = 0;
            while !group.is_empty() {
                sum += poll_once(group.next_until(late())).await.flatten().unwrap_or(0);
                hops(1).await;
            }
            // It may have been given to the first one.
            assert!(sum <= 1);
        })
        .await;
    });
}

#[test]
fn a_child_that_is_shielded_is_waited_for() {
    everywhere(|| async {
        task::group(async |group| {
            group.spawn(async {
                task::shield(task::sleep(5 * MILLISECOND)).await;
                3
            });
            assert_eq!(collect_until(&group, soon()).await, [3]);
        })
        .await;
    });
}

#[test]
fn errors_leave_with_a_question_mark() {
    everywhere(|| async {
        let failed = task::try_group(async |group| {
            group.spawn(async { Err::<usize, _>("failed") });
            group.spawn(until_stopped());
            let deadline = late();
            let mut all = Vec::new();
            while let Some(value) = group.next_until(deadline).await.transpose()? {
                all.push(value);
            }
            Ok(all)
        });
        assert_eq!(failed.await, Err("failed"));
    });
}

#[test]
fn the_panic_of_a_child_unwinds_from_it() {
    let task = Task::new(task::group(async |group| {
        group.spawn(async { quiet_panic() });
        group.spawn(until_stopped::<usize>());
        group.next_until(late()).await
    }));
    assert_eq!(panic_message(|| sync_wait(task)), PANIC);
}

#[test]
fn a_cancelled_task_stops_there() {
    on_each(
        || {
            let source = StopSource::new();
            let token = source.token();
            Task::new(task::group(async move |group| {
                group.spawn(async move {
                    hops(3).await;
                    source.request_stop();
                    until_stopped::<()>().await;
                });
                group.next_until(late()).await;
                panic!("it was stopped");
            }))
            .write_env(WithStopToken(token))
        },
        |run| assert!(run().is_stopped()),
    );
}

#[test]
fn it_runs_on_a_timer_of_its_own() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let task = Task::new(task::group(async move |group| {
        group.spawn(until_stopped());
        group.spawn(async { 7 });
        let deadline = soon();
        let mut all = Vec::new();
        while let Some(value) = group.next_until(deadline).on(&timer).await {
            all.push(value);
        }
        all
    }));
    assert_eq!(run_loop.run_until(task).unwrap(), [7]);
}

#[test]
fn it_works_in_executors_of_other_crates() {
    let all = futures_lite::future::block_on(task::group(async |group| {
        group.spawn(until_stopped());
        group.spawn(async { 7 });
        collect_until(&group, soon()).await
    }));
    assert_eq!(all, [7]);
}

// The other two ways, without a method of the group.

#[test]
fn a_deadline_around_the_group_leaves_what_next_ended_gives() {
    everywhere(|| async {
        let census = Census::new();
        let counted = census.clone();
        let found = task::with_timeout(
            MILLISECOND,
            task::group(async move |group| {
                // On a busy machine the deadline may pass between two spawns, and the group refuses the rest.
                let mut expected = Vec::new();
                for number in 0..10 {
                    let held = counted.value();
                    let child = group.try_spawn(async move {
                        let _held = held;
                        assert!(task::deadline().is_some());
                        match number % 3 {
                            0 => until_stopped::<()>().await,
                            1 => pending::<()>().await,
                            _ => {}
                        }
                        number
                    });
                    expected.extend(child.is_ok_and(|()| number % 3 == 2).then_some(number));
                }
                let lingering = group.try_spawn(lingers(10, counted.value()));
                expected.extend(lingering.is_ok().then_some(10));
                let mut found = Vec::new();
                while let Some(ended) = group.next_ended().await {
                    found.extend(ended.ok());
                }
                (found, expected)
            }),
        );
        let (mut found, expected) = found.await.expect("the body returns its value");
        found.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_deadline_around_gather_leaves_all_results() {
    everywhere(|| async {
        let begun = Arc::new([const { AtomicBool::new(false) }; 6]);
        let ran = begun.clone();
        let children = (0..6).map(move |number| {
            let begun = begun.clone();
            async move {
                begun[number].store(true, SeqCst);
                if number % 2 == 1 {
                    let Ok(()) = never::<(), Infallible>().await;
                }
                number
            }
        });
        let results = task::with_timeout(MILLISECOND, task::gather(AllResults::new(), children)).await;
        for (number, result) in results.expect("it returns its value").into_iter().enumerate() {
            // On a busy machine the deadline may pass before the group has all children.
            let has_value = number % 2 == 0 && ran[number].load(SeqCst);
            match result {
                Ok(value) => assert!(value == number && has_value),
                Err(error) => assert!(matches!(error, TaskError::Cancelled) && !has_value),
            }
        }
    });
}
