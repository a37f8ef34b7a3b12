//! `task::with_deadline` and `task::with_timeout`.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, IntoFuture, pending, poll_fn};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{
    self, DeadlineExceeded, LocalTask, Reason, Task, with_cancellation_handler, with_deadline, with_timeout,
};
use futures_util::future::Either;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::common::everywhere::everywhere;
use crate::common::tasks::{begin, begin_unless_ready};
use crate::common::{
    self, Census, SMALL_STACK, allocations_so_far, hold, panic_message, quiet_panic, thread, with_stack,
};

const HOUR: Duration = Duration::from_secs(3600);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns a sender that completes only by a stop.
fn forever() -> bowline::factories::Never<(), Infallible> {
    never()
}

/// Returns the latest instant that can be represented.
fn far_away() -> Instant {
    let mut at = Instant::now();
    let mut step = Duration::MAX;
    while step > Duration::ZERO {
        match at.checked_add(step) {
            Some(later) => at = later,
            None => step /= 2,
        }
    }
    at
}

#[test]
fn what_ends_in_time_gives_its_value() {
    everywhere(|place| {
        let work = Task::new(async {
            let ready = with_timeout(HOUR, async { 7 }).await;
            let later = with_deadline(Instant::now() + HOUR, async {
                Timer::global().schedule_after(MILLISECOND).await;
                8
            })
            .await;
            (ready, later, task::is_cancelled())
        });
        assert_eq!(place.run(work).unwrap(), (Ok(7), Ok(8), false));
    });
}

#[test]
fn what_is_stopped_by_it_fails_and_never_early() {
    everywhere(|place| {
        let begin = Instant::now();
        let work = Task::new(async {
            let limited = with_timeout(5 * MILLISECOND, forever()).await;
            (limited, task::is_cancelled(), task::deadline())
        });
        // The scope is left: its cancellation does not affect the task.
        assert_eq!(place.run(work).unwrap(), (Err(DeadlineExceeded), false, None));
        assert!(begin.elapsed() >= 5 * MILLISECOND);
    });
}

#[test]
fn the_time_begins_with_the_first_poll() {
    everywhere(|place| {
        let work = Task::new(async {
            let limited = with_timeout(HOUR, async { task::deadline() });
            let begin = Instant::now();
            (begin, limited.await.expect("there is time"))
        });
        let (begin, deadline) = place.run(work).unwrap();
        assert!(deadline.is_some_and(|deadline| deadline >= begin + HOUR));
    });
}

#[test]
fn inside_it_is_a_cancellation_with_its_reason() {
    everywhere(|place| {
        let work = Task::new(async {
            with_timeout(MILLISECOND, async {
                // On a busy machine the deadline may have passed before.
                let before = task::cancellation_reason().filter(|_| task::time_left() > Some(Duration::ZERO));
                let Ok(waited) = forever().stopped_as_option().await;
                let child = Task::new(async { task::cancellation_reason() });
                let Ok(child) = child.await;
                (before, waited, task::cancellation_reason(), child, task::time_left())
            })
            .await
        });
        let reason = Some(Reason::Deadline);
        // A value that comes after the deadline is returned.
        assert_eq!(
            place.run(work).unwrap(),
            Ok((None, None, reason, reason, Some(Duration::ZERO))),
        );
    });
}

#[test]
fn code_that_runs_for_long_sees_it_while_it_runs() {
    everywhere(|place| {
        let work = Task::new(async {
            with_timeout(MILLISECOND, async {
                while task::check_cancellation().is_ok() {
                    std::thread::yield_now();
                }
                task::cancellation_reason()
            })
            .await
        });
        assert_eq!(place.run(work).unwrap(), Ok(Some(Reason::Deadline)));
    });
}

#[test]
fn a_deadline_in_the_past_still_runs_the_body_cancelled() {
    everywhere(|place| {
        let begin = Instant::now();
        let past = begin.checked_sub(MILLISECOND).unwrap_or(begin);
        for at in [past, begin] {
            let work = Task::new(async move {
                let value = with_deadline(at, async { (task::cancellation_reason(), task::time_left()) }).await;
                let waits = with_deadline(at, forever()).await;
                let none = with_timeout(Duration::ZERO, forever()).await;
                (value, waits, none)
            });
            let ran = (Some(Reason::Deadline), Some(Duration::ZERO));
            assert_eq!(
                place.run(work).unwrap(),
                (Ok(ran), Err(DeadlineExceeded), Err(DeadlineExceeded)),
            );
        }
    });
}

#[test]
fn the_far_end_of_time_is_as_good_as_any() {
    everywhere(|place| {
        let at = far_away();
        let work = Task::new(async move {
            let none = with_timeout(Duration::MAX, async { task::deadline() }).await;
            let far = with_deadline(at, async {
                Timer::global().schedule_after(MILLISECOND).await;
                (task::deadline(), task::time_left() > Some(HOUR))
            })
            .await;
            // An inner deadline that never fires leaves the outer one in force.
            let nested = with_timeout(HOUR, with_timeout(Duration::MAX, async { task::deadline().is_some() })).await;
            (none, far, nested)
        });
        assert_eq!(place.run(work).unwrap(), (Ok(None), Ok((Some(at), true)), Ok(Ok(true))),);
    });
}

#[test]
fn no_limit_is_still_cancelled_with_the_task() {
    everywhere(|place| {
        let source = StopSource::new();
        source.request_stop();
        let work = Task::new(async { with_timeout(Duration::MAX, forever()).await });
        assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
    });
}

#[test]
fn of_nested_deadlines_the_earliest_holds() {
    everywhere(|place| {
        let work = Task::new(async {
            let (early, late) = (Instant::now() + HOUR, Instant::now() + 2 * HOUR);
            let shortened = with_deadline(late, with_deadline(early, async { task::deadline() })).await;
            let inherited = with_deadline(early, with_deadline(late, async { task::deadline() })).await;
            (early, shortened, inherited)
        });
        let (early, shortened, inherited) = place.run(work).unwrap();
        assert_eq!(shortened, Ok(Ok(Some(early))));
        assert_eq!(inherited, Ok(Ok(Some(early))));
    });
}

#[test]
fn of_nested_deadlines_the_one_that_passed_first_reports() {
    everywhere(|place| {
        let work = Task::new(async {
            let inner = with_timeout(HOUR, async {
                let inner = with_timeout(MILLISECOND, forever()).await;
                (inner, task::is_cancelled())
            })
            .await;
            let outer = with_timeout(MILLISECOND, async {
                let _ = with_timeout(HOUR, forever()).await;
                unreachable!("it is not resumed");
            })
            .await;
            (inner, outer)
        });
        assert_eq!(
            place.run(work).unwrap(),
            (Ok((Err(DeadlineExceeded), false)), Err::<(), _>(DeadlineExceeded)),
        );
    });
}

/// The inner deadline passes as well before the work has stopped, but did not stop it.
#[test]
fn a_deadline_that_passes_second_does_not_report() {
    everywhere(|place| {
        let work = Task::new(async {
            with_timeout(MILLISECOND, async {
                let inner = with_timeout(3 * MILLISECOND, async {
                    while task::time_left() > Some(Duration::ZERO) {
                        std::thread::yield_now();
                    }
                    let late = Instant::now() + 10 * MILLISECOND;
                    while Instant::now() < late {
                        std::thread::yield_now();
                    }
                    let Ok(()) = forever().await;
                });
                let _ = inner.await;
                unreachable!("it is not resumed");
            })
            .await
        });
        assert_eq!(place.run(work).unwrap(), Err::<(), _>(DeadlineExceeded));
    });
}

#[test]
fn tasks_inherit_it_awaited_or_connected() {
    everywhere(|place| {
        let work = Task::new(async {
            let at = Instant::now() + HOUR;
            let seen = with_deadline(at, async {
                let Ok(awaited) = Task::new(async { task::deadline() }).await;
                let Ok((left, right)) = when_all((
                    Task::new(async { task::deadline() }),
                    Task::new(async { task::deadline() }),
                ))
                .await;
                let elsewhere = starts_on(ThreadPool::global().scheduler(), Task::new(async { task::deadline() }));
                let Ok(boxed) = elsewhere.boxed().await;
                [awaited, left, right, boxed]
            })
            .await;
            (at, seen)
        });
        let (at, seen) = place.run(work).unwrap();
        assert_eq!(seen, Ok([Some(at); 4]));
    });
}

#[test]
fn tasks_inside_are_stopped_by_it() {
    everywhere(|place| {
        let census = Census::new();
        let counted = census.clone();
        let work = Task::new(async move {
            let limited = with_timeout(MILLISECOND, async {
                let waits = || {
                    let value = counted.value();
                    Task::new(async move {
                        let _value = value;
                        let Ok(()) = forever().await;
                    })
                };
                let Ok(_) = when_all((waits(), waits())).await;
                unreachable!("it is not resumed");
            })
            .await;
            (limited, counted.alive())
        });
        assert_eq!(place.run(work).unwrap(), (Err::<(), _>(DeadlineExceeded), 0));
    });
}

#[test]
fn siblings_are_untouched() {
    everywhere(|place| {
        let work = Task::new(async {
            let limited = async { with_timeout(MILLISECOND, forever()).await };
            let other = async {
                Timer::global().schedule_after(5 * MILLISECOND).await;
                (task::is_cancelled(), task::deadline())
            };
            let polled = futures_util::future::join(limited, other).await;
            let limited = Task::new(async { with_timeout(MILLISECOND, forever()).await });
            let other = Task::new(async {
                Timer::global().schedule_after(5 * MILLISECOND).await;
                (task::is_cancelled(), task::deadline())
            });
            let Ok(connected) = when_all((limited, other)).await;
            (polled, connected)
        });
        let expected = (Err(DeadlineExceeded), (false, None));
        assert_eq!(place.run(work).unwrap(), (expected, expected));
    });
}

#[test]
fn a_cancel_of_the_task_passes_on_and_is_not_taken_for_a_deadline() {
    everywhere(|place| {
        let source = StopSource::new();
        let (sends, sent) = mpsc::channel();
        let work = Task::new(async move {
            let inside = with_cancellation_handler(|| {}, async move {
                let Ok(waited) = forever().stopped_as_option().await;
                assert_eq!(waited, None);
                sends.send(task::cancellation_reason()).expect("somebody listens");
                let Ok(()) = forever().await;
            });
            let _ = with_timeout(HOUR, inside).await;
            unreachable!("it is not resumed");
        });
        let outcome = thread::scope(|scope| {
            scope.spawn(|| source.request_stop());
            place.run(work.write_env(WithStopToken(source.token())))
        });
        assert!(outcome.is_stopped());
        assert_eq!(sent.recv(), Ok(Some(Reason::Requested)));
    });
}

#[test]
fn what_stops_inside_by_itself_stops_the_task() {
    everywhere(|place| {
        let work = Task::new(async {
            let _ = with_timeout(HOUR, just_stopped::<(), Infallible>()).await;
            unreachable!("it is not resumed");
        });
        assert!(place.run(work).is_stopped());
    });
}

#[test]
fn a_future_of_another_crate_runs_on_but_is_polled_once_more() {
    everywhere(|place| {
        let work = Task::new(async {
            // Nothing else wakes it.
            let looks = poll_fn(|_| match task::is_cancelled() {
                true => Poll::Ready(7),
                false => Poll::Pending,
            });
            with_timeout(MILLISECOND, looks).await
        });
        assert_eq!(place.run(work).unwrap(), Ok(7));
    });
}

#[test]
fn a_future_of_another_crate_is_let_go_of_where_it_is_wrapped() {
    everywhere(|place| {
        let census = Census::new();
        let value = census.value();
        let work = Task::new(async move {
            let stuck = async move {
                let _value = value;
                pending::<()>().await;
            };
            with_timeout(MILLISECOND, from_future(stuck)).await
        });
        assert_eq!(place.run(work).unwrap(), Err(DeadlineExceeded));
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn under_wakers_of_their_own_futures_are_dropped_when_it_passes() {
    everywhere(|place| {
        let census = Census::new();
        let counted = census.clone();
        let work = Task::new(async move {
            let stuck = |value: common::Counted| async move {
                let _value = value;
                Timer::global().schedule_after(HOUR).await;
            };
            let all: FuturesUnordered<_> = (0..3)
                .map(|_| with_timeout(MILLISECOND, stuck(counted.value())))
                .collect();
            (all.collect::<Vec<_>>().await, counted.alive())
        });
        assert_eq!(place.run(work).unwrap(), (vec![Err(DeadlineExceeded); 3], 0));
    });
}

#[test]
fn in_tokio_the_future_is_dropped_and_the_error_returned() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a runtime");
    let census = Census::new();
    let value = census.value();
    runtime.block_on(async {
        let begin = Instant::now();
        let stuck = tokio::spawn(with_timeout(5 * MILLISECOND, async move {
            let _value = value;
            pending::<()>().await;
        }));
        assert_eq!(stuck.await.expect("it did not panic"), Err(DeadlineExceeded));
        assert!(begin.elapsed() >= 5 * MILLISECOND);
        assert_eq!(census.alive(), 0);
        // A sender of this crate, a future of another, and one that is ready although the time is up.
        assert_eq!(with_timeout(MILLISECOND, forever()).await, Err(DeadlineExceeded));
        assert_eq!(with_timeout(HOUR, tokio::time::sleep(MILLISECOND)).await, Ok(()));
        assert_eq!(with_timeout(Duration::ZERO, async { task::deadline() }).await, Ok(None));
        assert_eq!(with_timeout(Duration::MAX, async { 7 }).await, Ok(7));
        // A task inside counts as a task.
        let limited = Task::new(async { with_timeout(MILLISECOND, forever()).await });
        assert_eq!(limited.await, Ok(Err(DeadlineExceeded)));
    });
}

#[test]
fn with_no_runtime_at_all_it_works_too() {
    assert_eq!(
        pollster::block_on(with_timeout(MILLISECOND, pending::<()>())),
        Err(DeadlineExceeded),
    );
    assert_eq!(pollster::block_on(with_timeout(HOUR, async { 7 })), Ok(7));
}

#[test]
fn dropped_half_way_it_does_not_wait_for_its_time() {
    everywhere(|place| {
        let work = Task::new(async {
            drop(begin(with_timeout(HOUR, forever())).await);
            drop(begin(with_timeout(HOUR, pending::<()>())).await);
        });
        place.run(work).unwrap();
    });
}

#[test]
fn forgotten_it_does_not_keep_the_task() {
    everywhere(|place| {
        let source = StopSource::new();
        let work = Task::new(async {
            common::forget(begin(with_timeout(HOUR, pending::<()>())).await);
            // The await inside is asked to stop, since it will not be polled again.
            common::forget(begin(with_timeout(HOUR, forever().into_future())).await);
        });
        place.run(work.write_env(WithStopToken(source.token()))).unwrap();
    });
}

#[test]
fn forgotten_in_a_scope_it_does_not_keep_that() {
    everywhere(|place| {
        let work = Task::new(async {
            with_timeout(HOUR, async {
                common::forget(begin(with_timeout(HOUR, pending::<()>())).await);
                common::forget(begin(with_timeout(HOUR, forever().into_future())).await);
            })
            .await
        });
        assert_eq!(place.run(work).unwrap(), Ok(()));
    });
}

/// The loser of a race is still in flight, and an hour is left.
#[test]
fn the_winner_of_a_race_inside_is_returned_at_once() {
    let busy = ThreadPool::new(1);
    everywhere(|place| {
        let census = Census::new();
        let (value, scheduler) = (census.value(), busy.scheduler());
        let work = Task::new(async move {
            let worker = hold(scheduler);
            let stuck = scheduler.schedule().unstoppable().then(move |()| drop(value));
            let race = futures_util::future::select(stuck.into_future(), std::future::ready(7));
            let inside = async move {
                match race.await {
                    Either::Left(_) => 0,
                    Either::Right((won, _loser)) => won,
                }
            };
            let won = with_timeout(HOUR, inside).await;
            // The loser can end only from here on.
            drop(worker);
            won
        });
        assert_eq!(place.run(work).unwrap(), Ok(7));
        assert_eq!(census.alive(), 0);
    });
}

/// An operation that was moved out of a deadline is no longer stopped by it.
#[test]
fn what_is_moved_out_in_time_goes_on() {
    everywhere(|place| {
        let work = Task::new(async {
            let at = Instant::now() + 5 * MILLISECOND;
            let waits = Timer::global().schedule_after(10 * MILLISECOND).into_future();
            let moved = with_deadline(at, begin(waits)).await;
            // On a busy machine the deadline may have passed before.
            let Ok(moved) = moved else { return true };
            moved.await;
            Instant::now() >= at && !task::is_cancelled()
        });
        assert!(place.run(work).unwrap());
    });
}

/// A cancellation of the task reaches it through any number of scopes that were left.
#[test]
#[allow(clippy::async_yields_async, reason = "a future that has begun is given away")]
fn what_is_moved_out_is_cancelled_with_the_task() {
    everywhere(|place| {
        for from_elsewhere in [false, true] {
            let source = StopSource::new();
            let canceller = source.clone();
            let work = Task::new(async move {
                let inner = async { with_timeout(HOUR, begin(forever().into_future())).await.unwrap() };
                let moved = with_timeout(HOUR, with_timeout(2 * HOUR, inner))
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(task::deadline(), None);
                if from_elsewhere {
                    std::thread::spawn(move || canceller.request_stop());
                } else {
                    canceller.request_stop();
                }
                let _ = moved.await;
            });
            assert!(place.run(work.write_env(WithStopToken(source.token()))).is_stopped());
        }
    });
}

/// Moved out and forgotten, with an inner scope that stays a user forever, it does not keep the task alive.
#[test]
fn what_is_moved_out_and_forgotten_does_not_keep_the_task() {
    everywhere(|place| {
        let work = Task::new(async {
            let inside = task::shield(async {
                let _ = forever().await;
            });
            let moved = with_timeout(HOUR, begin(inside)).await.unwrap();
            common::forget(moved);
        });
        assert!(place.run(work).is_value());
    });
}

#[test]
fn sent_away_it_may_be_dropped_and_not_polled() {
    everywhere(|place| {
        let sent = || Task::new(begin(with_timeout(HOUR, pending::<()>())));
        drop(place.run(sent()).unwrap());
        let mut sent = place.run(sent()).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(
            panic_message(|| sent.as_mut().poll(&mut context)),
            "a future that was polled in a task was sent to another: await it in the task where it began",
        );
    });
}

#[test]
fn dropped_elsewhere_while_it_passes_and_the_task_ends() {
    for round in 0..100_u32 {
        let pool = ThreadPool::new(2);
        let (sends, sent) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || drop(sent.recv().expect("it is sent")));
            let work = Task::new(async move {
                // It is ready if its time has passed by its first poll.
                let limited = begin_unless_ready(with_timeout(round * MILLISECOND / 50, pending::<()>())).await;
                sends.send(limited).expect("the other thread drops it");
            });
            sync_wait(starts_on(pool.scheduler(), work)).unwrap();
        });
    }
}

/// The loop takes both timers out at once. The completion of the first drops the future of the second, whose timer is still to
/// run on the waiting loop.
#[test]
fn dropped_while_its_timer_is_about_to_run_on_the_same_loop() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let work = Task::new(async move {
        let at = Instant::now() + MILLISECOND;
        let first = with_deadline(at, forever()).on(&timer);
        let second = with_deadline(at, forever()).on(&timer);
        while Instant::now() < at {
            std::thread::yield_now();
        }
        futures_util::future::select(Box::pin(first), Box::pin(second))
            .await
            .factor_first()
            .0
    });
    assert_eq!(run_loop.run_until(work).unwrap(), Err(DeadlineExceeded));
}

#[test]
fn ended_while_its_timer_is_about_to_run_on_the_same_loop() {
    let run_loop = RunLoop::new();
    let timer = Timer::on(&run_loop);
    let (sends, receives) = async_channel::bounded::<()>(1);
    let work = Task::new(async move {
        let at = Instant::now() + MILLISECOND;
        let close = move || {
            sends.close();
        };
        let first = with_deadline(at, with_cancellation_handler(close, forever())).on(&timer);
        // Ended by the first one's timer while its own is due.
        let second = with_deadline(at, async { receives.recv().await.is_err() }).on(&timer);
        futures_util::future::join(first, second).await
    });
    assert_eq!(run_loop.run_until(work).unwrap(), (Err(DeadlineExceeded), Ok(true)));
}

#[test]
fn a_panic_inside_unwinds_and_ends_the_timer() {
    everywhere(|place| {
        let work = Task::new(async {
            let limited = with_timeout(HOUR, async {
                let Ok(()) = just(()).await;
                quiet_panic();
            });
            limited.await
        });
        let work = std::panic::AssertUnwindSafe(|| place.run(work));
        assert!(std::panic::catch_unwind(work).is_err());
    });
}

#[test]
fn the_inside_may_borrow_and_stay_on_its_thread() {
    let run_loop = RunLoop::new();
    let local = Rc::new(Cell::new(1));
    let work = LocalTask::new(async move {
        let borrowed = &local;
        with_timeout(HOUR, async {
            borrowed.set(borrowed.get() + 1);
            Timer::global().schedule_after(MILLISECOND).await;
            borrowed.get()
        })
        .await
    });
    assert_eq!(run_loop.run_until(work).unwrap(), Ok(2));
}

#[test]
fn polled_after_its_end_it_is_pending() {
    everywhere(|place| {
        let work = Task::new(async {
            let mut limited = Box::pin(with_timeout(HOUR, async { 7 }));
            let value = limited.as_mut().await;
            let again = poll_fn(|context| Poll::Ready(limited.as_mut().poll(context).is_pending())).await;
            (value, again)
        });
        assert_eq!(place.run(work).unwrap(), (Ok(7), true));
    });
}

#[test]
fn outside_of_a_task_there_is_no_deadline() {
    assert_eq!((task::deadline(), task::time_left()), (None, None));
    assert_eq!(sync_wait(Task::new(async { task::deadline() })).unwrap(), None);
}

#[test]
fn the_error_is_one() {
    let error: Box<dyn std::error::Error + Send + Sync> = Box::new(DeadlineExceeded);
    assert_eq!(error.to_string(), "deadline exceeded");
    assert_eq!(*error.downcast::<DeadlineExceeded>().unwrap(), DeadlineExceeded);
}

#[test]
fn a_deadline_takes_no_memory_but_that_of_its_task() {
    // Starts the timer's thread.
    sync_wait(Timer::global().schedule_after(Duration::ZERO)).unwrap();
    let source = StopSource::new();
    let work = Task::new(async {
        let mut before = 0;
        for round in 0..50 {
            if round == 1 {
                // The task has its blocks from here on.
                before = allocations_so_far();
            }
            assert_eq!(with_timeout(HOUR, async { 7 }).await, Ok(7));
            assert_eq!(with_timeout(Duration::ZERO, forever()).await, Err(DeadlineExceeded));
            assert_eq!(with_timeout(MILLISECOND, forever()).await, Err(DeadlineExceeded));
        }
        allocations_so_far() - before
    });
    let run_loop = RunLoop::new();
    let count = run_loop
        .run_until(work.write_env(WithStopToken(source.token())))
        .unwrap();
    // The timer of one may end after the next has begun, for which the memory grows once. Without slabs, the blocks are counted
    // that were too small at first.
    let most = if cfg!(sanitized = "address") { 8 } else { 2 };
    assert!(count <= most, "{count}");
}

#[test]
fn many_deadlines_take_a_small_stack() {
    let rounds = with_stack(SMALL_STACK, || {
        let work = Task::new(async {
            let mut rounds = 0;
            for _ in 0..20_000 {
                let limited = with_timeout(Duration::ZERO, forever()).await;
                rounds += usize::from(limited.is_err());
                let limited = with_timeout(HOUR, just(1)).await;
                rounds += usize::from(limited.is_ok());
            }
            rounds
        });
        sync_wait(work).unwrap()
    });
    assert_eq!(rounds, 40_000);
}

#[test]
fn children_of_a_group_inherit_it_and_are_stopped_by_it() {
    everywhere(|place| {
        let work = Task::new(async {
            let at = Instant::now() + HOUR;
            let seen = with_deadline(
                at,
                task::group(async |group| {
                    group.try_spawn(async { task::deadline() }).expect("it is open");
                    group.next().await.flatten()
                }),
            )
            .await;
            let limited = with_timeout(
                MILLISECOND,
                task::group(async |group| {
                    let child = || async {
                        let Ok(waited) = forever().stopped_as_option().await;
                        assert_eq!(waited, None);
                        task::cancellation_reason()
                    };
                    for _ in 0..10 {
                        group.try_spawn(child()).expect("it is open");
                    }
                    let mut reasons = Vec::new();
                    while let Some(reason) = group.next().await {
                        reasons.push(reason);
                    }
                    reasons
                }),
            )
            .await;
            (seen == Ok(Some(at)), limited)
        });
        let (inherited, limited) = place.run(work).unwrap();
        assert!(inherited);
        // The body saw them end, or was stopped with them.
        if let Ok(reasons) = limited {
            assert_eq!(reasons, [Some(Reason::Deadline); 10]);
        }
    });
}
