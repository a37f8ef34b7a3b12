//! `task::group`, `try_group`, `discarding_group`, `supervised_group`: a body and its children.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use crate::common::tasks::*;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, LocalTask, SpawnErrorKind, SpawnOptions, Task, TaskError, TaskGroup};
use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

/// Takes all results of a group.
async fn collect<T: Send + 'static>(group: &TaskGroup<T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(value) = group.next().await {
        all.push(value);
    }
    all
}

/// Spawns children that each end with their number when they are told to.
fn spawn_told(group: &TaskGroup<usize>, count: usize) -> Vec<oneshot::Sender<()>> {
    (0..count)
        .map(|number| {
            let (tell, told) = oneshot::channel();
            group.spawn(async move {
                told.await.expect("it is told");
                number
            });
            tell
        })
        .collect()
}

/// Returns the numbers from zero, in some order.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = XorShift::new(seed);
    let mut numbers: Vec<_> = (0..count).collect();
    for last in (1..count).rev() {
        numbers.swap(last, random.below(last as u64 + 1) as usize);
    }
    numbers
}

// Children and the body.

#[test]
fn children_that_nobody_asks_about_are_awaited_and_not_cancelled() {
    everywhere(|| async {
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = ended.clone();
        let group = task::group(async move |group| {
            for rounds in 0..50 {
                let counter = counter.clone();
                group.spawn(async move {
                    hops(rounds).await;
                    // A stop would end it here.
                    let Ok(()) = from_future(hops(1)).await;
                    counter.fetch_add(1, SeqCst);
                });
            }
            group
        })
        .await;
        assert_eq!(ended.load(SeqCst), 50);
        assert!(!group.is_cancelled());
    });
}

#[test]
fn the_body_and_the_value_it_returns_may_be_anything() {
    everywhere(|| async {
        let text = String::from("borrowed");
        let length = task::group(async |group| {
            group.spawn(async { 1 });
            let borrowed = &text;
            assert_eq!(group.next().await, Some(1));
            borrowed.len()
        })
        .await;
        assert_eq!(length, 8);
        assert_eq!(task::group::<(), _, _>(async |_| 7).await, 7);
    });
}

#[test]
fn futures_tasks_and_senders_are_children() {
    everywhere(|| async {
        let sum = task::group(async |group| {
            group.spawn(async { Ok::<_, Infallible>(1) });
            group.spawn(Task::new(async { 20 }));
            group.spawn(just(300));
            group.spawn(just(4000).then(|number| number).boxed());
            group.spawn(Task::new(async { just(50_000).await.unwrap() }).then(|number| number));
            let mut sum = 0;
            while let Some(Ok(number)) = group.next().await {
                sum += number;
            }
            sum
        })
        .await;
        assert_eq!(sum, 54_321);
    });
}

#[test]
fn children_run_where_the_group_does() {
    let pool = ThreadPool::builder()
        .threads(2)
        .names(|_| "the pool".to_owned())
        .build()
        .expect("a pool");
    let named = || {
        Task::new(task::group(async |group| {
            for _ in 0..20 {
                group.spawn(async {
                    let before = thread::current().name().map(str::to_owned);
                    hops(3).await;
                    (before, thread::current().name().map(str::to_owned))
                });
            }
            collect(&group).await
        }))
    };
    for (before, after) in sync_wait(starts_on(pool.scheduler(), named())).unwrap() {
        assert_eq!(
            (before.as_deref(), after.as_deref()),
            (Some("the pool"), Some("the pool"))
        );
    }
    let here = thread::current().name().map(str::to_owned);
    for (before, after) in sync_wait(named()).unwrap() {
        assert_eq!((&before, &after), (&here, &here));
    }
}

#[test]
fn it_runs_on_the_inline_scheduler() {
    let task = Task::new(task::group(async |group| {
        for number in 0..100 {
            group.spawn(async move {
                hops(number % 3).await;
                number
            });
        }
        collect(&group).await.len()
    }));
    assert_eq!(sync_wait(starts_on(InlineScheduler, task)).unwrap(), 100);
}

#[test]
fn a_child_begins_before_anybody_waits_for_it() {
    everywhere(|| async {
        task::group(async |group| {
            let (tell, told) = oneshot::channel();
            group.spawn(async { tell.send(()).expect("somebody waits") });
            told.await.expect("it runs");
        })
        .await;
    });
}

// `next`.

#[test]
fn next_of_an_empty_group_is_none_without_suspending() {
    everywhere(|| async {
        task::group(async |group| {
            assert_eq!(poll_once(group.next()).await, Some(None));
            assert!(matches!(poll_once(group.next_ended()).await, Some(None)));
            assert_eq!(poll_once(group.wait_for_all()).await, Some(()));
            assert!(group.is_empty());
            group.spawn(async { 1 });
            assert_eq!(group.next().await, Some(1));
            assert_eq!(poll_once(group.next()).await, Some(None));
            assert!(group.is_empty());
        })
        .await;
    });
}

#[test]
fn a_result_that_is_there_is_taken_without_suspending() {
    everywhere(|| async {
        task::group(async |group| {
            group.spawn(async { 1 });
            group.wait_for_all().await;
            assert_eq!(group.len(), 1);
            assert_eq!(poll_once(group.next()).await, Some(Some(1)));
        })
        .await;
    });
}

#[test]
fn results_come_in_the_order_of_completion() {
    everywhere(|| async {
        for seed in 0..4 {
            task::group(async |group| {
                let mut tell: Vec<_> = spawn_told(&group, 50).into_iter().map(Some).collect();
                for number in shuffled(50, seed) {
                    let tell = tell[number].take().expect("once");
                    tell.send(()).expect("it waits");
                    assert_eq!(group.next().await, Some(number));
                }
                assert_eq!(group.next().await, None);
            })
            .await;
        }
    });
}

#[test]
fn results_that_wait_come_in_the_order_of_completion_too() {
    everywhere(|| async {
        task::group(async |group| {
            let mut tell: Vec<_> = spawn_told(&group, 50).into_iter().map(Some).collect();
            let order = shuffled(50, 9);
            for (ended, &number) in order.iter().enumerate() {
                tell[number].take().expect("once").send(()).expect("it waits");
                // It has ended before the next one may.
                until_running(&group, 49 - ended).await;
            }
            assert_eq!(collect(&group).await, order);
        })
        .await;
    });
}

#[test]
fn each_result_comes_exactly_once() {
    everywhere(|| async {
        let census = Census::new();
        let seen = task::group(async |group| {
            for number in 0..500 {
                let value = census.value();
                group.spawn(async move {
                    hops(number % 4).await;
                    (number, value)
                });
            }
            let mut seen = BTreeSet::new();
            while let Some((number, _value)) = group.next().await {
                assert!(seen.insert(number), "{number} came twice");
            }
            seen.len()
        })
        .await;
        assert_eq!((seen, census.alive()), (500, 0));
    });
}

#[test]
fn len_counts_those_whose_results_were_not_taken() {
    everywhere(|| async {
        task::group(async |group| {
            let tell = spawn_told(&group, 3);
            assert_eq!((group.len(), group.is_empty()), (3, false));
            for tell in tell {
                tell.send(()).expect("it waits");
            }
            group.wait_for_all().await;
            assert_eq!(group.len(), 3);
            for left in (0..3).rev() {
                assert!(group.next().await.is_some());
                assert_eq!(group.len(), left);
            }
        })
        .await;
    });
}

#[test]
fn several_nexts_at_once_share_the_results() {
    everywhere(|| async {
        task::group(async |group| {
            let tell = spawn_told(&group, 5);
            let taking = join_all((0..8).map(|_| group.next()));
            let telling = async {
                hops(3).await;
                for tell in tell {
                    tell.send(()).expect("it waits");
                    hops(2).await;
                }
            };
            let (taken, ()) = join(taking, telling).await;
            let mut numbers: Vec<_> = taken.iter().flatten().copied().collect();
            numbers.sort_unstable();
            // Three of them find no child left.
            assert_eq!((numbers, taken.len()), (vec![0, 1, 2, 3, 4], 8));
        })
        .await;
    });
}

#[test]
fn who_came_first_gets_the_first() {
    let task = Task::new(task::group(async |group| {
        let tell = spawn_told(&group, 3);
        let (mut a, mut b, mut c) = (
            begin(group.next()).await,
            begin(group.next()).await,
            begin(group.next()).await,
        );
        // All of them are suspended.
        hops(2).await;
        for tell in tell.into_iter().rev() {
            tell.send(()).expect("it waits");
        }
        let taken = (a.as_mut().await, b.as_mut().await, c.as_mut().await);
        assert_eq!(taken, (Some(2), Some(1), Some(0)));
    }));
    sync_wait(task).unwrap();
}

#[test]
fn children_take_the_results_of_others() {
    everywhere(|| async {
        task::group(async |group| {
            let tell = spawn_told(&group, 2);
            let inner = group.clone();
            group.spawn(async move { inner.next().await.expect("one of them") + 100 });
            for tell in tell {
                tell.send(()).expect("it waits");
            }
            // The body takes every result, so the child waits for itself.
            group.wait_for_all().await;
            let mut all = collect(&group).await;
            all.sort_unstable();
            assert!(all == [0, 101] || all == [1, 100], "{all:?}");
        })
        .await;
    });
}

/// The body uses the group without read-modify-writes while no other thread does, and the pool uses `membarrier`.
#[test]
fn the_body_and_other_threads_use_a_group_at_once() {
    const EACH: usize = 2_000;
    const THREADS: usize = 3;
    for membarrier in [true, false] {
        let pool = ThreadPool::builder().threads(2).membarrier(membarrier).build().unwrap();
        let work = Task::new(task::group(async |group: TaskGroup<usize>| {
            let threads: Vec<_> = (1..=THREADS)
                .map(|thread| {
                    let group = group.clone();
                    thread::spawn(move || {
                        for number in 0..EACH {
                            group.spawn(async move { thread * EACH + number });
                            assert!(group.len() <= (THREADS + 1) * EACH);
                        }
                    })
                })
                .collect();
            let mut all = BTreeSet::new();
            for number in 0..EACH {
                group.spawn(async move { number });
                if number % 3 == 0 {
                    all.extend(group.next().await);
                }
            }
            for thread in threads {
                thread.join().expect("it ends");
            }
            all.extend(collect(&group).await);
            all
        }));
        let all = sync_wait(starts_on(pool.scheduler(), work)).unwrap();
        assert!(all.into_iter().eq(0..(THREADS + 1) * EACH));
    }
}

#[test]
fn a_child_that_waits_for_itself_alone_is_ended_by_a_cancel() {
    everywhere(|| async {
        let left = task::group(async |group: TaskGroup<()>| {
            let inner = group.clone();
            group.spawn(async move {
                inner.next().await;
            });
            hops(3).await;
            group.cancel_all();
            group.next().await
        })
        .await;
        assert_eq!(left, None);
    });
}

#[test]
fn a_next_that_was_dropped_loses_nothing() {
    everywhere(|| async {
        task::group(async |group| {
            let tell = spawn_told(&group, 2);
            for _ in 0..10 {
                assert_eq!(poll_once(group.next()).await, None);
            }
            for tell in tell {
                tell.send(()).expect("it waits");
            }
            let mut all = collect(&group).await;
            all.sort_unstable();
            assert_eq!(all, [0, 1]);
        })
        .await;
    });
}

/// Polls a future once with a waker that does nothing, outside of the task.
fn begin_elsewhere<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let pending = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending();
    assert!(pending);
    future
}

/// Waits until so many children run.
async fn until_running<T>(group: &TaskGroup<T>, running: usize) {
    while !format!("{group:?}").contains(&format!("running: {running},")) {
        hops(1).await;
    }
}

#[test]
fn a_result_that_was_given_to_a_dropped_next_goes_before_the_others() {
    everywhere(|| async {
        task::group(async |group| {
            let mut tell = spawn_told(&group, 3).into_iter();
            let first = begin_elsewhere(group.next());
            for left in (0..3).rev() {
                tell.next().expect("three").send(()).expect("it waits");
                until_running(&group, left).await;
            }
            // It was assigned the first, and not polled.
            assert_eq!(group.len(), 2);
            drop(first);
            assert_eq!(group.len(), 3);
            assert_eq!(collect(&group).await, [0, 1, 2]);
        })
        .await;
    });
}

#[test]
fn a_result_that_was_given_to_a_dropped_next_of_a_child_goes_before_the_others() {
    everywhere(|| async {
        task::group(async |group| {
            let mut tell = spawn_told(&group, 3).into_iter();
            let inner = group.clone();
            group.spawn(async move {
                let first = begin(inner.next()).await;
                for left in (1..4).rev() {
                    tell.next().expect("three").send(()).expect("it waits");
                    until_running(&inner, left).await;
                }
                assert_eq!(inner.len(), 3);
                drop(first);
                assert_eq!(inner.len(), 4);
                3
            });
            group.wait_for_all().await;
            assert_eq!(collect(&group).await, [0, 1, 2, 3]);
        })
        .await;
    });
}

#[test]
fn a_result_that_was_given_to_a_dropped_next_goes_to_another_that_waits() {
    everywhere(|| async {
        task::group(async |group| {
            let mut tell = spawn_told(&group, 2);
            let first = begin_elsewhere(group.next());
            let second = begin_elsewhere(group.next());
            tell.remove(0).send(()).expect("it waits");
            until_running(&group, 1).await;
            drop(first);
            assert_eq!(second.await, Some(0));
            tell.remove(0).send(()).expect("it waits");
        })
        .await;
    });
}

#[test]
fn nexts_are_dropped_while_children_end() {
    everywhere(|| async {
        let taken = task::group(async |group| {
            let mut taken = 0;
            for round in 0..300 {
                group.spawn(async move {
                    hops(round % 3).await;
                });
                let next = begin_or_ready(group.next()).await;
                hops(round % 2).await;
                match next {
                    Ok(_) => taken += 1,
                    Err(next) => drop(next),
                }
            }
            taken + collect(&group).await.len()
        })
        .await;
        assert_eq!(taken, 300);
    });
}

/// Polls a future once.
async fn begin_or_ready<F: Future>(future: F) -> Result<F::Output, Pin<Box<F>>> {
    let mut future = Box::pin(future);
    match poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        Poll::Ready(value) => Ok(value),
        Poll::Pending => Err(future),
    }
}

#[test]
fn wait_for_all_leaves_the_results() {
    everywhere(|| async {
        task::group(async |group| {
            for number in 0..20 {
                group.spawn(async move {
                    hops(number).await;
                    number
                });
            }
            join(group.wait_for_all(), group.wait_for_all()).await;
            assert_eq!(group.len(), 20);
            assert_eq!(collect(&group).await.len(), 20);
        })
        .await;
    });
}

// Errors.

#[derive(Debug, PartialEq, Eq)]
struct Burnt(u32);

#[test]
fn an_error_of_the_body_cancels_the_children_awaits_them_and_is_returned() {
    everywhere(|| async {
        let census = Census::new();
        let result: Result<(), _> = task::try_group(async |group| {
            for _ in 0..20 {
                group.spawn(lingers(Ok::<(), _>(()), census.value()));
            }
            hops(2).await;
            Err(Burnt(1))
        })
        .await;
        assert_eq!((result, census.alive()), (Err(Burnt(1)), 0));
    });
}

#[test]
fn an_error_of_the_body_is_the_one_that_is_returned() {
    everywhere(|| async {
        let result: Result<(), _> = task::try_group(async |group| {
            group.spawn(async { Err::<(), _>(Burnt(2)) });
            group.wait_for_all().await;
            Err(Burnt(1))
        })
        .await;
        assert_eq!(result, Err(Burnt(1)));
    });
}

#[test]
fn an_error_that_next_gave_cancels_nobody() {
    everywhere(|| async {
        let sum = task::try_group(async |group| {
            group.spawn(async { Err(Burnt(1)) });
            let (tell, told) = oneshot::channel();
            group.spawn(async move {
                // A stop would end it here.
                let Ok(told) = from_future(told).await;
                told.expect("it is told");
                Ok(5)
            });
            assert_eq!(group.next().await, Some(Err(Burnt(1))));
            assert!(!group.is_cancelled());
            tell.send(()).expect("it waits");
            let Some(Ok(number)) = group.next().await else {
                panic!("the other one was cancelled");
            };
            Ok::<_, Burnt>(number)
        })
        .await;
        assert_eq!(sum, Ok(5));
    });
}

#[test]
fn an_error_that_is_propagated_cancels_the_others() {
    everywhere(|| async {
        let census = Census::new();
        let result = task::try_group(async |group| {
            for _ in 0..20 {
                group.spawn(lingers(Ok(1), census.value()));
            }
            group.spawn(async { Err(Burnt(3)) });
            let mut sum = 0;
            while let Some(number) = group.next().await.transpose()? {
                sum += number;
            }
            Ok(sum)
        })
        .await;
        assert_eq!((result, census.alive()), (Err(Burnt(3)), 0));
    });
}

#[test]
fn an_error_that_nobody_took_cancels_the_others_when_the_body_has_ended() {
    everywhere(|| async {
        // Before the body's end, and after it.
        for before in [true, false] {
            let census = Census::new();
            let result = task::try_group(async |group| {
                for _ in 0..20 {
                    group.spawn(lingers(Ok::<(), _>(()), census.value()));
                }
                let (tell, told) = oneshot::channel::<()>();
                group.spawn(async move {
                    // It resumes when it is told, or when the body is dropped.
                    let _ = told.await;
                    Err(Burnt(4))
                });
                if before {
                    tell.send(()).expect("it waits");
                    while group.len() == 21 && format!("{group:?}").contains("finished: 0") {
                        hops(1).await;
                    }
                    assert!(!group.is_cancelled());
                }
                Ok(())
            })
            .await;
            assert_eq!((result, census.alive()), (Err(Burnt(4)), 0));
        }
    });
}

#[test]
fn an_error_that_comes_with_the_end_of_the_body_cancels_the_others() {
    // If the group missed that, it would wait forever.
    for workers in [2, 8] {
        let pool = ThreadPool::new(workers);
        for round in 0..2000 {
            let task = Task::try_new(task::try_group(async move |group| {
                group.spawn(until_stopped());
                group.spawn(async move { Err::<(), _>(Burnt(6)) });
                hops(round % 4).await;
                Ok(())
            }));
            let outcome = sync_wait(starts_on(pool.scheduler(), task));
            assert_eq!(outcome.err(), Some(Burnt(6)));
        }
    }
}

#[test]
fn the_first_error_is_returned() {
    everywhere(|| async {
        let result = task::try_group(async |group| {
            let mut tell = Vec::new();
            for number in 0..3 {
                let (send, told) = oneshot::channel::<()>();
                tell.push(send);
                group.spawn(async move {
                    told.await.expect("it is told");
                    Err::<(), _>(Burnt(number))
                });
            }
            for (ended, tell) in tell.into_iter().rev().enumerate() {
                tell.send(()).expect("it waits");
                while !format!("{group:?}").contains(&format!("finished: {},", ended + 1)) {
                    hops(1).await;
                }
            }
            Ok(())
        })
        .await;
        assert_eq!(result, Err(Burnt(2)));
    });
}

// Cancelling.

#[test]
fn a_cancelled_group_ends_its_children_and_leaves_its_task_alone() {
    let source = StopSource::new();
    on_each(
        || {
            Task::new(async {
                let census = Census::new();
                task::group(async |group: TaskGroup<()>| {
                    for _ in 0..50 {
                        let held = census.value();
                        group.spawn(async move {
                            let _held = held;
                            until_stopped().await
                        });
                    }
                    group.cancel_all();
                    assert!(group.is_cancelled());
                    assert_eq!(group.next().await, None);
                    // A second call changes nothing.
                    group.cancel_all();
                    assert!(group.is_cancelled());
                })
                .await;
                assert_eq!(census.alive(), 0);
                // A stop would end it here.
                let Ok(()) = from_future(hops(2)).await;
            })
            .write_env(WithStopToken(source.token()))
        },
        |run| assert!(run().is_value()),
    );
    assert!(!source.stop_requested());
}

#[test]
fn what_a_cancelled_child_gives_is_given() {
    everywhere(|| async {
        let census = Census::new();
        let all = task::group(async |group| {
            for number in 0..10 {
                group.spawn(lingers(number, census.value()));
            }
            group.cancel_all();
            collect(&group).await
        })
        .await;
        assert_eq!((all.len(), census.alive()), (10, 0));
    });
}

#[test]
fn the_flag_stays() {
    everywhere(|| async {
        let group = task::group(async |group: TaskGroup<()>| {
            group.cancel_all();
            hops(3).await;
            assert!(group.is_cancelled());
            assert_eq!(group.next().await, None);
            assert!(group.is_cancelled());
            group
        })
        .await;
        assert!(group.is_cancelled());
    });
}

#[test]
fn next_ended_tells_how() {
    everywhere(|| async {
        task::supervised_group(async |group| {
            group.spawn(async { 1 });
            assert!(matches!(group.next_ended().await, Some(Ok(1))));
            group.spawn(async { quiet_panic() });
            match group.next_ended().await {
                Some(Err(error @ TaskError::Panicked(_))) => {
                    assert_eq!(error.into_panic().expect("a panic").message(), Some(PANIC));
                }
                other => panic!("{other:?}"),
            }
            group.spawn(until_stopped());
            group.cancel_all();
            assert!(matches!(group.next_ended().await, Some(Err(TaskError::Cancelled))));
            assert!(group.next_ended().await.is_none());
        })
        .await;
    });
}

/// Spawns a child that is refused unpolled, and returns the error.
fn refused(group: &TaskGroup<()>) -> SpawnErrorKind {
    let census = Census::new();
    let value = census.value();
    let child = |value| async move {
        drop(value);
        panic!("it was refused");
    };
    let refused = group.try_spawn(child(value)).expect_err("it was refused");
    // The child is returned, and dropped by a caller that does not keep it.
    let kind = refused.kind();
    assert_eq!(census.alive(), 1);
    drop(refused.into_inner());
    assert_eq!(census.alive(), 0);
    group.spawn(child(census.value()));
    assert_eq!(census.alive(), 0);
    kind
}

#[test]
fn a_group_that_was_cancelled_refuses() {
    everywhere(|| async {
        task::group(async |group| {
            assert!(group.try_spawn(async {}).is_ok());
            group.cancel_all();
            assert_eq!(refused(&group), SpawnErrorKind::Cancelled);
            let options = || SpawnOptions::new().priority(Priority::Background);
            group.spawn_with(options(), async {});
            let spawned = group.try_spawn_with(options(), async {});
            assert_eq!(spawned.unwrap_err().kind(), SpawnErrorKind::Cancelled);
            group.spawn_when_ready(async {}).await;
            let spawned = group.try_spawn_when_ready(async {}).await;
            assert_eq!(spawned.unwrap_err().kind(), SpawnErrorKind::Cancelled);
            assert_eq!(group.len(), 1);
        })
        .await;
    });
}

#[test]
fn a_group_that_a_child_has_cancelled_refuses() {
    everywhere(|| async {
        task::group(async |group| {
            let inner = group.clone();
            group.spawn(async move {
                inner.cancel_all();
                assert_eq!(refused(&inner), SpawnErrorKind::Cancelled);
            });
            group.next().await;
            assert_eq!(refused(&group), SpawnErrorKind::Cancelled);
        })
        .await;
    });
}

#[test]
fn a_group_whose_child_has_panicked_refuses() {
    everywhere(|| async {
        task::group(async |group| {
            group.spawn(async { quiet_panic() });
            assert!(matches!(group.next_ended().await, Some(Err(TaskError::Panicked(_)))));
            assert!(group.is_cancelled());
            assert_eq!(refused(&group), SpawnErrorKind::Cancelled);
        })
        .await;
    });
}

#[test]
fn a_group_whose_task_was_cancelled_refuses() {
    on_each(
        || {
            let source = StopSource::new();
            let token = source.token();
            Task::new(async move {
                task::group(async |group| {
                    assert!(group.try_spawn(async {}).is_ok());
                    group.next().await;
                    source.request_stop();
                    assert!(group.is_cancelled());
                    assert_eq!(refused(&group), SpawnErrorKind::Cancelled);
                })
                .await;
                // A group that begins afterwards.
                task::group(async |group| {
                    assert!(group.is_cancelled());
                    assert_eq!(refused(&group), SpawnErrorKind::Cancelled);
                })
                .await;
            })
            .write_env(WithStopToken(token))
        },
        |run| assert!(run().is_value()),
    );
}

#[test]
fn what_says_that_a_child_was_refused_can_be_read() {
    for (kind, words) in [
        (SpawnErrorKind::Cancelled, "group is cancelled"),
        (SpawnErrorKind::Ended, "group has ended"),
        (SpawnErrorKind::NoRoom, "limit of the group is zero"),
        (SpawnErrorKind::OutOfMemory, "out of memory"),
    ] {
        assert_eq!(kind.to_string(), words);
    }
    let group = sync_wait(Task::new(task::group(async |group: TaskGroup<()>| group))).unwrap();
    let refused: Box<dyn Error> = Box::new(group.try_spawn(async {}).unwrap_err());
    assert_eq!(refused.to_string(), "group has ended");
    assert_eq!(format!("{refused:?}"), "SpawnError { kind: Ended, .. }");
    assert!(refused.source().is_none());
}

#[test]
fn the_stop_of_the_task_is_that_of_the_group_and_its_children() {
    on_each(
        || {
            let (source, census) = (StopSource::new(), Census::new());
            let token = source.token();
            let kept = census.clone();
            Task::new(async move {
                task::group(async |group| {
                    for _ in 0..50 {
                        group.spawn(lingers(1, census.value()));
                    }
                    let stopping = group.clone();
                    group.spawn(async move {
                        hops(3).await;
                        source.request_stop();
                        assert!(stopping.is_cancelled());
                        1
                    });
                    // A wait for the children continues.
                    let sum: i32 = collect(&group).await.iter().sum();
                    assert_eq!((sum, census.alive()), (51, 0));
                    // Any other wait is stopped.
                    until_stopped::<()>().await;
                })
                .await;
            })
            .write_env(WithStopToken(token))
            .upon_stopped(move || assert_eq!(kept.alive(), 0))
        },
        |run| assert!(run().is_value()),
    );
}

// Panics.

#[test]
fn a_panic_of_a_child_cancels_the_others_and_unwinds_when_they_have_ended() {
    everywhere(|| async {
        let census = Census::new();
        let inside = census.clone();
        let group = Task::new(task::group(async move |group| {
            for _ in 0..20 {
                group.spawn(lingers((), inside.value()));
            }
            group.spawn(async {
                hops(2).await;
                quiet_panic()
            });
        }));
        let panicked = catch(group).await;
        assert_eq!((panicked, census.alive()), (Some(PANIC), 0));
    });
}

/// Returns the message of the panic that a task ends with.
async fn catch(task: Task<()>) -> Option<&'static str> {
    let task = async move {
        let Ok(()) = task.await;
    };
    match std::panic::AssertUnwindSafe(task).catch_unwind().await {
        Ok(()) => None,
        Err(payload) => Some(*payload.downcast::<&'static str>().expect("a message")),
    }
}

#[test]
fn a_panic_comes_out_of_next_and_of_the_stream() {
    everywhere(|| async {
        for stream in [false, true] {
            let group = Task::new(task::group(async move |mut group: TaskGroup<()>| {
                group.spawn(async { quiet_panic() });
                if stream {
                    StreamExt::next(&mut group).await;
                } else {
                    group.next().await;
                }
                unreachable!("it unwinds");
            }));
            assert_eq!(catch(group).await, Some(PANIC));
        }
    });
}

#[test]
fn a_panic_of_the_body_comes_before_those_of_children() {
    everywhere(|| async {
        let census = Census::new();
        let inside = census.clone();
        let group = Task::new(task::group(async move |group| {
            for _ in 0..20 {
                group.spawn(lingers((), inside.value()));
            }
            group.spawn(async { quiet_panic() });
            std::panic::resume_unwind(Box::new("the body"));
        }));
        assert_eq!((catch(group).await, census.alive()), (Some("the body"), 0));
    });
}

#[test]
fn the_first_panic_comes_out() {
    everywhere(|| async {
        let group = Task::new(task::group(async move |group| {
            let (tell, told) = oneshot::channel::<()>();
            group.spawn(async move {
                // The panic of the other child cancels this one.
                task::shield(told).await.expect("it is told");
                quiet_panic()
            });
            group.spawn(async move { std::panic::resume_unwind(Box::new("the first")) });
            while !group.is_cancelled() || !format!("{group:?}").contains("running: 1") {
                hops(1).await;
            }
            tell.send(()).expect("it waits");
        }));
        assert_eq!(catch(group).await, Some("the first"));
    });
}

#[test]
fn a_panic_in_a_discarding_group_comes_out_too() {
    everywhere(|| async {
        let census = Census::new();
        let inside = census.clone();
        let group = Task::new(task::discarding_group(async move |group| {
            group.spawn(lingers((), inside.value()));
            group.spawn(async { quiet_panic() });
        }));
        assert_eq!((catch(group).await, census.alive()), (Some(PANIC), 0));
    });
}

/// The await of a body while a child panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WaitsFor {
    Next,
    WaitForAll,
    /// A channel to which nothing is sent.
    Channel,
    /// A channel to which nothing is sent, under another waker than the task's.
    ChannelUnderAnotherWaker,
    SleepOfAnHour,
    /// A task that does not end.
    Task,
    /// A child bound to a variable that ends only when cancelled.
    LetAsync,
    /// A channel in a shield, a deadline and a scope of a task-local value.
    ChannelInScopes,
}

bowline::task_local! { static KEY: u32; }

impl WaitsFor {
    const ALL: [WaitsFor; 8] = [
        WaitsFor::Next,
        WaitsFor::WaitForAll,
        WaitsFor::Channel,
        WaitsFor::ChannelUnderAnotherWaker,
        WaitsFor::SleepOfAnHour,
        WaitsFor::Task,
        WaitsFor::LetAsync,
        WaitsFor::ChannelInScopes,
    ];

    async fn wait<T: Send + 'static>(self, group: &TaskGroup<T>) {
        const HOUR: Duration = Duration::from_secs(3600);
        let (_never_used, channel) = async_channel::bounded::<()>(1);
        let receive = async { channel.recv().await.expect("nothing is sent, and the other side stays") };
        match self {
            WaitsFor::Next => while group.next().await.is_some() {},
            WaitsFor::WaitForAll => group.wait_for_all().await,
            WaitsFor::Channel => receive.await,
            WaitsFor::ChannelUnderAnotherWaker => {
                FuturesUnordered::from_iter([receive]).next().await;
            }
            WaitsFor::SleepOfAnHour => {
                task::sleep(HOUR).await;
            }
            WaitsFor::Task => {
                // A task that ends when asked to: outside of a task there is no frame that could drop its future.
                let Ok(()) = Task::new(until_stopped()).await;
            }
            WaitsFor::LetAsync => task::let_async(until_stopped()).await,
            WaitsFor::ChannelInScopes => {
                let scoped = KEY.scope(1, task::shield(receive));
                task::with_timeout(HOUR, scoped).await.expect("an hour");
            }
        }
    }
}

/// The groups that unwind when a child panics.
#[derive(Clone, Copy, Debug)]
enum Unwinds {
    Group,
    TryGroup,
    DiscardingGroup,
}

impl Unwinds {
    /// Returns a group with a child that panics after some hops, one that heeds the stop late, and a body that waits.
    fn make(self, waits_for: WaitsFor, late: usize, held: Counted) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        async fn panics<T>(late: usize) -> T {
            hops(late).await;
            quiet_panic()
        }
        match self {
            Unwinds::Group => Box::pin(task::group(async move |group| {
                group.spawn(lingers((), held));
                group.spawn(panics(late));
                waits_for.wait(&group).await;
            })),
            Unwinds::TryGroup => Box::pin(async move {
                let group = task::try_group(async move |group| {
                    group.spawn(lingers(Ok::<_, Infallible>(()), held));
                    group.spawn(panics(late));
                    waits_for.wait(&group).await;
                    Ok(())
                });
                let Ok(()) = group.await;
            }),
            Unwinds::DiscardingGroup => Box::pin(task::discarding_group(async move |group| {
                group.spawn(lingers((), held));
                group.spawn(panics(late));
                waits_for.wait(&group).await;
            })),
        }
    }
}

#[test]
fn whatever_the_body_waits_for_the_panic_of_a_child_ends_its_group() {
    let dog = Watchdog::new(Duration::from_secs(120));
    for kind in [Unwinds::Group, Unwinds::TryGroup, Unwinds::DiscardingGroup] {
        for waits_for in WaitsFor::ALL {
            for late in [0, 5] {
                dog.step(format!("{kind:?} {waits_for:?} {late}"));
                everywhere(|| async move {
                    let census = Census::new();
                    let group = Task::new(kind.make(waits_for, late, census.value()));
                    assert_eq!((catch(group).await, census.alive()), (Some(PANIC), 0));
                    // Now with the panic caught in the task of the group.
                    let census = Census::new();
                    let group = kind.make(waits_for, late, census.value());
                    let caught = std::panic::AssertUnwindSafe(group).catch_unwind().await;
                    let payload = caught.expect_err("it panics").downcast::<&str>();
                    assert_eq!((*payload.expect("a message"), census.alive()), (PANIC, 0));
                });
                if waits_for != WaitsFor::LetAsync {
                    dog.step(format!("{kind:?} {waits_for:?} {late}, outside of a task"));
                    let census = Census::new();
                    let group = kind.make(waits_for, late, census.value());
                    assert_eq!(panic_message(|| pollster::block_on(group)), PANIC);
                    assert_eq!(census.alive(), 0);
                }
            }
        }
    }
}

#[test]
fn a_supervised_group_reports_the_panics_that_were_not_asked_for() {
    const UNSEEN: &str = "the panic of a child of a supervised group";
    /// Panics with a message of its own: other tests of this process panic as well.
    async fn panics(text: &'static str) {
        std::panic::resume_unwind(Box::new(text))
    }
    let (report, reports) = std::sync::mpsc::channel();
    let _hook = ReportHook::set(move |told| {
        if let task::Report::ChildPanic { panic, .. } = told
            && panic.message().is_some_and(|message| message.starts_with(UNSEEN))
        {
            report.send(panic.message().map(str::to_owned)).expect("it is read");
        }
    });
    let dog = Watchdog::new(Duration::from_secs(120));
    for waits_for in ["nothing", "all", "a channel", "a sleep", "a task", "next_ended"] {
        dog.step(waits_for);
        everywhere(move || async move {
            let (open, opened) = async_channel::bounded(1);
            let told = task::supervised_group(async move |group| {
                group.spawn(panics(UNSEEN));
                // It is not cancelled: a stop would end it here, and the body would wait forever.
                group.spawn(async move {
                    let Ok(()) = from_future(hops(5)).await;
                    open.send(()).await.expect("it is open");
                });
                match waits_for {
                    "nothing" => {}
                    "all" => group.wait_for_all().await,
                    "a channel" => opened.recv().await.expect("the child sends"),
                    "a sleep" => {
                        task::sleep(Duration::from_millis(1)).await;
                    }
                    "a task" => {
                        let Ok(()) = Task::new(async move { opened.recv().await.expect("the child sends") }).await;
                    }
                    _ => {
                        // Each is taken, so none is reported.
                        let mut panics = 0;
                        while let Some(ended) = group.next_ended().await {
                            panics += usize::from(ended.is_err());
                        }
                        return panics;
                    }
                }
                assert!(!group.is_cancelled());
                0
            });
            assert_eq!(told.await, usize::from(waits_for == "next_ended"));
        });
        // Once for each of the four schedulers.
        let expected = if waits_for == "next_ended" { 0 } else { 4 };
        let reported: Vec<_> = reports.try_iter().collect();
        assert_eq!(reported, vec![Some(UNSEEN.to_owned()); expected], "{waits_for}");
    }
}

#[test]
fn the_destructor_of_a_discarded_value_may_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            quiet_panic();
        }
    }
    everywhere(|| async {
        // The value is not taken.
        let group = Task::new(task::group(async |group| {
            for _ in 0..3 {
                group.spawn(async { Bomb });
            }
        }));
        assert_eq!(catch(group).await, Some(PANIC));
        // Now with the group dropped.
        let group = Task::new(async {
            let group = begin(task::group(async |group| {
                group.spawn(async { Bomb });
                group.wait_for_all().await;
                std::future::pending::<()>().await;
            }))
            .await;
            hops(5).await;
            drop(group);
        });
        assert_eq!(catch(group).await, None);
    });
}

#[test]
fn a_panic_that_nobody_takes_cancels_nobody_in_a_supervised_group() {
    everywhere(|| async {
        let sum = task::supervised_group(async |group| {
            for number in 0..10 {
                group.spawn(async move {
                    hops(number % 3).await;
                    if number % 2 == 0 {
                        quiet_panic();
                    }
                    // A stop would end it here.
                    let Ok(()) = from_future(hops(3)).await;
                    number
                });
            }
            let mut sum = 0;
            while let Some(ended) = group.next_ended().await {
                sum += ended.unwrap_or(0);
            }
            assert!(!group.is_cancelled());
            group.spawn(async { quiet_panic() });
            sum
        })
        .await;
        assert_eq!(sum, 1 + 3 + 5 + 7 + 9);
    });
}

#[test]
fn the_first_success_and_a_quorum_are_loops_over_next_ended() {
    everywhere(|| async {
        // The first that succeeds.
        let first = task::supervised_group(async |group| {
            group.spawn(async { Err(Burnt(1)) });
            group.spawn(async { quiet_panic() });
            group.spawn(async {
                hops(10).await;
                Ok(7)
            });
            group.spawn(until_stopped());
            while let Some(ended) = group.next_ended().await {
                if let Ok(Ok(value)) = ended {
                    group.cancel_all();
                    return Some(value);
                }
            }
            None
        })
        .await;
        assert_eq!(first, Some(7));
        // Three of five.
        let census = Census::new();
        let quorum = task::supervised_group(async |group| {
            for number in 0..5 {
                let held = census.value();
                group.spawn(async move {
                    let _held = held;
                    if number % 2 == 1 {
                        until_stopped::<()>().await;
                    }
                    number
                });
            }
            let mut voted = Vec::new();
            while voted.len() < 3
                && let Some(ended) = group.next_ended().await
            {
                voted.extend(ended.ok());
            }
            group.cancel_all();
            voted.sort_unstable();
            voted
        })
        .await;
        assert_eq!((quorum, census.alive()), (vec![0, 2, 4], 0));
    });
}

// Limits.

/// A counter of the children that run at once.
#[derive(Clone, Default)]
struct Load(Arc<(AtomicUsize, AtomicUsize)>);

impl Load {
    /// Runs for a while.
    async fn run(self, rounds: usize) {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
        hops(rounds).await;
        now.fetch_sub(1, SeqCst);
    }

    fn most(&self) -> usize {
        self.0.1.load(SeqCst)
    }
}

#[test]
fn spawn_when_ready_never_exceeds_the_limit() {
    everywhere(|| async {
        for limit in [1, 2, 5] {
            let load = Load::default();
            task::group(async |group| {
                group.set_limit(limit);
                for rounds in 0..100 {
                    assert!(group.try_spawn_when_ready(load.clone().run(rounds % 7)).await.is_ok());
                    assert!(group.len() - collect_ready(&group).await <= limit);
                }
                group.wait_for_all().await;
            })
            .await;
            assert!((1..=limit).contains(&load.most()), "{} of {limit}", load.most());
        }
    });
}

/// Takes the available results, and returns their number.
async fn collect_ready(group: &TaskGroup<()>) -> usize {
    let before = group.len();
    while let Some(Some(())) = poll_once(group.next()).await {}
    before - group.len()
}

#[test]
fn the_limit_is_reached() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(3);
            let mut tell = Vec::new();
            for _ in 0..3 {
                let (send, told) = oneshot::channel::<()>();
                tell.push(send);
                let spawned = poll_once(group.try_spawn_when_ready(async { told.await.expect("it is told") })).await;
                assert!(spawned.expect("there is room").is_ok());
            }
            let mut fourth = begin(group.try_spawn_when_ready(async {})).await;
            tell.pop().expect("three").send(()).expect("it waits");
            assert!(fourth.as_mut().await.is_ok());
            for tell in tell {
                tell.send(()).expect("it waits");
            }
            assert_eq!(collect(&group).await.len(), 4);
        })
        .await;
    });
}

#[test]
fn several_wait_for_room_in_the_body_and_in_children() {
    everywhere(|| async {
        let load = Load::default();
        let count = task::group(async |group| {
            // These do not wait, and count.
            for _ in 0..4 {
                let (inner, load) = (group.clone(), load.clone());
                group.spawn(async move {
                    // They have ended before there is room for those that they spawn.
                    let waiting = join_all((0..3).map(|_| inner.try_spawn_when_ready(hops(1))));
                    inner.set_limit(6);
                    assert!(waiting.await.iter().all(|spawned| spawned.is_ok()));
                    drop(load);
                });
            }
            group.wait_for_all().await;
            group.set_limit(2);
            let waiting = join_all((0..50).map(|rounds| group.try_spawn_when_ready(load.clone().run(rounds % 3))));
            assert!(waiting.await.iter().all(|spawned| spawned.is_ok()));
            group.wait_for_all().await;
            collect(&group).await.len()
        })
        .await;
        assert_eq!(count, 4 + 12 + 50);
        assert!((1..=2).contains(&load.most()), "{}", load.most());
    });
}

#[test]
fn a_limit_of_zero_refuses() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(0);
            let spawned = poll_once(group.try_spawn_when_ready(async {})).await;
            assert_eq!(spawned.expect("at once").unwrap_err().kind(), SpawnErrorKind::NoRoom);
            // The limit applies only to `spawn_when_ready`.
            assert!(group.try_spawn(async {}).is_ok());
            let spawned = poll_once(group.try_spawn_when_ready(async {})).await;
            assert_eq!(spawned.expect("at once").unwrap_err().kind(), SpawnErrorKind::NoRoom);
            group.set_limit(1);
            assert!(group.try_spawn_when_ready(async {}).await.is_ok());
            assert_eq!(collect(&group).await.len(), 2);
        })
        .await;
    });
}

#[test]
fn a_limit_that_becomes_zero_refuses_those_that_wait() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let (tell, told) = oneshot::channel::<()>();
            group.spawn(async { told.await.expect("it is told") });
            let (first, second) = (
                begin(group.try_spawn_when_ready(async {})).await,
                begin(group.try_spawn_when_ready(async {})).await,
            );
            group.set_limit(0);
            // There will never be room, whether or not a child runs.
            assert_eq!(first.await.unwrap_err().kind(), SpawnErrorKind::NoRoom);
            assert_eq!(second.await.unwrap_err().kind(), SpawnErrorKind::NoRoom);
            tell.send(()).expect("it waits");
        })
        .await;
    });
}

#[test]
fn a_limit_that_becomes_zero_with_the_wait_refuses_too() {
    // If that was missed, the wait would be forever.
    let pool = ThreadPool::new(2);
    for _ in 0..2000 {
        let task = Task::new(task::group(async |group| {
            group.set_limit(1);
            let inner = group.clone();
            group.spawn_with(SpawnOptions::new(), async move { inner.set_limit(0) });
            let spawned = group.try_spawn_when_ready(async {}).await;
            assert!(spawned.map_or_else(|refused| refused.kind() == SpawnErrorKind::NoRoom, |()| true));
        }));
        assert!(sync_wait(starts_on(pool.scheduler(), task)).is_value());
    }
}

#[test]
fn a_higher_limit_lets_those_in_that_wait() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let tell = spawn_told(&group, 1);
            let first = begin(group.try_spawn_when_ready(async { 7 })).await;
            let second = begin(group.try_spawn_when_ready(async { 8 })).await;
            group.set_limit(3);
            assert!(first.await.is_ok() && second.await.is_ok());
            for tell in tell {
                tell.send(()).expect("it waits");
            }
            assert_eq!(collect(&group).await.len(), 3);
        })
        .await;
    });
}

#[test]
fn a_wait_for_room_that_was_dropped_gives_its_place_to_others() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let mut tell = spawn_told(&group, 1);
            let first = begin(group.try_spawn_when_ready(async { 7 })).await;
            let second = begin(group.try_spawn_when_ready(async { 8 })).await;
            tell.remove(0).send(()).expect("it waits");
            // The first was assigned the room, and does not use it.
            hops(10).await;
            drop(first);
            assert!(second.await.is_ok());
            let mut all = collect(&group).await;
            all.sort_unstable();
            assert_eq!(all, [0, 8]);
        })
        .await;
    });
}

#[test]
fn a_cancel_refuses_those_that_wait_for_room() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            group.set_limit(1);
            group.spawn(lingers((), census.value()));
            let waiting = begin(group.try_spawn_when_ready(async { panic!("it was refused") })).await;
            let inner = group.clone();
            // A child that waits for room is stopped by the same cancellation.
            group.spawn(async move {
                inner.spawn_when_ready(async { panic!("it was refused") }).await;
            });
            hops(3).await;
            group.cancel_all();
            assert_eq!(waiting.await.unwrap_err().kind(), SpawnErrorKind::Cancelled);
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn the_stop_of_the_task_ends_a_wait_for_room() {
    on_each(
        || {
            let source = StopSource::new();
            let token = source.token();
            Task::new(task::group(async move |group| {
                group.set_limit(1);
                group.spawn(async move {
                    hops(3).await;
                    source.request_stop();
                    until_stopped::<()>().await;
                });
                group.spawn_when_ready(async { panic!("it was refused") }).await;
                // Refused, or stopped at the wait: whichever saw the stop first.
                until_stopped::<()>().await;
            }))
            .write_env(WithStopToken(token))
        },
        |run| assert!(run().is_stopped()),
    );
}

// As a stream.

#[test]
fn a_group_is_a_stream() {
    everywhere(|| async {
        let sum = task::group(async |group| {
            for number in 0..100 {
                group.spawn(async move {
                    hops(number % 5).await;
                    number
                });
            }
            group.spawn(until_stopped());
            let inner = group.clone();
            group.spawn(async move {
                hops(30).await;
                inner.cancel_all();
                0
            });
            // A child that stops has no result, and is skipped.
            group.fold(0, async |sum, number| sum + number).await
        })
        .await;
        assert_eq!(sum, 99 * 50);
    });
}

#[test]
fn nexts_and_streams_work_in_executors_inside_a_task() {
    everywhere(|| async {
        let numbers = task::group(async |group| {
            let tell = spawn_told(&group, 60);
            // Each of these has a waker of its own.
            let mut taking = FuturesUnordered::new();
            for number in 0..60 {
                let mut group = group.clone();
                taking.push(async move {
                    if number % 2 == 0 {
                        group.next().await
                    } else {
                        StreamExt::next(&mut group).await
                    }
                });
            }
            let telling = async {
                for tell in tell {
                    tell.send(()).expect("it waits");
                    hops(1).await;
                }
            };
            let taken = async {
                let mut numbers = BTreeSet::new();
                while let Some(Some(number)) = taking.next().await {
                    assert!(numbers.insert(number), "{number} came twice");
                }
                numbers
            };
            let (numbers, ()) = join(taken, telling).await;
            numbers.len()
        })
        .await;
        assert_eq!(numbers, 60);
    });
}

#[test]
fn a_waker_may_use_the_group_when_it_is_cloned_woken_and_dropped() {
    /// A waker that inspects the group whenever it is used.
    struct Looks(TaskGroup<()>, AtomicUsize);

    /// # Safety
    ///
    /// `data` is a counted pointer to a `Looks`.
    unsafe fn clone(data: *const ()) -> RawWaker {
        // SAFETY: the caller's promise.
        let looks = unsafe { &*data.cast::<Looks>() };
        looks.1.fetch_add(1 + looks.0.len(), SeqCst);
        // SAFETY: the caller's promise.
        unsafe { Arc::increment_strong_count(data.cast::<Looks>()) };
        RawWaker::new(data, &VTABLE)
    }

    /// # Safety
    ///
    /// `data` is a counted pointer to a `Looks`.
    unsafe fn look(data: *const ()) {
        // SAFETY: the caller's promise.
        let looks = unsafe { &*data.cast::<Looks>() };
        looks.1.fetch_add(1 + looks.0.len(), SeqCst);
    }

    /// # Safety
    ///
    /// `data` is a counted pointer to a `Looks`; the call consumes one reference.
    unsafe fn forget(data: *const ()) {
        // SAFETY: the caller's promise.
        unsafe {
            look(data);
            Arc::decrement_strong_count(data.cast::<Looks>());
        }
    }

    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, forget, look, forget);

    everywhere(|| async {
        task::group(async |mut group| {
            let (tell, told) = oneshot::channel::<()>();
            group.spawn(async { told.await.expect("it is told") });
            let looks = Arc::new(Looks(group.clone(), AtomicUsize::new(0)));
            // SAFETY: the functions keep the contract of a waker, with a reference count of their own.
            let waker = unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(looks.clone()).cast(), &VTABLE)) };
            for _ in 0..2 {
                let mut next = StreamExt::next(&mut group);
                let polled = Pin::new(&mut next).poll(&mut Context::from_waker(&waker));
                assert!(polled.is_pending());
            }
            drop(waker);
            tell.send(()).expect("it waits");
            assert_eq!(group.next().await, Some(()));
            group.wait_for_all().await;
            // Cloned and dropped here, and woken there.
            while Arc::strong_count(&looks) != 1 {
                hops(1).await;
            }
            assert!(looks.1.load(SeqCst) >= 3);
        })
        .await;
    });
}

#[test]
fn groups_work_in_executors_inside_a_task() {
    everywhere(|| async {
        let mut groups = FuturesUnordered::new();
        for count in 0..40 {
            groups.push(task::group(async move |group| {
                for number in 0..count {
                    group.spawn(hops(number % 4));
                }
                if count % 2 == 0 {
                    assert_eq!(collect(&group).await.len(), count);
                }
                count
            }));
        }
        let mut sum = 0;
        while let Some(count) = groups.next().await {
            sum += count;
        }
        assert_eq!(sum, 39 * 20);
    });
}

// In executors of other crates.

async fn sum_of_squares() -> usize {
    task::group(async |group| {
        group.set_limit(4);
        for number in 1..=100 {
            let spawned = group
                .try_spawn_when_ready(async move {
                    hops(number % 3).await;
                    number * number
                })
                .await;
            assert!(spawned.is_ok());
        }
        collect(&group).await.iter().sum()
    })
    .await
}

#[test]
fn groups_work_in_executors_of_other_crates() {
    assert_eq!(pollster::block_on(sum_of_squares()), 338_350);
    assert_eq!(futures_lite::future::block_on(sum_of_squares()), 338_350);
    let executor = async_executor::Executor::new();
    let task = executor.spawn(sum_of_squares());
    assert_eq!(futures_lite::future::block_on(executor.run(task)), 338_350);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .expect("a runtime");
    let all: Vec<_> = (0..10).map(|_| runtime.spawn(sum_of_squares())).collect();
    for task in all {
        assert_eq!(runtime.block_on(task).expect("it did not panic"), 338_350);
    }
}

#[test]
fn errors_panics_and_cancels_work_in_executors_of_other_crates() {
    let census = Census::new();
    let failed = task::try_group(async |group| {
        group.spawn(lingers(Ok::<(), _>(()), census.value()));
        group.spawn(async { Err(Burnt(1)) });
        Ok(())
    });
    assert_eq!((pollster::block_on(failed), census.alive()), (Err(Burnt(1)), 0));
    let panicked = task::group(async |group| {
        group.spawn(lingers((), census.value()));
        group.spawn(async { quiet_panic() });
    });
    assert_eq!(panic_message(|| pollster::block_on(panicked)), PANIC);
    assert_eq!(census.alive(), 0);
    let cancelled = task::group(async |group| {
        group.spawn(lingers(1, census.value()));
        group.cancel_all();
        assert_eq!(
            group.try_spawn(async { 2 }).unwrap_err().kind(),
            SpawnErrorKind::Cancelled
        );
        collect(&group).await
    });
    assert_eq!((pollster::block_on(cancelled), census.alive()), (vec![1], 0));
}

// Groups in groups, and in local tasks.

#[test]
fn groups_nest() {
    fn tree(depth: usize) -> Pin<Box<dyn Future<Output = usize> + Send>> {
        Box::pin(task::group(async move |group| {
            if depth == 0 {
                return 1;
            }
            for _ in 0..4 {
                group.spawn(tree(depth - 1));
            }
            collect(&group).await.iter().sum()
        }))
    }
    everywhere(|| async { assert_eq!(tree(5).await, 1024) });
}

#[test]
fn a_cancel_reaches_groups_inside_and_leaves_those_around_alone() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |outer| {
            let (kept, inner) = (outer.clone(), census.value());
            let census = census.clone();
            outer.spawn(async move {
                let deepest = census.value();
                task::group(async move |middle: TaskGroup<()>| {
                    middle.spawn(async move {
                        task::group(async move |group| {
                            group.spawn(lingers((), deepest));
                            group.spawn(lingers((), inner));
                        })
                        .await;
                    });
                    hops(3).await;
                    middle.cancel_all();
                })
                .await;
                assert_eq!(census.alive(), 0);
                assert!(!kept.is_cancelled());
            });
            // A stop would end it here.
            outer.spawn(async {
                let Ok(()) = from_future(hops(30)).await;
            });
            assert_eq!(collect(&outer).await.len(), 2);
        })
        .await;
    });
}

#[test]
fn children_spawn_more() {
    fn grow(group: TaskGroup<usize>, depth: usize) -> Pin<Box<dyn Future<Output = usize> + Send>> {
        Box::pin(async move {
            if depth > 0 {
                for _ in 0..3 {
                    assert!(group.try_spawn(grow(group.clone(), depth - 1)).is_ok());
                }
            }
            1
        })
    }
    everywhere(|| async {
        for next in [true, false] {
            let kept = task::group(async |group| {
                group.spawn(grow(group.clone(), 5));
                if next {
                    assert_eq!(collect(&group).await.len(), 364);
                }
                group
            })
            .await;
            assert!(kept.is_empty());
        }
    });
}

#[test]
fn a_local_task_has_groups_whose_body_is_not_send() {
    let sum = sync_wait(LocalTask::new(async {
        let seen = Rc::new(Cell::new(0));
        let inside = seen.clone();
        task::group(async move |group| {
            for number in 1..=100 {
                group.spawn(async move {
                    hops(number % 3).await;
                    number
                });
            }
            while let Some(number) = group.next().await {
                inside.set(inside.get() + number);
            }
        })
        .await;
        // A group that is dropped.
        let census = Census::new();
        let (held, kept) = (census.value(), seen.clone());
        let group = begin(task::group(async move |group| {
            group.spawn(lingers((), held));
            std::future::pending::<()>().await;
            drop(kept);
        }))
        .await;
        drop(group);
        (seen.get(), census)
    }));
    let (sum, census) = sum.unwrap();
    assert_eq!((sum, census.alive()), (5050, 0));
}

// Options.

#[test]
fn a_child_has_the_priority_that_it_is_given_or_that_of_the_group() {
    everywhere(|| async {
        task::group(async |group| {
            let options = SpawnOptions::new().priority(Priority::UserInitiated);
            group.spawn_with(options, async {
                let inherited = task::group(async |inner| {
                    inner.spawn(async { task::priority() });
                    inner.next().await
                })
                .await;
                (task::priority(), inherited)
            });
            let ended = group.next().await.expect("one");
            assert_eq!(ended, (Priority::UserInitiated, Some(Priority::UserInitiated)));
        })
        .await;
    });
}

#[test]
fn a_child_runs_on_the_scheduler_that_it_is_given() {
    let other = ThreadPool::builder()
        .threads(1)
        .names(|_| "the other".to_owned())
        .build()
        .expect("a pool");
    let scheduler = other.scheduler();
    everywhere(move || async move {
        task::group(async |group| {
            for own in [false, true] {
                let options = match own {
                    false => SpawnOptions::new().scheduler(scheduler),
                    true => SpawnOptions::new().scheduler(Via(scheduler)),
                };
                group.spawn_with(options, async {
                    let mut names = Vec::new();
                    for _ in 0..5 {
                        names.push(thread::current().name().map(str::to_owned));
                        hops(1).await;
                    }
                    names
                });
            }
            let names = collect(&group).await.concat();
            assert_eq!(names.len(), 10);
            assert!(
                names.iter().all(|name| name.as_deref() == Some("the other")),
                "{names:?}"
            );
        })
        .await;
    });
}

#[test]
fn a_group_runs_on_a_scheduler_of_the_users_own() {
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        let census = Census::new();
        let inside = census.clone();
        let task = Task::new(task::group(async move |group| {
            for number in 0..50 {
                group.spawn(async move {
                    hops(number % 4).await;
                    number
                });
            }
            let sum: usize = collect(&group).await.iter().sum();
            group.spawn(lingers(0, inside.value()));
            group.cancel_all();
            sum
        }));
        assert_eq!(sync_wait(starts_on(Via(pool.scheduler()), task)).unwrap(), 49 * 25);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_group_shows_and_equals_itself() {
    everywhere(|| async {
        task::group(async |group: TaskGroup<()>| {
            assert_eq!(group, group.clone());
            let shown = format!("{group:?}");
            assert!(
                shown.contains("running: 0") && shown.contains("is_cancelled: false"),
                "{shown}"
            );
            task::group(async |other: TaskGroup<()>| assert_ne!(group, other)).await;
        })
        .await;
    });
}
