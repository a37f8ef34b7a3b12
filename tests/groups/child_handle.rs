//! `ChildHandle`: one child of a group is cancelled alone.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::tasks::*;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{self, ChildHandle, Reason, SpawnErrorKind, SpawnOptions, Task, TaskError, TaskGroup};

const LEFT: Reason = Reason::Custom("the client has left");

/// Starts a child that can be cancelled alone.
fn spawn<T: Send + 'static>(group: &TaskGroup<T>, child: impl Future<Output = T> + Send + 'static) -> ChildHandle {
    group.spawn_with(SpawnOptions::new().cancellable(), child)
}

/// Waits for a stop, and returns its reason.
async fn until_told_why() -> Option<Reason> {
    assert_eq!(never::<(), Infallible>().stopped_as_option().await, Ok(None));
    task::cancellation_reason()
}

#[test]
fn one_is_cancelled_and_the_others_and_the_group_are_not() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            let handles: Vec<_> = (0..10)
                .map(|number| {
                    let held = census.value();
                    spawn(&group, async move {
                        until_stopped::<()>().await;
                        drop(held);
                        number
                    })
                })
                .collect();
            handles[3].cancel();
            // It has no value, so it is skipped: nothing else has ended.
            let mut next = begin(group.next()).await;
            while census.alive() != 9 {
                hops(1).await;
            }
            assert_eq!(poll_once(next.as_mut()).await, None);
            drop(next);
            let cancelled: Vec<_> = handles.iter().map(ChildHandle::is_cancelled).collect();
            assert_eq!(cancelled.iter().filter(|is| **is).count(), 1);
            assert!(cancelled[3] && handles[3].is_finished() && !handles[4].is_finished());
            assert!(!group.is_cancelled());
            spawn(&group, async { 11 });
            assert_eq!(group.next().await, Some(11));
            for handle in &handles {
                handle.cancel();
            }
            assert_eq!(group.next().await, None);
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn the_group_learns_how_it_ended() {
    everywhere(|| async {
        task::group(async |group| {
            let first = spawn(&group, until_stopped::<u32>());
            first.cancel();
            assert!(matches!(group.next_ended().await, Some(Err(TaskError::Cancelled))));
            // A cancelled child may still return a value.
            let second = spawn(&group, async {
                until_told_why().await;
                7
            });
            second.cancel();
            assert!(matches!(group.next_ended().await, Some(Ok(7))));
            assert_eq!(group.next().await, None);
        })
        .await;
    });
}

#[test]
fn in_every_kind_of_group_a_cancelled_child_is_no_failure() {
    everywhere(|| async {
        let tried = task::try_group(async |group| {
            let handle = spawn(&group, until_stopped::<Result<u32, Infallible>>());
            group.spawn(async { Ok(2) });
            handle.cancel();
            let mut sum = 0;
            while let Some(number) = group.try_next().await? {
                sum += number;
            }
            Ok(sum)
        });
        assert_eq!(tried.await, Ok(2));
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = ended.clone();
        let group = task::discarding_group(async move |group| {
            let handle = spawn(&group, until_stopped());
            group.spawn(async move {
                let Ok(()) = from_future(hops(5)).await;
                counter.fetch_add(1, SeqCst);
            });
            handle.cancel();
            group
        });
        assert!(!group.await.is_cancelled());
        assert_eq!(ended.load(SeqCst), 1);
        let survivors = task::supervised_group(async |group| {
            let handle = spawn(&group, until_stopped());
            group.spawn(async { 1 });
            handle.cancel();
            let mut survivors = 0;
            while let Some(ended) = group.next_ended().await {
                survivors += ended.unwrap_or(0);
            }
            survivors
        });
        assert_eq!(survivors.await, 1);
    });
}

#[test]
fn the_reason_is_the_first_one() {
    everywhere(|| async {
        task::group(async |group| {
            let handle = spawn(&group, until_told_why());
            assert_eq!(handle.cancellation_reason(), None);
            handle.cancel_for(LEFT);
            handle.cancel();
            group.cancel_all();
            assert_eq!(group.next().await, Some(Some(LEFT)));
            assert_eq!(handle.cancellation_reason(), Some(LEFT));
            assert_eq!(group.cancellation_reason(), Some(Reason::Requested));
        })
        .await;
    });
}

#[test]
fn a_cancel_of_the_group_reaches_it() {
    everywhere(|| async {
        task::group(async |group| {
            let handle = spawn(&group, until_told_why());
            group.cancel_all_for(LEFT);
            assert_eq!(handle.cancellation_reason(), Some(LEFT));
            handle.cancel();
            assert_eq!(group.next().await, Some(Some(LEFT)));
        })
        .await;
    });
}

#[test]
fn a_cancel_of_the_task_reaches_it() {
    on_each(
        || {
            let source = StopSource::new();
            let token = source.token();
            Task::new(task::group(async move |group| {
                let handle = spawn(&group, until_told_why());
                source.request_stop();
                let reason = group.next().await;
                assert!(handle.is_cancelled());
                reason
            }))
            .write_env(WithStopToken(token))
        },
        |run| assert_eq!(run().unwrap(), Some(Some(Reason::Requested))),
    );
}

#[test]
fn after_the_end_a_cancel_has_no_effect() {
    everywhere(|| async {
        let handle = task::group(async |group| {
            let handle = spawn(&group, async { 1 });
            assert_eq!(group.next().await, Some(1));
            assert!(handle.is_finished());
            handle.cancel_for(LEFT);
            assert_eq!(handle.cancellation_reason(), None);
            group.cancel_all();
            assert!(!handle.is_cancelled());
            handle
        })
        .await;
        // The group is gone.
        handle.cancel();
        assert!(handle.is_finished() && !handle.is_cancelled());
    });
}

#[test]
fn a_result_that_was_not_taken_is_not_affected() {
    everywhere(|| async {
        task::group(async |group| {
            let handle = spawn(&group, async { 5 });
            group.wait_for_all().await;
            handle.cancel();
            assert_eq!(group.next().await, Some(5));
        })
        .await;
    });
}

#[test]
fn a_child_that_has_not_begun_begins_cancelled() {
    // On a loop, so the child does not begin before the body waits.
    let task = Task::new(task::group(async |group| {
        let handle = spawn(&group, async { task::is_cancelled() });
        handle.cancel();
        group.next().await
    }));
    assert_eq!(sync_wait(task).unwrap(), Some(true));
}

#[test]
fn a_refused_child_has_finished() {
    everywhere(|| async {
        let ended = task::group(async |group: TaskGroup<()>| group).await;
        let cancelled = task::group(async |group| {
            group.cancel_all();
            let handle = spawn(&group, async { unreachable!("it was refused") });
            assert!(handle.is_finished() && !handle.is_cancelled());
            handle.cancel();
            assert!(!handle.is_cancelled());
            let options = SpawnOptions::new().name("refused").cancellable();
            group.try_spawn_with(options, async {}).unwrap_err().kind()
        });
        assert_eq!(cancelled.await, SpawnErrorKind::Cancelled);
        let options = SpawnOptions::new().cancellable();
        let refused = ended.try_spawn_with(options, async {}).unwrap_err();
        assert_eq!(refused.kind(), SpawnErrorKind::Ended);
    });
}

#[test]
fn a_cancel_reaches_what_the_child_has_started() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            let counted = census.clone();
            let handle = spawn(&group, async move {
                let single = task::let_async(lingers((), counted.value()));
                task::group(async |inner| {
                    for _ in 0..3 {
                        inner.spawn(lingers(1, counted.value()));
                        spawn(&inner, lingers(1, counted.value()));
                    }
                    let task = Task::new(lingers(1, counted.value()));
                    let Ok(awaited) = task.await;
                    let mut sum = awaited;
                    while let Some(one) = inner.next().await {
                        sum += one;
                    }
                    single.await;
                    sum
                })
                .await
            });
            while census.alive() != 8 {
                hops(1).await;
            }
            handle.cancel();
            assert_eq!(group.next().await, Some(7));
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_child_that_waits_for_futures_of_other_crates_is_stopped_there() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            let held = census.value();
            let handle = spawn(&group, async move {
                let _held = held;
                pending::<()>().await;
            });
            hops(3).await;
            handle.cancel();
            assert!(matches!(group.next_ended().await, Some(Err(TaskError::Cancelled))));
            assert_eq!(census.alive(), 0);
        })
        .await;
    });
}

#[test]
fn shields_handlers_and_deadlines_inside_work_as_in_any_task() {
    everywhere(|| async {
        let called = Arc::new(AtomicBool::new(false));
        let noted = called.clone();
        task::group(async |group| {
            let handle = spawn(&group, async move {
                let handler = move || noted.store(true, SeqCst);
                task::with_cancellation_handler(handler, until_told_why()).await;
                let shielded = task::shield(async {
                    task::sleep(Duration::from_millis(1)).await;
                    !task::is_cancelled()
                });
                let shielded = shielded.await;
                // The deadline is not the first reason, so the stop is that of the child.
                task::with_timeout(Duration::from_secs(60), until_stopped::<()>())
                    .await
                    .ok();
                shielded
            });
            hops(3).await;
            handle.cancel();
            assert!(matches!(group.next_ended().await, Some(Err(TaskError::Cancelled))));
        })
        .await;
        assert!(called.load(SeqCst));
    });
}

#[test]
fn a_child_cancels_itself_and_a_sibling() {
    everywhere(|| async {
        task::group(async |group| {
            let (give, gets) = async_channel::bounded::<ChildHandle>(2);
            let receiver = gets.clone();
            let own = spawn(&group, async move {
                let handle = receiver.recv().await.expect("a handle");
                handle.cancel();
                assert!(task::is_cancelled() && !handle.is_finished());
                1
            });
            give.try_send(own).expect("there is room");
            assert_eq!(group.next().await, Some(1));
            let sibling = spawn(&group, until_stopped());
            group.spawn(async move {
                gets.recv().await.expect("a handle").cancel();
                2
            });
            give.try_send(sibling).expect("there is room");
            assert_eq!(group.next().await, Some(2));
            assert_eq!(group.next().await, None);
        })
        .await;
    });
}

#[test]
fn the_task_says_that_it_was_cancelled() {
    everywhere(|| async {
        task::group(async |group| {
            let (give, gets) = async_channel::bounded(1);
            let options = SpawnOptions::new().name("patient").cancellable();
            let handle = group.spawn_with(options, async move {
                give.try_send(task::current().expect("a task")).expect("there is room");
                until_told_why().await;
            });
            let task = gets.recv().await.expect("a task");
            assert!(!task.is_cancelled());
            handle.cancel_for(LEFT);
            assert_eq!(task.cancellation_reason(), Some(LEFT));
            assert_eq!(group.next().await, Some(()));
            assert_eq!((task.name(), task.cancellation_reason()), (Some("patient"), Some(LEFT)));
            assert!(!task.parent().expect("a parent").is_cancelled());
        })
        .await;
    });
}

#[test]
fn a_child_may_have_a_scheduler_and_an_allocator_of_its_own() {
    let elsewhere = ThreadPool::new(2);
    let scheduler = elsewhere.scheduler();
    everywhere(move || {
        let options = SpawnOptions::new()
            .scheduler(Via(scheduler))
            .cancellable()
            .allocator(allocator_api2::alloc::Global)
            .priority(Priority::Utility);
        async move {
            task::group(async move |group| {
                for _ in 0..20 {
                    let handle = group.spawn_with(options.clone(), until_stopped::<()>());
                    hops(1).await;
                    handle.cancel();
                    assert!(matches!(group.next_ended().await, Some(Err(TaskError::Cancelled))));
                }
            })
            .await;
        }
    });
}

#[test]
fn a_handle_keeps_nothing_of_the_group_or_the_child_alive() {
    bowline::task_local! { static HELD: Arc<Counted>; }
    everywhere(|| async {
        let census = Census::new();
        let (held, captured) = (Arc::new(census.value()), census.value());
        let handle = HELD.scope(held, async {
            task::group(async |group| {
                let handle = spawn(&group, async move {
                    let _captured = captured;
                    until_stopped::<()>().await;
                });
                handle.cancel();
                handle
            })
            .await
        });
        let handle = handle.await;
        assert_eq!(census.alive(), 0);
        assert!(handle.is_finished() && handle.is_cancelled());
    });
}

#[test]
fn a_group_that_is_dropped_half_way_ends_its_children() {
    everywhere(|| async {
        let census = Census::new();
        let counted = census.clone();
        let handles = Task::new(async move {
            let (give, gets) = std::sync::mpsc::channel();
            let group = begin(task::group(async move |group| {
                for _ in 0..5 {
                    give.send(spawn(&group, lingers((), counted.value())))
                        .expect("it waits");
                }
                pending::<()>().await;
            }))
            .await;
            drop(group);
            gets.iter().collect::<Vec<_>>()
        });
        let Ok(handles) = handles.await;
        assert_eq!((handles.len(), census.alive()), (5, 0));
        for handle in handles {
            assert_eq!(handle.cancellation_reason(), Some(Reason::ScopeLeft));
        }
    });
}

#[test]
#[allow(clippy::mutable_key_type, reason = "the hash is that of an address")]
fn handles_are_compared_hashed_and_shown() {
    everywhere(|| async {
        task::group(async |group| {
            let (first, second) = (spawn(&group, until_stopped::<()>()), spawn(&group, async {}));
            let all = HashSet::from([first.clone(), second.clone(), first.clone()]);
            assert!(all.len() == 2 && first == first.clone() && first != second);
            assert_eq!(
                format!("{first:?}"),
                "ChildHandle { is_finished: false, is_cancelled: false, .. }"
            );
            first.cancel();
        })
        .await;
    });
}

#[test]
fn a_cancel_races_with_the_end_of_the_child_and_of_the_group() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    let pool = ThreadPool::new(2);
    let census = Census::new();
    for round in 0..3000 {
        if round % 100 == 0 {
            watchdog.step(format!("round {round}"));
        }
        let (counted, kind) = (census.clone(), round % 3);
        let (give, gets) = std::sync::mpsc::channel::<(ChildHandle, TaskGroup<usize>)>();
        let task = Task::new(task::group(async move |group| {
            let held = counted.value();
            let handle = spawn(&group, async move {
                wakes_itself(round % 5).await;
                if kind == 1 {
                    until_stopped::<()>().await;
                }
                drop(held);
                1
            });
            give.send((handle.clone(), group.clone())).expect("it waits");
            let mut sum = 0;
            while let Some(one) = group.next().await {
                sum += one;
            }
            assert!(handle.is_finished());
            sum
        }));
        let canceller = thread::spawn(move || {
            let (handle, group) = gets.recv().expect("a handle");
            // The stop of the group is passed on to the child while the child's own is requested.
            if kind == 2 {
                group.cancel_all();
            }
            handle.cancel_for(LEFT);
        });
        let sum = sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        assert!(sum <= 1 && (kind != 1 || sum == 0));
        canceller.join().expect("it ends");
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn two_threads_cancel_the_child_and_the_group_at_once() {
    let pool = ThreadPool::new(2);
    let census = Census::new();
    for _ in 0..500 {
        let (give, gets) = std::sync::mpsc::channel::<(ChildHandle, TaskGroup<()>)>();
        let counted = census.clone();
        let task = Task::new(task::group(async move |group| {
            let handle = spawn(&group, lingers((), counted.value()));
            give.send((handle, group.clone())).expect("it waits");
            group.next().await
        }));
        let cancellers = thread::spawn(move || {
            let (handle, group) = gets.recv().expect("a handle");
            thread::scope(|scope| {
                scope.spawn(move || handle.cancel());
                scope.spawn(move || group.cancel_all());
            });
        });
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), Some(()));
        cancellers.join().expect("they end");
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn outside_of_a_task_a_child_is_cancelled_alone_too() {
    let ended = futures_lite::future::block_on(task::group(async |group| {
        let handle = spawn(&group, until_stopped());
        group.spawn(async { 3 });
        handle.cancel();
        let mut ended = Vec::new();
        while let Some(child) = group.next_ended().await {
            ended.push(child.ok());
        }
        ended.sort_unstable();
        ended
    }));
    assert_eq!(ended, [None, Some(3)]);
}
