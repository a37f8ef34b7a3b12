//! `task::let_async`: children that are bound to variables.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::everywhere::everywhere;
use crate::common::tasks::{hops, until_stopped};
use crate::common::{Census, PANIC, forget, panic_message, quiet_panic};
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::stop::StopSource;
use bowline::task::{AsyncLet, LocalTask, Reason, block_on};
use bowline::task_local;

#[test]
fn each_is_awaited_where_it_is_used() {
    everywhere(|place| {
        let task = Task::new(async {
            let number = task::let_async(async { 6 });
            let text = task::let_async(async { String::from("seven") });
            let sender = task::let_async(just(8));
            (text.await, number.await, sender.await)
        });
        assert_eq!(place.run(task).unwrap(), ("seven".to_owned(), 6, Ok(8)));
    });
}

#[test]
fn children_run_beside_the_task_and_each_other() {
    everywhere(|place| {
        let task = Task::new(async {
            let (to_first, from_second) = async_channel::bounded(1);
            let (to_second, from_first) = async_channel::bounded(1);
            let first = task::let_async(async move {
                to_second.send(1).await.unwrap();
                from_second.recv().await.unwrap()
            });
            let second = task::let_async(async move {
                to_first.send(2).await.unwrap();
                from_first.recv().await.unwrap()
            });
            (first.await, second.await)
        });
        assert_eq!(place.run(task).unwrap(), (2, 1));
    });
}

#[test]
fn one_that_is_not_awaited_is_cancelled_and_awaited() {
    everywhere(|place| {
        let census = Census::new();
        let held = census.value();
        let task = Task::new(async move {
            let _unused = task::let_async(async move {
                let _held = held;
                let stopped = never::<(), Infallible>().stopped_as_option().await;
                assert_eq!(stopped, Ok(None));
                // It takes a while, and the task waits for it.
                task::shield(task::sleep(Duration::from_millis(2))).await;
            });
            "done"
        });
        assert_eq!(place.run(task).unwrap(), "done");
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn it_learns_that_its_scope_was_left() {
    everywhere(|place| {
        let (send, receive) = async_channel::bounded(1);
        let task = Task::new(async move {
            drop(task::let_async(async move {
                let stopped = never::<(), Infallible>().stopped_as_option().await;
                assert_eq!(stopped, Ok(None));
                send.try_send(task::cancellation_reason()).unwrap();
            }));
        });
        place.run(task).unwrap();
        assert_eq!(receive.try_recv(), Ok(Some(Reason::ScopeLeft)));
    });
}

/// If they were cancelled and awaited one after the other, the first would never end: it waits until the last was cancelled.
#[test]
fn several_that_are_not_awaited_are_cancelled_together() {
    everywhere(|place| {
        let cancelled = Arc::new(AtomicUsize::new(0));
        let counter = cancelled.clone();
        let task = Task::new(async move {
            let (all, all_cancelled) = async_channel::bounded::<()>(1);
            let mut children = Vec::new();
            for _ in 0..10 {
                let (counter, all, all_cancelled) = (counter.clone(), all.clone(), all_cancelled.clone());
                children.push(task::let_async(async move {
                    let stopped = never::<(), Infallible>().stopped_as_option().await;
                    assert_eq!(stopped, Ok(None));
                    if counter.fetch_add(1, SeqCst) + 1 == 10 {
                        all.close();
                    }
                    assert!(all_cancelled.recv().await.is_err());
                }));
            }
        });
        place.run(task).unwrap();
        assert_eq!(cancelled.load(SeqCst), 10);
    });
}

#[test]
fn one_that_is_forgotten_ends_before_the_task() {
    everywhere(|place| {
        let census = Census::new();
        let held = census.value();
        let task = Task::new(async move {
            forget(Box::pin(task::let_async(async move {
                let _held = held;
                until_stopped::<()>().await;
            })));
        });
        place.run(task).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn one_that_is_dropped_while_it_is_awaited_ends_before_the_task() {
    everywhere(|place| {
        let census = Census::new();
        let held = census.value();
        let task = Task::new(async move {
            let mut child = Box::pin(task::let_async(async move {
                let _held = held;
                until_stopped::<()>().await;
            }));
            assert!(futures_lite::future::poll_once(&mut child).await.is_none());
        });
        place.run(task).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_child_that_stops_stops_who_awaits_it() {
    everywhere(|place| {
        let task = Task::new(async {
            let child = task::let_async(async {
                let Ok(()) = just_stopped::<(), Infallible>().await;
            });
            child.await;
            unreachable!("the await does not return");
        });
        assert!(place.run::<Task<()>>(task).is_stopped());
    });
}

#[test]
fn a_panic_unwinds_from_the_await() {
    everywhere(|place| {
        let task = Task::new(async { task::let_async(async { quiet_panic() }).await });
        assert_eq!(panic_message(|| place.run::<Task<()>>(task)), PANIC);
    });
}

#[test]
fn the_cancel_of_the_task_reaches_the_child() {
    everywhere(|place| {
        let source = StopSource::new();
        let stop = source.clone();
        let task = Task::new(async move {
            let child = task::let_async(async {
                let stopped = never::<(), Infallible>().stopped_as_option().await;
                assert_eq!(stopped, Ok(None));
                task::cancellation_reason()
            });
            stop.request_stop();
            child.await
        });
        let outcome = place.run(task.write_env(WithStopToken(source.token())));
        assert_eq!(outcome.unwrap(), Some(Reason::Requested));
    });
}

/// The time at which a task that awaits a child is cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cancelled {
    BeforeTheChildIsBound,
    BeforeTheAwait,
    DuringTheAwait,
}

#[test]
fn awaited_in_a_task_that_is_cancelled_it_gives_its_value() {
    use Cancelled::{BeforeTheAwait, BeforeTheChildIsBound, DuringTheAwait};
    for when in [BeforeTheChildIsBound, BeforeTheAwait, DuringTheAwait] {
        // The child ignores the stop, hears it during an await and continues, or has ended before.
        for heeds in [false, true] {
            everywhere(|place| {
                let source = StopSource::new();
                let stop = source.clone();
                let task = Task::new(async move {
                    let cancel = stop.clone();
                    if when == BeforeTheChildIsBound {
                        stop.request_stop();
                    }
                    let child = task::let_async(async move {
                        if when == DuringTheAwait {
                            cancel.request_stop();
                        }
                        if heeds {
                            let stopped = never::<(), Infallible>().stopped_as_option().await;
                            assert_eq!(stopped, Ok(None));
                        }
                        hops(10).await;
                        "a value"
                    });
                    let sibling = task::let_async(async { "another" });
                    if when == BeforeTheAwait {
                        stop.request_stop();
                    }
                    let value = child.await;
                    assert!(task::is_cancelled());
                    // The task continues, and has its other children as well.
                    (value, sibling.await, task::let_async(async { "late" }).await)
                });
                let outcome = place.run(task.write_env(WithStopToken(source.token())));
                assert_eq!(outcome.unwrap(), ("a value", "another", "late"), "{when:?}");
            });
        }
    }
}

#[test]
fn bound_inside_a_scope_it_is_awaited_outside_of_it() {
    const HOUR: Duration = Duration::from_secs(3600);
    /// Returns a child that ends on a signal, with the task-local value that it sees then.
    fn bind(opened: async_channel::Receiver<()>) -> AsyncLet<Option<&'static str>> {
        task::let_async(async move {
            opened.recv().await.expect("the task opens it");
            NAME.get()
        })
    }
    /// Polls the child once inside the scope, if asked to. It is pending.
    async fn bound(begins: bool, opened: async_channel::Receiver<()>) -> AsyncLet<Option<&'static str>> {
        let mut child = bind(opened);
        if begins {
            assert!(futures_lite::future::poll_once(&mut child).await.is_none());
        }
        child
    }
    // The kind of scope, and whether the task is cancelled after leaving it.
    let cases = [
        ("shield", false, None),
        ("with_timeout", false, None),
        ("with_timeout", true, None),
        ("a task-local", false, Some("inside")),
        ("a task-local", true, Some("inside")),
        ("one in the other", false, Some("deep")),
    ];
    for (scope, cancelled, expected) in cases {
        for begins in [false, true] {
            everywhere(|place| {
                let source = StopSource::new();
                let stop = source.clone();
                let task = Task::new(async move {
                    let (open, opened) = async_channel::bounded(1);
                    let inside = bound(begins, opened);
                    let child = match scope {
                        "shield" => task::shield(inside).await,
                        "with_timeout" => task::with_timeout(HOUR, inside).await.unwrap(),
                        "a task-local" => NAME.scope("inside", inside).await,
                        _ => {
                            let scopes = task::shield(NAME.scope("deep", task::with_timeout(HOUR, inside)));
                            scopes.await.unwrap()
                        }
                    };
                    if cancelled {
                        stop.request_stop();
                    }
                    assert!(!child.is_finished());
                    open.try_send(()).expect("it waits");
                    child.await
                });
                let outcome = place.run(task.write_env(WithStopToken(source.token())));
                assert_eq!(outcome.ok(), Some(expected), "{scope}, cancelled: {cancelled}");
            });
        }
    }
}

task_local! {
    static NAME: &'static str;
}

#[test]
fn the_child_inherits() {
    everywhere(|place| {
        let work = NAME.scope("inherited", async {
            let told = async {
                (
                    task::priority(),
                    NAME.get(),
                    task::deadline(),
                    task::current().and_then(|child| child.parent()),
                )
            };
            let child = task::let_async(told);
            let told = child.await;
            assert_eq!(told.2, task::deadline());
            assert_eq!(told.3, task::current());
            (told.0, told.1, told.2.is_some())
        });
        let task = Task::new(task::with_timeout(Duration::from_secs(600), work));
        let told = place.run(task.write_env(With(Priority::Utility))).unwrap();
        assert_eq!(told, Ok((Priority::Utility, Some("inherited"), true)));
    });
}

#[test]
fn children_of_a_local_task_run_on_the_global_pool() {
    let on_the_pool = || ThreadPool::global().worker_index().is_some();
    let local = LocalTask::new(async move {
        assert!(!on_the_pool());
        task::let_async(async move { on_the_pool() }).await
    });
    assert!(sync_wait(local).unwrap());
    assert!(block_on(
        async move { task::let_async(async move { on_the_pool() }).await }
    ));
}

#[test]
fn outside_of_a_task_it_panics_and_says_what_to_do() {
    let message = panic_message(|| drop(task::let_async(async {})));
    assert!(message.contains("task::detach"), "{message}");
}

#[test]
fn a_hundred_thousand_children_of_one_task() {
    let pool = ThreadPool::new(2);
    let task = Task::new(async {
        let children: Vec<_> = (0..100_000_u64)
            .map(|number| task::let_async(async move { number }))
            .collect();
        let mut sum = 0;
        for child in children {
            sum += child.await;
        }
        sum
    });
    assert_eq!(sync_wait(starts_on(pool.scheduler(), task)).unwrap(), 4_999_950_000);
}
