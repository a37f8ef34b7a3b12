//! `task::shield`.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, IntoFuture, pending, poll_fn, ready};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, DeadlineExceeded, LocalTask, Reason, Task, shield};
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};

use crate::common::everywhere::everywhere;
use crate::common::tasks::begin;
use crate::common::{
    self, Census, ROUNDS, SMALL_STACK, allocations_so_far, hold, panic_message, quiet_panic, with_stack,
};

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns what a task sees, and how a sender that it awaits ends.
async fn seen() -> (bool, Option<Reason>, Option<Instant>, bool) {
    let Ok(stops) = read_env(StopRequested).await;
    (
        task::is_cancelled(),
        task::cancellation_reason(),
        task::deadline(),
        stops,
    )
}

const NOTHING: (bool, Option<Reason>, Option<Instant>, bool) = (false, None, None, false);
const CANCELLED: (bool, Option<Reason>, Option<Instant>, bool) = (true, Some(Reason::Requested), None, true);

#[test]
fn inside_nothing_is_seen_of_a_cancel_and_afterwards_it_is_seen_again() {
    everywhere(|place| {
        let source = StopSource::new();
        let canceller = source.clone();
        let work = Task::new(async move {
            let before = seen().await;
            let inside = shield(async {
                canceller.request_stop();
                let first = seen().await;
                // It completes; without the shield it would have stopped.
                Timer::global().schedule_after(MILLISECOND).await;
                (first, seen().await)
            })
            .await;
            (before, inside, seen().await)
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            (NOTHING, (NOTHING, NOTHING), CANCELLED),
        );
    });
}

#[test]
fn a_task_that_was_cancelled_before_cleans_up() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            let inside = shield(shield(seen())).await;
            (inside, seen().await)
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            (NOTHING, CANCELLED),
        );
    });
}

#[test]
fn tasks_inside_are_shielded_too() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            shield(async {
                let Ok(awaited) = Task::new(seen()).await;
                let Ok(deeper) = Task::new(async { Task::new(seen()).await }).await;
                let Ok((left, right)) = when_all((Task::new(seen()), Task::new(seen()))).await;
                [awaited, deeper.unwrap(), left, right]
            })
            .await
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            [NOTHING; 4],
        );
    });
}

#[test]
fn what_stops_inside_by_itself_stops_the_task() {
    everywhere(|place| {
        let census = Census::new();
        let (inner, outer) = (census.value(), census.value());
        let work = Task::new(async move {
            let _outer = outer;
            shield(async move {
                let _inner = inner;
                let Ok(()) = just_stopped::<(), Infallible>().await;
                unreachable!("it is not resumed");
            })
            .await;
            unreachable!("nor is this");
        });
        assert!(place.run(work).is_stopped());
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_stop_inside_is_a_value_for_who_asks_for_it_outside() {
    everywhere(|place| {
        let work = Task::new(async {
            let child = Task::new(async {
                shield(async {
                    let Ok(()) = just_stopped::<(), Infallible>().await;
                })
                .await;
            });
            let Ok(stopped) = child.stopped_as_option().await;
            stopped
        });
        assert_eq!(place.run(work).unwrap(), None);
    });
}

#[test]
fn a_deadline_is_lifted_inside_and_seen_afterwards() {
    everywhere(|place| {
        let work = Task::new(async {
            task::with_timeout(MILLISECOND, async {
                let deadline = task::deadline().expect("there is one");
                let inside = shield(async {
                    while Instant::now() < deadline {
                        Timer::global().schedule_after(MILLISECOND).await;
                    }
                    seen().await
                })
                .await;
                // The next await listens again.
                let Ok(waited) = never::<(), Infallible>().stopped_as_option().await;
                (inside, waited, task::cancellation_reason())
            })
            .await
        });
        assert_eq!(place.run(work).unwrap(), Ok((NOTHING, None, Some(Reason::Deadline))));
    });
}

#[test]
fn a_deadline_of_its_own_holds_inside() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            shield(async {
                let limited = task::with_timeout(MILLISECOND, never::<(), Infallible>()).await;
                (limited, task::is_cancelled())
            })
            .await
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            (Err(DeadlineExceeded), false),
        );
    });
}

#[test]
fn side_by_side_each_sees_its_own() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            let shielded = shield(async {
                let before = seen().await;
                Timer::global().schedule_after(MILLISECOND).await;
                (before, seen().await)
            });
            let open = async {
                let before = seen().await;
                let mut polls = 0;
                poll_fn(|context| {
                    polls += 1;
                    context.waker().wake_by_ref();
                    if polls < 10 { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
                (before, seen().await)
            };
            futures_util::future::join(shielded, open).await
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            ((NOTHING, NOTHING), (CANCELLED, CANCELLED)),
        );
    });
}

#[test]
fn a_panic_leaves_the_shield() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            let inside = std::panic::AssertUnwindSafe(shield(async {
                seen().await;
                quiet_panic();
            }));
            let panicked = inside.catch_unwind().await.is_err();
            (panicked, seen().await)
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            (true, CANCELLED),
        );
    });
}

#[test]
fn a_shield_that_is_dropped_ends_what_is_inside() {
    everywhere(|place| {
        let census = Census::new();
        let inner = census.value();
        let work = Task::new({
            let census = census.clone();
            async move {
                let inside = begin(shield(async move {
                    let _inner = inner;
                    Timer::global().schedule_after(HOUR).await;
                }))
                .await;
                assert_eq!(census.alive(), 1);
                drop(inside);
                census.alive()
            }
        });
        assert_eq!(place.run(work).unwrap(), 0);
    });
}

/// A future forgotten inside uses the context of the shield, which outlives the shield's future. It is asked to stop when the
/// task ends, and the task waits for it.
#[test]
fn a_shield_does_not_wait_for_what_was_forgotten_inside_and_the_task_does() {
    everywhere(|place| {
        let census = Census::new();
        let (value, seen) = (census.value(), census.clone());
        let source = StopSource::new();
        let work = Task::new(async move {
            shield(async move {
                let waited = Timer::global().schedule_after(HOUR).upon_stopped(move || drop(value));
                common::forget(begin(waited.into_future()).await);
            })
            .await;
            seen.alive()
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            1,
            "it was left at once",
        );
        assert_eq!(census.alive(), 0);
    });
}

/// An operation begun inside does not see a cancellation, even if it is awaited outside.
#[test]
fn what_was_moved_out_of_a_shield_goes_on_shielded() {
    everywhere(|place| {
        let source = StopSource::new();
        let canceller = source.clone();
        let work = Task::new(async move {
            let moved = shield(begin(Timer::global().schedule_after(MILLISECOND).into_future())).await;
            canceller.request_stop();
            moved.await;
            task::is_cancelled()
        });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).unwrap());
    });
}

/// The loser of a race is still in flight when the shield is left.
#[test]
fn the_winner_of_a_race_inside_leaves_the_shield_at_once() {
    let busy = ThreadPool::new(1);
    everywhere(|place| {
        let census = Census::new();
        let (value, scheduler) = (census.value(), busy.scheduler());
        let work = Task::new(async move {
            let worker = hold(scheduler);
            let stuck = scheduler.schedule().unstoppable().then(move |()| drop(value));
            let won = shield(async move {
                match select(stuck.into_future(), ready(7)).await {
                    Either::Left(_) => 0,
                    Either::Right((won, _loser)) => won,
                }
            })
            .await;
            // The loser can end only from here on.
            drop(worker);
            won
        });
        assert_eq!(place.run(work).unwrap(), 7);
        assert_eq!(census.alive(), 0);
    });
}

const ELSEWHERE: &str = "a future that was polled in a task was sent to another: await it in the task where it began";

/// The frame of one task may be at the address of an earlier one, and is not mistaken for it.
#[test]
fn sent_to_another_task_it_panics_when_it_is_polled() {
    everywhere(|place| {
        for _ in 0..20 {
            let source = StopSource::new();
            let work = Task::new(begin(shield(pending::<()>())));
            let sent = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            drop(source);
            let other = Task::new(sent);
            assert_eq!(panic_message(|| place.run(other)), ELSEWHERE);
        }
    });
}

/// A shield moved out of the scope it began in is awaited outside as before.
#[test]
fn moved_out_of_the_scope_that_it_began_in_it_goes_on() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            let inside = shield(async {
                Timer::global().schedule_after(MILLISECOND).await;
                seen().await
            });
            let moved = shield(task::with_timeout(HOUR, begin(inside)))
                .await
                .expect("there is time");
            (moved.await, seen().await)
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            (NOTHING, CANCELLED),
        );
    });
}

/// Dropped inside another task, it sees the context of that task.
#[test]
fn sent_to_another_task_it_may_be_dropped() {
    struct Tell(mpsc::Sender<bool>);
    impl Drop for Tell {
        fn drop(&mut self) {
            self.0.send(task::is_cancelled()).expect("somebody listens");
        }
    }

    everywhere(|place| {
        for _ in 0..20 {
            let (sends, sent) = mpsc::channel();
            let source = StopSource::new();
            let told = Tell(sends);
            let work = Task::new(begin(shield(async move {
                let _told = told;
                pending::<()>().await;
            })));
            let future = place.run(work.write_env(WithStopToken(source.token()))).unwrap();
            source.request_stop();
            let other = Task::new(async move { drop(future) });
            place.run(other.write_env(WithStopToken(source.token()))).unwrap();
            assert_eq!(sent.recv(), Ok(true));
        }
    });
}

#[test]
fn outside_of_a_task_it_is_just_polled() {
    let value = pollster::block_on(shield(async {
        let Ok(six) = just(6).await;
        six + 1
    }));
    assert_eq!(value, 7);
    let mut ready = Box::pin(shield(async { 7 }));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(ready.as_mut().poll(&mut context), Poll::Ready(7));
    assert_eq!(ready.as_mut().poll(&mut context), Poll::Pending, "once");
}

#[test]
fn a_sender_may_be_shielded() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async { shield(Timer::global().schedule_after(MILLISECOND)).await });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))),
            Outcome::Value(())
        );
    });
}

#[test]
fn the_inside_may_borrow_and_stay_on_its_thread() {
    let run_loop = RunLoop::new();
    let local = Rc::new(Cell::new(1));
    let work = LocalTask::new(async move {
        let borrowed = &local;
        shield(async {
            borrowed.set(borrowed.get() + 1);
            Timer::global().schedule_after(MILLISECOND).await;
            borrowed.get()
        })
        .await
    });
    assert_eq!(run_loop.run_until(work).unwrap(), 2);
}

#[test]
fn a_shield_takes_no_memory_but_that_of_its_task() {
    let source = StopSource::new();
    let work = Task::new(async {
        // The task has its blocks from here on.
        shield(shield(Timer::global().schedule_after(MILLISECOND))).await;
        let before = allocations_so_far();
        for _ in 0..10 {
            shield(async {
                Timer::global().schedule_after(MILLISECOND).await;
            })
            .await;
        }
        allocations_so_far() - before
    });
    // Starts the timer's thread.
    sync_wait(Timer::global().schedule_after(Duration::ZERO)).unwrap();
    let run_loop = RunLoop::new();
    let count = run_loop
        .run_until(work.write_env(WithStopToken(source.token())))
        .unwrap();
    // Without slabs, blocks that do not fit are allocated anew.
    let most = if cfg!(sanitized = "address") { 2 } else { 0 };
    assert!(count <= most, "{count}");
}

#[test]
fn a_million_shields_take_a_small_stack() {
    let rounds = with_stack(SMALL_STACK, || {
        let work = Task::new(async {
            let mut rounds = 0;
            for _ in 0..ROUNDS {
                rounds += shield(async {
                    let Ok(one) = just(1).await;
                    one
                })
                .await;
            }
            rounds
        });
        sync_wait(work).unwrap()
    });
    assert_eq!(rounds, ROUNDS);
}

#[test]
fn groups_inside_are_shielded_too() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async {
            shield(task::group(async |group| {
                for _ in 0..3 {
                    group.try_spawn(seen()).expect("it is not cancelled");
                }
                let mut all = Vec::new();
                while let Some(seen) = group.next().await {
                    all.push(seen);
                }
                all
            }))
            .await
        });
        assert_eq!(
            place.run(work.write_env(WithStopToken(source.token()))).unwrap(),
            [NOTHING; 3],
        );
    });
}

/// A group was opened and forgotten inside: its children are stopped when the task ends, which waits for them.
#[test]
fn a_group_that_was_forgotten_inside_does_not_keep_the_shield() {
    everywhere(|place| {
        let census = Census::new();
        let value = census.value();
        let work = Task::new(async move {
            shield(async move {
                let group = task::group(async move |group| {
                    let child = async move {
                        let _value = value;
                        let Ok(()) = never::<(), Infallible>().await;
                    };
                    group.try_spawn(child).expect("it is open");
                    pending::<()>().await;
                });
                common::forget(begin(group).await);
            })
            .await;
        });
        place.run(work).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

/// A shield in a child of a task that awaits it in a shield. The future outlives both tasks, whose memory its end still uses.
#[test]
#[allow(clippy::async_yields_async, reason = "a future that has begun is given away")]
fn a_shield_in_a_shield_of_another_task_outlives_both() {
    everywhere(|place| {
        let task = Task::new(async {
            let inner = shield(async {
                let child = Task::new(async {
                    let mut inner = Box::pin(shield(pending::<()>()));
                    assert!(poll_fn(|cx| Poll::Ready(inner.as_mut().poll(cx).is_pending())).await);
                    inner
                });
                child.await.unwrap()
            });
            inner.await
        });
        drop(place.run(task).unwrap());
    });
}
