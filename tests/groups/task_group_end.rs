//! The guarantee of groups: a task ends after everything spawned in it, whatever happens to the group.

use std::alloc::Layout;
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use crate::common::tasks::*;
use crate::common::*;
use allocator_api2::alloc::{AllocError, Allocator};
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, GroupFuture, Reason, Report, SpawnErrorKind, SpawnOptions, Task, TaskGroup};
use futures_util::FutureExt;

const CHILDREN: usize = 20;

/// Spawns children that run on for a while after a stop.
fn spawn_lingering(group: &TaskGroup<()>, census: &Census) {
    for _ in 0..CHILDREN {
        group.spawn(lingers((), census.value()));
    }
}

/// Returns a group whose body never ends without a stop.
fn endless(census: Census) -> impl Future<Output = ()> + Send + 'static {
    task::group(async move |group| {
        spawn_lingering(&group, &census);
        pending::<()>().await;
    })
}

/// Runs a task of `make` inside another one, on each scheduler, and asserts that no value is alive after it.
fn leaves_nothing<F>(make: impl Fn(Census) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    everywhere(|| {
        let census = Census::new();
        let inner = Task::new(make(census.clone()));
        async move {
            let inner = async move {
                let Ok(()) = inner.await;
            };
            // Stopped, panicked, or neither.
            let _ = AssertUnwindSafe(inner).catch_unwind().await;
            assert_eq!(census.alive(), 0, "a child outlived the task");
        }
    });
}

#[test]
fn a_group_that_is_dropped_half_way() {
    leaves_nothing(|census| async move {
        let group = begin(endless(census)).await;
        drop(group);
    });
}

#[test]
fn a_group_that_is_dropped_later() {
    leaves_nothing(|census| async move {
        let group = begin(endless(census.clone())).await;
        hops(5).await;
        assert_eq!(census.alive(), CHILDREN);
        drop(group);
        // The frame continues meanwhile.
        hops(1).await;
    });
}

#[test]
fn a_group_that_was_not_polled_has_no_children() {
    leaves_nothing(|census| async move { drop(endless(census)) });
}

#[test]
fn a_group_that_is_dropped_when_its_body_has_ended() {
    leaves_nothing(|census| async move {
        let group = begin(task::group(async move |group| spawn_lingering(&group, &census))).await;
        hops(5).await;
        drop(group);
    });
}

#[test]
fn a_group_that_is_leaked() {
    leaves_nothing(|census| async move {
        let group = begin(endless(census)).await;
        forget(group);
    });
}

#[test]
fn a_group_that_is_leaked_with_those_that_wait_for_it() {
    leaves_nothing(|census| async move {
        let group = begin(task::group(async move |group: TaskGroup<()>| {
            spawn_lingering(&group, &census);
            forget(begin(group.next()).await);
            forget(begin(group.wait_for_all()).await);
            group.set_limit(1);
            forget(begin(group.spawn_when_ready(async {})).await);
            pending::<()>().await;
        }))
        .await;
        forget(group);
    });
}

#[test]
fn a_body_that_panics() {
    leaves_nothing(|census| async move {
        task::group(async move |group| {
            spawn_lingering(&group, &census);
            hops(3).await;
            quiet_panic()
        })
        .await
    });
}

#[test]
fn a_body_that_panics_before_its_first_await() {
    leaves_nothing(|census| {
        task::group(move |group: TaskGroup<()>| -> std::future::Ready<()> {
            spawn_lingering(&group, &census);
            quiet_panic()
        })
    });
}

#[test]
fn a_body_whose_locals_panic_when_they_are_dropped() {
    leaves_nothing(|census| async move {
        let group = begin(task::group(async move |group| {
            let _bomb = Bomb;
            spawn_lingering(&group, &census);
            pending::<()>().await;
        }))
        .await;
        assert!(catch_unwind(AssertUnwindSafe(|| drop(group))).is_err());
    });
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        quiet_panic();
    }
}

#[test]
fn a_body_that_is_stopped() {
    for after in [0, 3] {
        on_each(
            || {
                let census = Census::new();
                let inside = census.clone();
                Task::new(task::group(async move |group| {
                    spawn_lingering(&group, &inside);
                    hops(after).await;
                    let Ok(()) = just_stopped::<(), Infallible>().await;
                }))
                .let_stopped(move || {
                    assert_eq!(census.alive(), 0, "a child outlived the task");
                    just_stopped()
                })
            },
            |run| assert!(run().is_stopped()),
        );
    }
}

#[test]
fn a_task_that_is_cancelled() {
    // While the body waits for another future, for a child, and for the end.
    for waits in 0..3 {
        on_each(
            || {
                let (census, source) = (Census::new(), StopSource::new());
                let (inside, token) = (census.clone(), source.token());
                Task::new(async move {
                    task::group(async move |group| {
                        spawn_lingering(&group, &inside);
                        group.spawn(async move {
                            hops(3).await;
                            source.request_stop();
                        });
                        match waits {
                            0 => until_stopped().await,
                            1 => while group.next().await.is_some() {},
                            _ => {}
                        }
                    })
                    .await;
                    until_stopped::<()>().await;
                })
                .write_env(WithStopToken(token))
                .let_stopped(move || {
                    assert_eq!(census.alive(), 0, "a child outlived the task");
                    just_stopped()
                })
            },
            |run| assert!(run().is_stopped()),
        );
    }
}

#[test]
fn a_child_that_never_heeds_the_stop_is_waited_for() {
    leaves_nothing(|census| async move {
        let held = census.value();
        let group = begin(task::group(async move |group| {
            group.spawn(async move {
                let _held = held;
                hops(200).await;
            });
            pending::<()>().await;
        }))
        .await;
        drop(group);
    });
}

#[test]
fn a_child_that_spawns_when_the_group_was_given_up() {
    leaves_nothing(|census| async move {
        let (first, second) = (census.value(), census.value());
        let group = begin(task::group(async move |group| {
            let inner = group.clone();
            group.spawn(async move {
                let _first = first;
                hops(10).await;
                let spawned = inner.try_spawn(async move { drop(second) });
                assert_eq!(spawned.unwrap_err().kind(), SpawnErrorKind::Cancelled);
            });
            pending::<()>().await;
        }))
        .await;
        drop(group);
    });
}

#[test]
fn a_group_that_is_dropped_on_another_thread() {
    leaves_nothing(|census| async move {
        let group = begin(endless(census)).await;
        let (sent, dropped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            drop(group);
            sent.send(()).expect("somebody waits");
        });
        // The drop does not wait for the children, which may have to run here.
        dropped.recv().expect("it was dropped");
        thread.join().expect("it did not panic");
    });
}

#[test]
fn a_group_that_is_dropped_by_another_task() {
    leaves_nothing(|census| async move {
        let group = begin(endless(census)).await;
        task::group(async move |other| {
            other.spawn(async move { drop(group) });
        })
        .await;
    });
}

#[test]
fn a_group_that_is_polled_by_another_task_panics_there() {
    leaves_nothing(|census| async move {
        let group = begin(endless(census)).await;
        let ended = task::supervised_group(async move |other| {
            other.spawn(async move {
                let quiet = AssertUnwindSafe(group).catch_unwind().await;
                quiet.expect_err("it is not where it began")
            });
            other.next().await
        })
        .await;
        let payload = ended.expect("it ended");
        let message = payload.downcast::<&'static str>().expect("a message");
        assert!(message.contains("another task"), "{message}");
    });
}

#[test]
fn groups_in_groups() {
    fn nest(census: Census, depth: usize) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(task::group(async move |group| {
            for _ in 0..3 {
                if depth == 0 {
                    group.spawn(lingers((), census.value()));
                } else {
                    group.spawn(nest(census.clone(), depth - 1));
                }
            }
            if depth.is_multiple_of(2) {
                until_stopped().await
            }
        }))
    }
    for hopped in [0, 1, 3, 20] {
        leaves_nothing(move |census| async move {
            let group = begin(nest(census, 3)).await;
            hops(hopped).await;
            drop(group);
        });
    }
}

#[test]
fn a_group_in_a_task_that_is_awaited_and_dropped_half_way() {
    leaves_nothing(|census| async move {
        let inner = Task::new(endless(census.clone()));
        let awaited = begin(async move {
            let Ok(()) = inner.await;
        })
        .await;
        hops(3).await;
        drop(awaited);
        // A task that was dropped in flight has ended by then, with all its children.
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn many_groups_are_given_up_at_once() {
    leaves_nothing(|census| async move {
        let mut groups = Vec::new();
        for _ in 0..20 {
            groups.push(begin(endless(census.clone())).await);
        }
        for (index, group) in groups.into_iter().enumerate() {
            if index % 3 == 0 {
                forget(group);
            }
        }
    });
}

// Outside of a task.

/// Waits until everything was dropped: outside of a task no frame waits for children.
fn all_gone(census: &Census) {
    while census.alive() != 0 {
        std::thread::yield_now();
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn outside_of_a_task_what_is_given_up_ends_by_itself() {
    let census = Census::new();
    let mut group = Box::pin(endless(census.clone()));
    assert!(poll(group.as_mut()).is_pending());
    assert_eq!(census.alive(), CHILDREN);
    drop(group);
    all_gone(&census);
}

#[test]
fn outside_of_a_task_a_leaked_group_is_ended_by_a_handle() {
    let census = Census::new();
    let (inside, (sent, handles)) = (census.clone(), mpsc::channel());
    let mut group = Box::pin(task::group(async move |group| {
        spawn_lingering(&group, &inside);
        sent.send(group.clone()).expect("somebody waits");
        pending::<()>().await;
    }));
    assert!(poll(group.as_mut()).is_pending());
    forget(group);
    handles.recv().expect("a handle").cancel_all();
    all_gone(&census);
}

#[test]
fn outside_of_a_task_the_locals_of_a_body_may_panic() {
    let census = Census::new();
    let inside = census.clone();
    let mut group = Box::pin(task::group(async move |group| {
        let _bomb = Bomb;
        spawn_lingering(&group, &inside);
        pending::<()>().await;
    }));
    assert!(poll(group.as_mut()).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(group))).is_err());
    all_gone(&census);
}

#[test]
fn outside_of_a_task_a_body_may_panic_before_its_first_await() {
    let census = Census::new();
    let inside = census.clone();
    let mut group = Box::pin(task::group(move |group: TaskGroup<()>| -> std::future::Ready<()> {
        spawn_lingering(&group, &inside);
        quiet_panic()
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(group.as_mut()))).is_err());
    all_gone(&census);
}

#[test]
fn a_handle_outlives_its_group() {
    everywhere(|| async {
        let group = task::group(async |group| {
            group.spawn(async { 1 });
            group
        })
        .await;
        let census = Census::new();
        let held = census.value();
        let refused = group
            .try_spawn(async move {
                drop(held);
                2
            })
            .expect_err("the group has ended");
        assert_eq!((refused.kind(), census.alive()), (SpawnErrorKind::Ended, 1));
        // The child is returned unpolled, and can be awaited.
        assert_eq!((refused.into_inner().await, census.alive()), (2, 0));
        let refused = group.try_spawn_when_ready(async { 3 }).await.expect_err("as before");
        assert_eq!((refused.kind(), refused.into_inner().await), (SpawnErrorKind::Ended, 3));
        assert_eq!((group.next().await, group.len()), (None, 0));
        group.wait_for_all().await;
        group.set_limit(0);
        group.set_limit(3);
        group.cancel_all();
        assert!(group.is_cancelled());
        assert_eq!(
            group.try_spawn(async { 2 }).unwrap_err().kind(),
            SpawnErrorKind::Cancelled
        );
        assert!(format!("{group:?}").contains("running: 0"));
        assert_eq!(group.clone(), group);
        assert_eq!(HashSet::from([group.clone(), group]).len(), 1);
    });
}

#[test]
fn a_handle_outlives_its_task() {
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        let task = Task::new(task::group(async |group: TaskGroup<()>| group));
        let group = sync_wait(starts_on(pool.scheduler(), task)).unwrap();
        drop(pool);
        assert_eq!(group.try_spawn(async {}).unwrap_err().kind(), SpawnErrorKind::Ended);
        group.cancel_all();
        assert_eq!(group.try_spawn(async {}).unwrap_err().kind(), SpawnErrorKind::Cancelled);
        assert_eq!(sync_wait(Task::new(async move { group.next().await })).unwrap(), None);
    }
}

/// An allocator that always fails.
#[derive(Clone, Copy)]
struct Empty;

// SAFETY: it returns no memory.
unsafe impl Allocator for Empty {
    fn allocate(&self, _: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Err(AllocError)
    }

    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {
        unreachable!("nothing was allocated");
    }
}

/// An unintentionally dropped child is reported, with the location of its spawn; one of a cancelled group is not.
#[test]
fn a_refused_child_is_reported_unless_the_group_is_cancelled() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = reports.clone();
    let watched = ReportHook::set(move |report| {
        if let Report::ChildRefused { kind, location, .. } = report
            && location.file() == file!()
        {
            lock(&told).push((*kind, location.line(), report.to_string()));
        }
    });
    let census = Census::new();
    let child = |value| async move { drop(value) };
    let first = line!();
    let open = task::group(async |group| {
        group.set_limit(0);
        group.spawn_when_ready(child(census.value())).await;
        group.spawn_with(SpawnOptions::new().allocator(Empty), child(census.value()));
        group
    });
    let group = pollster::block_on(open);
    group.set_limit(1);
    group.spawn(child(census.value()));
    group.spawn_with(SpawnOptions::new().name("late"), child(census.value()));
    pollster::block_on(group.spawn_when_ready(child(census.value())));
    // These are returned, or are refused by design.
    assert!(group.try_spawn(child(census.value())).is_err());
    assert!(
        group
            .try_spawn_with(SpawnOptions::new(), child(census.value()))
            .is_err()
    );
    group.cancel_all();
    group.spawn(child(census.value()));
    group.spawn_with(SpawnOptions::new(), child(census.value()));
    pollster::block_on(group.spawn_when_ready(child(census.value())));
    drop(watched);
    assert_eq!(census.alive(), 0);
    let reports = lock(&reports);
    let seen: Vec<_> = reports.iter().map(|(kind, line, _)| (*kind, line - first)).collect();
    use SpawnErrorKind::{Ended, NoRoom, OutOfMemory};
    assert_eq!(
        seen,
        [(NoRoom, 3), (OutOfMemory, 4), (Ended, 9), (Ended, 10), (Ended, 11)]
    );
    let text = &reports[2].2;
    assert!(
        text.contains(file!()) && text.ends_with("was refused and dropped: group has ended"),
        "{text}"
    );
}

/// The scheduler's panic replaces the future of the child, which cannot be returned: the spawner gets the panic.
#[test]
fn a_scheduler_that_panics_in_a_group_that_has_ended_is_the_spawners_panic() {
    /// A scheduler that panics when its queue is requested.
    #[derive(Clone, PartialEq)]
    struct Closed;
    impl Scheduler for Closed {
        type Schedule = InlineSchedule;
        const INFALLIBLE: bool = true;
        fn schedule(&self) -> InlineSchedule {
            InlineScheduler.schedule()
        }
        fn native(&self) -> Option<bowline::sender::Native<'_>> {
            quiet_panic()
        }
    }
    let census = Census::new();
    let group = pollster::block_on(task::group(async |group: TaskGroup<()>| group));
    let held = census.value();
    let spawn = || group.spawn_with(SpawnOptions::new().scheduler(Closed), async move { drop(held) });
    assert_eq!(panic_message(spawn), PANIC);
    assert_eq!((census.alive(), group.len()), (0, 0));
}

#[test]
fn a_spawn_from_another_thread_is_refused_or_awaited() {
    for workers in WORKERS {
        let pool = ThreadPool::new(workers);
        let (mut refused, mut awaited) = (0, 0);
        for _ in 0..200 {
            let census = Census::new();
            let (held, threads) = (census.value(), Arc::new(Mutex::new(None)));
            let (spawning, ran) = (threads.clone(), Arc::new(AtomicUsize::new(0)));
            let counter = ran.clone();
            let task = Task::new(task::group(async move |group| {
                *lock(&spawning) = Some(std::thread::spawn(move || {
                    let spawned = group.try_spawn(async move {
                        let _held = held;
                        hops(3).await;
                        counter.fetch_add(1, SeqCst);
                    });
                    spawned.map_err(|refused| refused.kind())
                }));
                hops(30).await;
            }));
            assert!(sync_wait(starts_on(pool.scheduler(), task)).is_value());
            let ended = ran.load(SeqCst);
            let thread = lock(&threads).take().expect("it was spawned");
            let spawned = thread.join().expect("it did not panic");
            assert_eq!((ended, ran.load(SeqCst)), (usize::from(spawned.is_ok()), ended));
            assert_eq!(census.alive(), 0);
            *if spawned.is_ok() { &mut awaited } else { &mut refused } += 1;
        }
        assert_eq!(refused + awaited, 200);
    }
}

#[test]
fn the_future_of_a_group_can_be_named_and_shown() {
    fn shown<B, F, T, O, K>(future: &GroupFuture<B, F, T, O, K>) -> String {
        format!("{future:?}")
    }
    assert!(shown(&task::group::<(), _, _>(async |_| ())).contains("GroupFuture"));
}

/// The stop of the task has not reached the group when the group is dropped because of it: a cancellation handler delays it.
#[test]
fn children_see_why_their_task_was_cancelled_when_it_drops_the_group() {
    let pool = ThreadPool::new(2);
    let (begun, began) = mpsc::channel();
    let installed = begun.clone();
    let (tell, told) = mpsc::channel();
    let (leave, leaving) = async_channel::unbounded();
    let (left, is_left) = mpsc::channel::<()>();
    let is_left = Arc::new(Mutex::new(is_left));
    let handler = move || {
        leave.try_send(()).unwrap();
        // Until the group was dropped.
        let _ = lock(&is_left).recv();
    };
    let task = async move {
        let group = task::group(async move |group| {
            group.spawn(async move {
                begun.send(()).unwrap();
                let Ok(None) = never::<(), Infallible>().stopped_as_option().await else {
                    unreachable!("it never completes")
                };
                tell.send(task::cancellation_reason()).unwrap();
            });
            pending::<()>().await;
        });
        let mut work = Box::pin(async move {
            futures_lite::future::or(group, async {
                leaving.recv().await.unwrap();
            })
            .await;
            drop(left);
        });
        // One handler registers before the group and one after it. So one of them is called before the stop reaches the group.
        let second = handler.clone();
        let work = async move {
            assert!(futures_lite::future::poll_once(&mut work).await.is_none());
            let work = async move {
                installed.send(()).unwrap();
                work.await;
            };
            task::with_cancellation_handler(second, work).await;
        };
        task::with_cancellation_handler(handler, work).await;
    };
    let handle = task::detach_with(SpawnOptions::new().scheduler(pool.scheduler()), task);
    // The child runs, and both handlers are installed.
    began.recv().unwrap();
    began.recv().unwrap();
    handle.cancel_for(Reason::Custom("the guests have left"));
    assert_eq!(told.recv(), Ok(Some(Reason::Custom("the guests have left"))));
    task::block_on(handle).unwrap();
}
