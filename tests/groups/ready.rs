//! `TaskGroup::ready`: waiting for room without reserving it; and `spawn_when_ready` with options.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::tasks::*;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{self, ChildHandle, DeadlineExceeded, SpawnErrorKind, SpawnOptions, Task, TaskGroup};
use futures_util::future::join_all;
use tokio::sync::oneshot;

/// Spawns a child that ends when it is told to.
fn spawn_told(group: &TaskGroup<()>) -> oneshot::Sender<()> {
    let (tell, told) = oneshot::channel();
    group.spawn(async { told.await.expect("it is told") });
    tell
}

fn tell(tell: oneshot::Sender<()>) {
    tell.send(()).expect("it waits");
}

/// The children that run at a time, and the most there were.
#[derive(Clone, Default)]
struct Load(Arc<(AtomicUsize, AtomicUsize)>);

impl Load {
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
fn a_group_without_a_limit_is_ready_at_once() {
    everywhere(|| async {
        task::discarding_group(async |group| {
            assert_eq!(poll_once(group.ready()).await, Some(true));
            let tells: Vec<_> = (0..10).map(|_| spawn_told(&group)).collect();
            assert_eq!(poll_once(group.ready()).await, Some(true));
            tells.into_iter().for_each(tell);
        })
        .await;
    });
}

#[test]
fn it_waits_at_the_limit_until_a_child_ends() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(2);
            let first = spawn_told(&group);
            assert_eq!(poll_once(group.ready()).await, Some(true));
            let second = spawn_told(&group);
            let ready = begin(group.ready()).await;
            tell(first);
            assert!(ready.await);
            tell(second);
        })
        .await;
    });
}

#[test]
fn a_body_that_spawns_alone_never_exceeds_the_limit() {
    everywhere(|| async {
        for limit in [1, 2, 5] {
            let load = Load::default();
            task::discarding_group(async |group| {
                group.set_limit(limit);
                for rounds in 0..100 {
                    assert!(group.ready().await);
                    // The work is accepted here, which may take its time.
                    wakes_itself(rounds % 3).await;
                    group.spawn(load.clone().run(rounds % 7));
                    assert!(group.len() <= limit);
                }
            })
            .await;
            assert!((1..=limit).contains(&load.most()), "{} of {limit}", load.most());
        }
    });
}

#[test]
fn one_place_tells_all_that_wait() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let told = spawn_told(&group);
            let (first, second, third) = (
                begin(group.ready()).await,
                begin(group.ready()).await,
                begin(group.ready()).await,
            );
            tell(told);
            // None of them uses the place, and none waits for the others to do so.
            drop(first);
            assert!(third.await);
            assert!(second.await);
        })
        .await;
    });
}

#[test]
fn a_wait_that_finds_the_place_taken_goes_on() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let told = spawn_told(&group);
            let (first, mut second) = (begin(group.ready()).await, begin(group.ready()).await);
            tell(told);
            assert!(first.await);
            let told = spawn_told(&group);
            // It was told, too, and checks again.
            assert_eq!(poll_once(second.as_mut()).await, None);
            tell(told);
            assert!(second.await);
        })
        .await;
    });
}

#[test]
fn a_child_that_waits_for_room_comes_first() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let told = spawn_told(&group);
            let mut ready = begin(group.ready()).await;
            let (second, is_told) = oneshot::channel::<()>();
            let spawning = begin(group.try_spawn_when_ready(async { is_told.await.expect("it is told") })).await;
            tell(told);
            assert!(spawning.await.is_ok());
            assert_eq!(poll_once(ready.as_mut()).await, None);
            tell(second);
            assert!(ready.await);
        })
        .await;
    });
}

#[test]
fn a_reserved_place_that_is_not_used_is_room() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let told = spawn_told(&group);
            let spawning = begin(group.spawn_when_ready(async {})).await;
            let mut ready = begin(group.ready()).await;
            tell(told);
            // The child's end reserves the place for the spawn.
            assert_eq!(group.next().await, Some(()));
            assert_eq!(poll_once(ready.as_mut()).await, None);
            drop(spawning);
            assert!(ready.await);
        })
        .await;
    });
}

#[test]
fn the_limit_may_change_during_the_wait() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let told = spawn_told(&group);
            let (first, second) = (begin(group.ready()).await, begin(group.ready()).await);
            group.set_limit(2);
            assert!(first.await && second.await);
            group.set_limit(1);
            let third = begin(group.ready()).await;
            group.set_limit(0);
            assert!(!third.await);
            assert_eq!(poll_once(group.ready()).await, Some(false));
            tell(told);
        })
        .await;
    });
}

#[test]
fn a_cancelled_group_is_never_ready() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            group.set_limit(1);
            group.spawn(lingers((), census.value()));
            let waiting = begin(group.ready()).await;
            group.cancel_all();
            assert!(!waiting.await);
            assert_eq!(poll_once(group.ready()).await, Some(false));
            group.next().await;
            assert_eq!(poll_once(group.ready()).await, Some(false));
        })
        .await;
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_group_that_has_ended_is_never_ready() {
    everywhere(|| async {
        let group = task::group::<(), _, _>(async |group| group).await;
        assert_eq!(poll_once(group.ready()).await, Some(false));
    });
}

#[test]
fn the_end_of_a_closed_group_ends_the_wait() {
    let pool = ThreadPool::new(2);
    for _ in 0..200 {
        let (given, gets) = std::sync::mpsc::channel();
        let (tell_child, told) = oneshot::channel::<()>();
        let task = Task::new(async move {
            task::group(async move |group| {
                group.set_limit(1);
                group.spawn(async { told.await.expect("it is told") });
                given.send(group).expect("the test runs");
            })
            .await;
        });
        let running = task::detach_with(SpawnOptions::new().scheduler(pool.scheduler()), task);
        let group: TaskGroup<()> = gets.recv().expect("the body runs");
        // Outside of the group's task. The last child ends the group, or there is room while the body has not ended.
        let waiting = task::detach(async move { group.ready().await });
        tell(tell_child);
        task::block_on(waiting).unwrap();
        task::block_on(running).unwrap().unwrap();
    }
}

#[test]
fn a_child_of_a_closed_group_waits_for_room() {
    everywhere(|| async {
        let spawned = Arc::new(AtomicUsize::new(0));
        let counter = spawned.clone();
        task::discarding_group(async move |group| {
            group.set_limit(2);
            let inner = group.clone();
            group.spawn(async move {
                for _ in 0..20 {
                    assert!(inner.ready().await);
                    let counter = counter.clone();
                    inner.spawn(async move {
                        hops(2).await;
                        counter.fetch_add(1, SeqCst);
                    });
                }
            });
        })
        .await;
        assert_eq!(spawned.load(SeqCst), 20);
    });
}

#[test]
fn the_stop_of_the_task_stops_it_there() {
    for before in [false, true] {
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
                    if before {
                        while !task::is_cancelled() {
                            hops(1).await;
                        }
                    }
                    group.ready().await;
                    panic!("it was stopped");
                }))
                .write_env(WithStopToken(token))
            },
            |run| assert!(run().is_stopped()),
        );
    }
}

#[test]
fn in_a_shield_it_says_that_there_will_be_no_room() {
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
                task::shield(group.ready()).await
            }))
            .write_env(WithStopToken(token))
        },
        |run| assert!(!run().unwrap()),
    );
}

#[test]
fn a_deadline_ends_the_wait() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let told = spawn_told(&group);
            let limited = task::with_timeout(Duration::from_millis(1), group.ready()).await;
            assert_eq!(limited, Err(DeadlineExceeded));
            assert!(!group.is_cancelled());
            tell(told);
            assert!(group.ready().await);
        })
        .await;
    });
}

#[test]
fn several_parties_compete_and_none_is_forgotten() {
    let watchdog = Watchdog::new(Duration::from_secs(60));
    for round in 0..50 {
        watchdog.step(format!("round {round}"));
        for workers in WORKERS {
            let pool = ThreadPool::new(workers);
            let count = Arc::new(AtomicUsize::new(0));
            let counter = count.clone();
            let task = Task::new(task::discarding_group(async move |group| {
                group.set_limit(3);
                let producers = (0..6).map(|producer| {
                    let (group, counter) = (group.clone(), counter.clone());
                    async move {
                        for rounds in 0..20 {
                            let counter = counter.clone();
                            let child = async move {
                                wakes_itself(rounds % 3).await;
                                counter.fetch_add(1, SeqCst);
                            };
                            match producer % 3 {
                                0 => group.spawn_when_ready(child).await,
                                1 => {
                                    assert!(group.ready().await);
                                    group.spawn(child);
                                }
                                // It asks for room, and does not use it.
                                _ => {
                                    let _ = poll_once(group.spawn_when_ready(async {})).await;
                                    assert!(group.ready().await);
                                }
                            }
                        }
                    }
                });
                join_all(producers).await;
            }));
            sync_wait(starts_on(pool.scheduler(), task)).unwrap();
            assert_eq!(count.load(SeqCst), 4 * 20);
        }
    }
}

#[test]
fn it_wakes_executors_of_other_crates() {
    let served = futures_lite::future::block_on(task::group(async |group| {
        group.set_limit(2);
        for rounds in 0..50 {
            assert!(group.ready().await);
            group.spawn(hops(rounds % 3));
            assert!(group.len() <= 50);
        }
        let mut served = 0;
        while group.next().await.is_some() {
            served += 1;
        }
        group.cancel_all();
        assert!(!group.ready().await);
        served
    }));
    assert_eq!(served, 50);
}

// With options.

#[test]
fn a_child_that_waits_for_room_has_its_options() {
    let elsewhere = ThreadPool::new(1);
    let (there, scheduler) = (hold_id(&elsewhere), elsewhere.scheduler());
    everywhere(move || async move {
        task::group(async move |group| {
            group.set_limit(1);
            for number in 0..10 {
                let options = SpawnOptions::new()
                    .name(format!("child {number}"))
                    .priority(Priority::Utility)
                    .scheduler(scheduler);
                let child = async move {
                    let task = task::current().expect("a task");
                    assert_eq!(task.name(), Some(&*format!("child {number}")));
                    assert_eq!(task::base_priority(), Priority::Utility);
                    assert_eq!(thread::current().id(), there);
                };
                group.spawn_when_ready_with(options, child).await;
            }
            let mut ended = 0;
            while group.next().await.is_some() {
                ended += 1;
            }
            assert_eq!(ended, 10);
        })
        .await;
    });
}

/// Returns the thread of a pool with one worker.
fn hold_id(pool: &ThreadPool) -> thread::ThreadId {
    sync_wait(
        just(())
            .continues_on(pool.scheduler())
            .then(|()| thread::current().id()),
    )
    .unwrap()
}

#[test]
fn with_options_it_never_exceeds_the_limit() {
    everywhere(|| async {
        let load = Load::default();
        task::discarding_group(async |group| {
            group.set_limit(3);
            for rounds in 0..50 {
                let options = SpawnOptions::new().priority(Priority::Utility);
                let spawned = group.try_spawn_when_ready_with(options, load.clone().run(rounds % 5));
                spawned.await.expect("there will be room");
            }
        })
        .await;
        assert!((1..=3).contains(&load.most()), "{}", load.most());
    });
}

#[test]
fn with_options_a_child_is_refused_and_returned() {
    everywhere(|| async {
        let census = Census::new();
        task::group(async |group| {
            group.set_limit(1);
            group.spawn(lingers((), census.value()));
            let child = |held: Counted| async move { drop(held) };
            let options = SpawnOptions::new().name("refused").cancellable();
            let waiting = begin(group.try_spawn_when_ready_with(options.clone(), child(census.value()))).await;
            let dropped = begin(group.spawn_when_ready_with(options.clone(), child(census.value()))).await;
            let given_up = begin(group.spawn_when_ready_with(options.clone(), child(census.value()))).await;
            drop(given_up);
            assert_eq!(census.alive(), 3);
            group.cancel_all();
            let refused = waiting.await.unwrap_err();
            assert_eq!(refused.kind(), SpawnErrorKind::Cancelled);
            refused.into_inner().await;
            let handle: ChildHandle = dropped.await;
            assert!(handle.is_finished() && !handle.is_cancelled());
        })
        .await;
        assert_eq!(census.alive(), 0);
        let refused = task::group(async |group| {
            group.set_limit(0);
            let refused = group.try_spawn_when_ready_with(SpawnOptions::new(), async {}).await;
            refused.unwrap_err().kind()
        });
        assert_eq!(refused.await, SpawnErrorKind::NoRoom);
    });
}

#[test]
fn a_wait_with_options_gives_the_handle() {
    everywhere(|| async {
        task::group(async |group| {
            group.set_limit(1);
            let options = SpawnOptions::new().cancellable();
            let first = group
                .spawn_when_ready_with(options.clone(), until_stopped::<()>())
                .await;
            let second = begin(group.try_spawn_when_ready_with(options, until_stopped::<()>())).await;
            first.cancel();
            let second = second.await.expect("there is room");
            assert!(first != second && !second.is_finished());
            second.cancel();
            assert_eq!(group.next().await, None);
        })
        .await;
    });
}
