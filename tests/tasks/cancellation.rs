//! The cancelled flag of the current task, and its reason.

use std::convert::Infallible;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::Timer;
use bowline::stop::{StopSource, with_callback};
use bowline::task::{self, Cancelled, Reason, Task};

use crate::common::everywhere::everywhere;
use crate::common::{self, thread};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the state of cancellation that synchronous code sees at any call depth.
fn seen() -> (bool, Option<Reason>, Result<(), Cancelled>) {
    (
        task::is_cancelled(),
        task::cancellation_reason(),
        task::check_cancellation(),
    )
}

fn cancelled_for(reason: Reason) -> (bool, Option<Reason>, Result<(), Cancelled>) {
    (true, Some(reason), Err(reason.into()))
}

const NOT_CANCELLED: (bool, Option<Reason>, Result<(), Cancelled>) = (false, None, Ok(()));

#[test]
fn outside_of_a_task_nothing_is_cancelled() {
    assert_eq!(seen(), NOT_CANCELLED);
    assert_eq!(pollster::block_on(async { seen() }), NOT_CANCELLED);
    let source = StopSource::new();
    source.request_stop();
    let work = just_from(seen).write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work).unwrap(), NOT_CANCELLED);
}

#[test]
fn a_task_that_nobody_cancels_is_not_cancelled() {
    everywhere(|place| {
        let work = Task::new(async {
            let before = seen();
            Timer::global().schedule_after(Duration::from_millis(1)).await;
            (before, seen())
        });
        assert_eq!(place.run(work).unwrap(), (NOT_CANCELLED, NOT_CANCELLED));
    });
}

#[test]
fn the_flag_is_set_by_the_cancel_and_never_clears() {
    everywhere(|place| {
        let source = StopSource::new();
        let canceller = source.clone();
        let work = Task::new(async move {
            let before = seen();
            canceller.request_stop();
            let mut after = vec![seen()];
            for _ in 0..3 {
                // Every await stops, and the flag stays set.
                let Ok(waited) = Timer::global().schedule_after(HOUR).stopped_as_option().await;
                assert_eq!(waited, None);
                canceller.request_stop();
                after.push(seen());
            }
            (before, after)
        });
        let (before, after) = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!(before, NOT_CANCELLED);
        assert_eq!(after, [cancelled_for(Reason::Requested); 4]);
    });
}

#[test]
fn the_flag_is_set_by_another_thread_while_the_task_runs() {
    everywhere(|place| {
        let source = StopSource::new();
        let (asks, asked) = mpsc::channel();
        let rounds = thread::scope(|scope| {
            scope.spawn({
                let source = source.clone();
                move || {
                    asked.recv().expect("the task runs");
                    source.request_stop();
                }
            });
            let work = Task::new(async move {
                asks.send(()).expect("somebody cancels");
                while !task::is_cancelled() {
                    std::thread::yield_now();
                }
                task::cancellation_reason()
            });
            place.run(work.write_env(WithStopToken(source.token()))).unwrap()
        });
        assert_eq!(rounds, Some(Reason::Requested));
    });
}

#[test]
fn a_cancelled_task_is_not_kept_from_giving_its_result() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let value = Task::new(async { 7 }).write_env(WithStopToken(source.token()));
        assert_eq!(place.run(value).unwrap(), 7);
        let error = Task::<(), _>::try_new(async { Err("failed") }).write_env(WithStopToken(source.token()));
        assert_eq!(place.run(error).unwrap_err(), "failed");
    });
}

#[test]
fn what_is_awaited_after_the_cancel_sees_it() {
    everywhere(|place| {
        let source = StopSource::new();
        let canceller = source.clone();
        let work = Task::new(async move {
            canceller.request_stop();
            let Ok(()) = never::<(), Infallible>().await;
            unreachable!("it is not resumed");
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
    });
}

#[test]
fn an_awaited_task_sees_the_cancel_of_the_task_around_it() {
    everywhere(|place| {
        let source = StopSource::new();
        let canceller = source.clone();
        let work = Task::new(async move {
            let Ok(before) = Task::new(async { seen() }).await;
            canceller.request_stop();
            let Ok(after) = Task::new(async { Task::new(async { seen() }).await }).await;
            // Connected to a receiver, not polled as part of the task.
            let Ok(connected) = Task::new(async { seen() }).then(|seen| seen).await;
            (before, after.unwrap(), connected)
        });
        let expected = cancelled_for(Reason::Requested);
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            (NOT_CANCELLED, expected, expected),
        );
    });
}

#[test]
fn the_innermost_source_is_the_one_that_counts() {
    everywhere(|place| {
        let inner = StopSource::new();
        let work = Task::new(async move {
            inner.request_stop();
            let inside = Task::new(async { seen() }).write_env(WithStopToken(inner.token()));
            let Ok(inside) = inside.await;
            (inside, seen())
        });
        assert_eq!(
            place.run(work).unwrap(),
            (cancelled_for(Reason::Requested), NOT_CANCELLED),
        );
    });
}

#[test]
fn a_cancelled_task_does_not_make_its_neighbours_cancelled() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let cancelled = Task::new(async { seen() }).write_env(WithStopToken(source.token()));
        let other = Task::new(async { seen() });
        assert_eq!(
            place.run(when_all((cancelled, other))).unwrap(),
            (cancelled_for(Reason::Requested), NOT_CANCELLED),
        );
    });
}

#[test]
fn what_is_dropped_in_flight_learns_that_its_scope_was_left() {
    everywhere(|place| {
        let (sends, sent) = mpsc::channel();
        let work = Task::new(async move {
            let child = Task::new(async move {
                let Ok(waited) = never::<(), Infallible>().stopped_as_option().await;
                assert_eq!(waited, None);
                sends.send(seen()).expect("somebody listens");
            });
            let mut child = Box::pin(child.then(|()| ()).into_future());
            poll_fn(|context| {
                assert!(child.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(child);
            seen()
        });
        assert_eq!(place.run(work).unwrap(), NOT_CANCELLED);
        assert_eq!(sent.recv(), Ok(cancelled_for(Reason::ScopeLeft)));
    });
}

#[test]
fn a_future_with_wakers_of_its_own_sees_the_flag_of_the_task() {
    use futures_util::stream::{FuturesUnordered, StreamExt as _};

    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            let all: FuturesUnordered<_> = (0..3).map(|_| async { seen() }).collect();
            all.collect::<Vec<_>>().await
        });
        let all = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
        assert_eq!(all, [cancelled_for(Reason::Requested); 3]);
    });
}

#[test]
fn locals_see_the_flag_when_they_are_dropped() {
    struct Tell(mpsc::Sender<bool>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send(task::is_cancelled()).expect("somebody listens");
        }
    }

    everywhere(|place| {
        let source = StopSource::new();
        let (sends, sent) = mpsc::channel();
        let canceller = source.clone();
        let work = Task::new(async move {
            let _told = Tell(sends);
            canceller.request_stop();
            let Ok(()) = never::<(), Infallible>().await;
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
        assert_eq!(sent.recv(), Ok(true));
    });
}

#[test]
fn a_callback_on_a_thread_without_a_task_sees_none() {
    let source = StopSource::new();
    let seen_there = std::sync::Mutex::new(None);
    with_callback(
        source.token(),
        || *seen_there.lock().unwrap() = Some(seen()),
        || source.request_stop(),
    );
    assert_eq!(seen_there.into_inner().unwrap(), Some(NOT_CANCELLED));
}

#[test]
fn the_error_says_why_and_fits_a_question_mark() {
    fn fails() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(Cancelled::from(Reason::Custom("the guests have left")))?;
        Ok(())
    }
    let error = fails().unwrap_err();
    assert_eq!(error.to_string(), "cancelled: the guests have left");
    assert!(error.source().is_none());
    let cancelled = *error.downcast::<Cancelled>().unwrap();
    assert_eq!(cancelled.reason(), Reason::Custom("the guests have left"));
    assert_ne!(cancelled, Cancelled::from(Reason::Requested));
    let texts = [
        Reason::Requested,
        Reason::Deadline,
        Reason::SiblingFailed,
        Reason::ScopeLeft,
    ]
    .map(|reason| reason.to_string());
    let mut distinct = texts.to_vec();
    distinct.dedup();
    assert_eq!(distinct, texts);
}

#[test]
fn asking_takes_no_memory() {
    let source = StopSource::new();
    source.request_stop();
    let work = Task::new(async { common::allocations(seen) });
    let (seen, allocations) = sync_wait(work.write_env(WithStopToken(source.token()))).unwrap();
    assert_eq!((seen, allocations), (cancelled_for(Reason::Requested), 0));
}

#[test]
fn the_thread_sees_nothing_of_a_task_that_ended_on_it() {
    let source = StopSource::new();
    source.request_stop();
    let work = Task::new(async { pin!(async { task::is_cancelled() }).await });
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).unwrap());
    assert_eq!(seen(), NOT_CANCELLED);
}

#[test]
fn children_of_a_group_learn_why_they_were_cancelled() {
    everywhere(|place| {
        // Each child waits until it is cancelled, and sends the reason.
        let child = |sends: mpsc::Sender<Option<Reason>>| async move {
            let Ok(waited) = never::<(), Infallible>().stopped_as_option().await;
            assert_eq!(waited, None);
            sends.send(task::cancellation_reason()).expect("somebody listens");
        };
        let (sends, sent) = mpsc::channel();
        let asked = sends.clone();
        let work = Task::new(async move {
            task::group(async |group| {
                group.try_spawn(child(asked)).expect("it is open");
                group.cancel_all();
                task::is_cancelled()
            })
            .await
        });
        assert!(!place.run(work).unwrap(), "the task itself is not cancelled");
        assert_eq!(sent.recv(), Ok(Some(Reason::Requested)));

        let failed = sends.clone();
        let work = Task::new(async move {
            task::try_group(async |group| {
                let sibling = child(failed);
                group
                    .try_spawn(async move {
                        sibling.await;
                        Ok(())
                    })
                    .expect("it is open");
                group.try_spawn(async { Err("failed") }).expect("it is open");
                while let Some(ended) = group.next().await {
                    ended?;
                }
                Ok(())
            })
            .await
        });
        assert_eq!(place.run(work).unwrap(), Err("failed"));
        assert!(matches!(
            sent.recv(),
            Ok(Some(Reason::SiblingFailed | Reason::ScopeLeft))
        ));
    });
}

#[test]
fn the_cancel_of_a_task_reaches_the_children_of_its_groups() {
    everywhere(|place| {
        let source = StopSource::new();
        let (sends, sent) = mpsc::channel();
        let canceller = source.clone();
        let work = Task::new(async move {
            task::group(async |group| {
                for _ in 0..3 {
                    let sends = sends.clone();
                    let child = async move {
                        let Ok(_) = never::<(), Infallible>().stopped_as_option().await;
                        sends.send(seen()).expect("somebody listens");
                    };
                    group.try_spawn(child).expect("it is open");
                }
                canceller.request_stop();
                drop(sends);
            })
            .await;
            seen()
        });
        let expected = cancelled_for(Reason::Requested);
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            expected,
        );
        assert_eq!(sent.iter().collect::<Vec<_>>(), [expected; 3]);
    });
}

/// Cancels a group with a reason, and returns the reason that the group then has.
fn given_back(reason: Reason) -> Reason {
    let group = task::group(async move |group: task::TaskGroup<()>| {
        group.cancel_all_for(reason);
        group.cancellation_reason()
    });
    sync_wait(Task::new(group)).unwrap().expect("it is cancelled")
}

#[test]
fn a_reason_comes_back_as_it_was_given() {
    let texts = ["out of milk", "the guests have left", "out of milk "];
    let named = [
        Reason::Requested,
        Reason::Deadline,
        Reason::SiblingFailed,
        Reason::ScopeLeft,
    ];
    for reason in named.into_iter().chain(texts.map(Reason::Custom)) {
        assert_eq!(given_back(reason), reason);
    }
}

#[test]
fn threads_that_name_a_text_at_once_agree() {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for text in ["a", "b", "c"] {
                    assert_eq!(given_back(Reason::Custom(text)), Reason::Custom(text));
                }
            });
        }
    });
}
