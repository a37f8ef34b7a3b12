//! Tasks of futures that are not `Send`.

use std::cell::{Cell, RefCell};
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::{self, DeadlineExceeded, LocalTask, Task};
use futures_lite::future::or;
use futures_util::future::join_all;

use crate::common::{
    Census, DEEP_STACK, ROUNDS, Record, Recorded, aborts, allocations, panic_message, with_loop, with_stack,
};

fn here() -> ThreadId {
    thread::current().id()
}

/// A value that records the thread of its drop.
struct DropsAt(Rc<Cell<Option<ThreadId>>>);

impl DropsAt {
    fn new() -> (Self, Rc<Cell<Option<ThreadId>>>) {
        let place = Rc::new(Cell::new(None));
        (DropsAt(Rc::clone(&place)), place)
    }
}

impl Drop for DropsAt {
    fn drop(&mut self) {
        self.0.set(Some(here()));
    }
}

/// A future that waits until another thread has woken it, `rounds` times, each time a new one.
struct WokenElsewhere {
    rounds: usize,
    waker: Option<thread::JoinHandle<()>>,
}

impl Future for WokenElsewhere {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.waker.as_ref().is_some_and(|waker| !waker.is_finished()) {
            // The wake comes before the end of the thread.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.rounds == 0 {
            return Poll::Ready(());
        }
        self.rounds -= 1;
        let waker = cx.waker().clone();
        self.waker = Some(thread::spawn(move || {
            waker.wake_by_ref();
            waker.wake();
        }));
        Poll::Pending
    }
}

#[test]
fn holds_an_rc_across_awaits_and_stays_on_its_thread() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let task = LocalTask::new(async move {
        let home = here();
        let log = Rc::new(RefCell::new(Vec::new()));
        for round in 0..100 {
            let Ok(there) = starts_on(scheduler, just_from(here)).await;
            assert_ne!(there, home);
            assert_eq!(here(), home);
            log.borrow_mut().push(round);
        }
        Timer::global().schedule_after(Duration::from_millis(1)).await;
        assert_eq!(here(), home);
        let sums = when_all((
            starts_on(scheduler, just_from(|| 1)),
            Timer::global().schedule_after(Duration::from_millis(1)).then(|()| 2),
        ));
        let Ok((one, two)) = sums.await;
        assert_eq!(here(), home);
        log.borrow().len() + one + two
    });
    assert_eq!(sync_wait(task).unwrap(), 103);
}

#[test]
fn runs_on_the_thread_of_a_loop_that_others_use_too() {
    let run_loop = RunLoop::new();
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let mut slot = WaitSlot::new();
    let home = here();
    thread::scope(|scope| {
        scope.spawn(|| {
            let there = sync_wait(starts_on(run_loop.scheduler(), just_from(here))).unwrap();
            run_loop.finish();
            assert_eq!(there, home);
        });
        let task = LocalTask::new(async move {
            let kept = Rc::new(home);
            let Ok(()) = starts_on(scheduler, just(())).await;
            *kept == here()
        });
        assert!(run_loop.run_until(task).unwrap());
        run_loop.run();
    });
    assert_eq!(prepare(LocalTask::new(async { 5 }), &mut slot).wait().unwrap(), 5);
}

#[test]
fn awaits_local_tasks_whose_results_cannot_be_sent_and_tasks_that_can() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let task = LocalTask::new(async move {
        let home = here();
        let shared = Rc::new(Cell::new(1));
        let child = {
            let shared = Rc::clone(&shared);
            LocalTask::new(async move {
                let Ok(two) = starts_on(scheduler, just_from(|| 2)).await;
                assert_eq!(here(), home);
                shared.set(shared.get() + two);
                shared
            })
        };
        let Ok(same) = child.await;
        assert!(Rc::ptr_eq(&same, &shared));
        let Ok(task_ran) = Task::new(async move {
            let Ok(()) = starts_on(scheduler, just(())).await;
            here()
        })
        .await;
        assert_eq!(task_ran, home);
        let failing = LocalTask::<(), Rc<str>>::try_new(async { Err("no".into()) });
        assert_eq!(&*failing.await.unwrap_err(), "no");
        same.get()
    });
    assert_eq!(sync_wait(task).unwrap(), 3);
}

#[test]
fn two_at_once_take_turns_on_one_thread() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let home = here();
    let walk = move |log: Rc<RefCell<Vec<usize>>>, which: usize| {
        LocalTask::new(async move {
            for _ in 0..50 {
                log.borrow_mut().push(which);
                let Ok(()) = starts_on(scheduler, just(())).await;
                assert_eq!(here(), home);
            }
        })
    };
    let log = Rc::new(RefCell::new(Vec::new()));
    sync_wait(when_all((walk(Rc::clone(&log), 0), walk(Rc::clone(&log), 1)))).unwrap();
    let log = log.borrow();
    assert_eq!(log.len(), 100);
    assert_eq!(log.iter().sum::<usize>(), 50);

    // Likewise below a task.
    let again = LocalTask::new(async move {
        let log = Rc::new(RefCell::new(Vec::new()));
        let Ok(((), ())) = when_all((walk(Rc::clone(&log), 0), walk(Rc::clone(&log), 1))).await;
        log.borrow().len()
    });
    assert_eq!(sync_wait(again).unwrap(), 100);
}

#[test]
fn wakers_of_other_threads_only_queue_it() {
    let task = LocalTask::new(async {
        let home = Rc::new(here());
        let foreign = WokenElsewhere {
            rounds: 20,
            waker: None,
        };
        foreign.await;
        *home == here()
    });
    assert!(sync_wait(task).unwrap());
}

#[test]
fn a_waker_that_outlives_it_has_nothing_dropped_elsewhere() {
    let (kept, keeps) = mpsc::channel::<Waker>();
    let (done, is_done) = mpsc::channel::<()>();
    let elsewhere = thread::spawn(move || {
        let waker = keeps.recv().expect("a waker");
        is_done.recv().expect("the end of the task");
        waker.wake_by_ref();
        drop(waker);
    });
    let home = here();
    let (local, local_dropped) = DropsAt::new();
    let (result, result_dropped) = DropsAt::new();
    let seen = (Rc::clone(&local_dropped), Rc::clone(&result_dropped));
    let mut task = LocalTask::new(async move {
        let child = LocalTask::new(async move {
            let _local = local;
            poll_fn(|cx| kept.send(cx.waker().clone()).map_or(Poll::Pending, Poll::Ready)).await;
            result
        });
        {
            let mut child = pin!(child.into_future());
            let mut polled = false;
            // It runs between the two polls, and is dropped with its result.
            poll_fn(|cx| match std::mem::replace(&mut polled, true) {
                false => child.as_mut().poll(cx).map(drop),
                true => Poll::Ready(()),
            })
            .await;
            assert_eq!(seen.0.get(), Some(home));
            assert_eq!(seen.1.get(), None);
        }
        assert_eq!(seen.1.get(), Some(home), "whoever lets go of it drops what is in it");
    });
    // At this nesting depth a child is queued, not polled at once.
    for _ in 0..3 {
        let inner = task;
        task = LocalTask::new(async move { inner.await.unwrap() });
    }
    sync_wait(task).unwrap();
    done.send(()).expect("it listens");
    elsewhere.join().expect("it wakes nobody");
    assert_eq!(local_dropped.get(), Some(home));
    assert_eq!(result_dropped.get(), Some(home));
}

#[test]
fn a_stop_drops_its_locals_at_home_before_it_completes() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (local, dropped) = DropsAt::new();
    let source = StopSource::new();
    let token = source.token();
    let task = LocalTask::new(async move {
        let _local = local;
        let child = LocalTask::new(async move {
            let Ok(()) = starts_on(scheduler, just_from(move || source.request_stop()).then(drop)).await;
            let Ok(()) = never::<(), std::convert::Infallible>().await;
        });
        let Ok(()) = child.await;
        unreachable!("what has stopped does not go on");
    });
    let seen = Rc::clone(&dropped);
    let outcome = sync_wait(task.write_env(WithStopToken(token)));
    assert_eq!(seen.get(), Some(here()));
    assert!(outcome.is_stopped());
}

/// A local with a number. Its drop adds the number and the thread to a list.
struct Numbered(u32, Rc<RefCell<Vec<(u32, ThreadId)>>>);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.1.borrow_mut().push((self.0, here()));
    }
}

/// Waits in a future that knows nothing of the library, with locals around it and in it. Calls `when_pending` in the poll that suspends.
async fn stuck(list: Rc<RefCell<Vec<(u32, ThreadId)>>>, when_pending: impl FnOnce()) {
    let _outer = Numbered(3, list.clone());
    let _inner = Numbered(2, list.clone());
    let awaited = Numbered(1, list);
    let mut when_pending = Some(when_pending);
    poll_fn(move |_| {
        let _awaited = &awaited;
        if let Some(when_pending) = when_pending.take() {
            when_pending();
        }
        Poll::<()>::Pending
    })
    .await;
    unreachable!("the future is dropped");
}

/// The drops of [`stuck`], on this thread.
fn drops_at_home() -> Vec<(u32, ThreadId)> {
    vec![(1, here()), (2, here()), (3, here())]
}

#[test]
fn a_stop_ends_it_in_a_foreign_future_with_its_locals_dropped_at_home() {
    let nested = |depth, source: &StopSource, elsewhere, list: &Rc<RefCell<Vec<_>>>| {
        let source = source.clone();
        let stop = move || {
            if elsewhere {
                drop(thread::spawn(move || {
                    thread::sleep(Duration::from_millis(2));
                    source.request_stop();
                }));
            } else {
                source.request_stop();
            }
        };
        let mut work: Pin<Box<dyn Future<Output = ()>>> = Box::pin(stuck(list.clone(), stop));
        for _ in 0..depth {
            let child = LocalTask::new(work);
            work = Box::pin(async move {
                let Ok(()) = child.await;
            });
        }
        LocalTask::new(work)
    };
    for elsewhere in [false, true] {
        for depth in [0, 1, 20] {
            let (list, source) = (Rc::default(), StopSource::new());
            let task = nested(depth, &source, elsewhere, &list);
            let outcome = sync_wait(task.write_env(WithStopToken(source.token())));
            assert!(outcome.is_stopped());
            assert_eq!(*list.borrow(), drops_at_home());
        }
    }
}

#[test]
fn a_deadline_ends_a_foreign_future_in_it() {
    let soon = Duration::from_millis(2);
    let hour = Duration::from_secs(3600);
    let list = Rc::default();
    let inside = Rc::clone(&list);
    let ended = task::block_on(async move {
        let late = task::with_timeout(soon, stuck(Rc::clone(&inside), || {})).await;
        // The locals are dropped before the await ends, and the task goes on.
        assert_eq!(*inside.borrow(), drops_at_home());
        inside.borrow_mut().clear();
        let child = LocalTask::new(stuck(inside, || {}));
        let nested = task::with_timeout(hour, task::with_timeout(soon, child)).await;
        assert!(!task::is_cancelled());
        (late, nested.map(|ended| ended.map(Result::unwrap)))
    });
    assert_eq!(ended, (Err(DeadlineExceeded), Ok(Err(DeadlineExceeded))));
    assert_eq!(*list.borrow(), drops_at_home());
    // One that is a sender, and one that another executor awaits.
    let limited = || LocalTask::new(task::with_timeout(soon, stuck(Rc::default(), || {})));
    assert_eq!(sync_wait(limited()).unwrap(), Err(DeadlineExceeded));
    assert_eq!(pollster::block_on(limited().into_future()), Ok(Err(DeadlineExceeded)));
}

#[test]
fn a_panic_arrives_with_the_locals_dropped() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (local, dropped) = DropsAt::new();
    let message = panic_message(|| {
        sync_wait(LocalTask::new(async move {
            let _local = local;
            let child = LocalTask::new(async move {
                let Ok(()) = starts_on(scheduler, just(())).await;
                panic!("in the child");
            });
            let Ok(()) = child.await;
        }))
    });
    assert_eq!(message, "in the child");
    assert_eq!(dropped.get(), Some(here()));
}

#[test]
fn errors_are_typed() {
    let task = LocalTask::<i32, std::num::ParseIntError>::try_new(async {
        let text = Rc::new("many");
        let Ok(()) = just(()).await;
        Ok(text.parse::<i32>()? + 1)
    });
    assert!(sync_wait(task).is_error());
}

#[test]
fn one_that_is_not_started_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let task = LocalTask::new(async move {
        let _value = value;
        unreachable!("nobody started it")
    });
    assert_eq!(census.alive(), 1);
    drop(task);
    assert_eq!(census.alive(), 0);

    let value = census.value();
    let mut slot = WaitSlot::new();
    drop(prepare(LocalTask::new(async move { drop(value) }), &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn one_allocation_each_and_none_per_await() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let run = || {
        let task = LocalTask::new(async move {
            for _ in 0..100 {
                let Ok(()) = starts_on(scheduler, just(())).await;
            }
            let Ok(one) = LocalTask::new(async { 1 }).await;
            one
        });
        sync_wait(task).unwrap()
    };
    // The first run allocates the slabs of the thread. AddressSanitizer sees two frames and a block.
    run();
    let frames = if cfg!(sanitized = "address") { 3 } else { 0 };
    assert_eq!(allocations(run), (1, frames));
}

#[test]
fn awaits_take_no_stack_however_many_and_deep() {
    fn nest(depth: usize, log: Rc<Cell<usize>>) -> LocalTask<()> {
        LocalTask::new(async move {
            if depth > 0 {
                let Ok(()) = nest(depth - 1, Rc::clone(&log)).await;
            }
            log.set(log.get() + 1);
        })
    }
    with_stack(DEEP_STACK, || {
        let reached = Rc::new(Cell::new(0));
        sync_wait(nest(ROUNDS / 10, Rc::clone(&reached))).unwrap();
        assert_eq!(reached.get(), ROUNDS / 10 + 1);
        let rounds = LocalTask::new(async {
            for _ in 0..ROUNDS {
                let Ok(()) = LocalTask::new(async {}).await;
            }
        });
        sync_wait(rounds).unwrap();
    });
}

#[test]
fn a_scheduler_that_would_move_it_is_refused() {
    let pool = ThreadPool::new(1);
    let census = Census::new();
    let task = || {
        let value = census.value();
        LocalTask::new(async move { drop(value) })
    };
    let message = panic_message(|| sync_wait(task().write_env(WithScheduler(pool.scheduler()))));
    assert!(message.contains("run_loop.run_until(task)"), "{message}");
    let message = panic_message(|| sync_wait(task().write_env(WithScheduler(InlineScheduler))));
    assert!(message.contains("stays on its thread"), "{message}");
    assert_eq!(census.alive(), 0);
}

#[test]
fn what_is_refused_is_dropped_before_the_completion() {
    let pool = ThreadPool::new(1);
    let census = Census::new();
    let value = census.value();
    let (record, recorded) = Record::<usize, std::convert::Infallible, _>::in_env(bowline::Patched::new(
        WithScheduler(pool.scheduler()),
        bowline::EmptyEnv,
    ));
    let task = LocalTask::new(async move { drop(value) }).then(|()| 0);
    let mut operation = pin!(bowline::Sender::connect(task, record));
    // SAFETY: the operation is pinned, started once, and completes before `start` returns.
    unsafe { bowline::Operation::start(operation.as_mut()) }.run();
    assert_eq!(census.alive(), 0);
    assert!(matches!(recorded.recv(), Ok(Recorded::Panicked(_))));
}

/// Runs a future in single-threaded executors of other crates.
fn elsewhere<T>(make: impl Fn() -> Pin<Box<dyn Future<Output = T>>>) -> Vec<T> {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let executor = async_executor::LocalExecutor::new();
    let spawned = executor.spawn(make());
    vec![
        pollster::block_on(make()),
        tokio.block_on(make()),
        futures_lite::future::block_on(executor.run(spawned)),
        // With other wakers, inside a local task.
        task::block_on(async move { join_all([make()]).await.pop().expect("one") }),
    ]
}

#[test]
fn other_executors_of_the_thread_run_it() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let make = || {
        let home = here();
        let task = LocalTask::new(async move {
            let shared = Rc::new(Cell::new(0));
            for round in 0..20 {
                let Ok(()) = starts_on(scheduler, just(())).await;
                assert_eq!(here(), home);
                shared.set(shared.get() + round);
            }
            let child = {
                let shared = Rc::clone(&shared);
                LocalTask::new(async move {
                    WokenElsewhere { rounds: 3, waker: None }.await;
                    assert_eq!(here(), home);
                    shared
                })
            };
            let Ok(same) = child.await;
            let Ok((one, two)) = when_all((
                LocalTask::new(async move { starts_on(scheduler, just(1)).await }),
                Task::new(async { 2 }),
            ))
            .await;
            same.set(same.get() + one.unwrap_or(0) + two);
            same
        });
        Box::pin(async { task.await.map(|shared| shared.get()) }) as Pin<Box<dyn Future<Output = _>>>
    };
    assert_eq!(elsewhere(make), [Ok(193); 4]);
    let adapted =
        || Box::pin(LocalTask::new(async { 1 }).then(|one| one + 1).into_future()) as Pin<Box<dyn Future<Output = _>>>;
    assert_eq!(elsewhere(adapted), [Ok(2); 4]);
    let failing = || {
        let task = LocalTask::<(), Rc<str>>::try_new(async { Err("no".into()) });
        Box::pin(task.into_future()) as Pin<Box<dyn Future<Output = _>>>
    };
    assert_eq!(
        elsewhere(failing),
        [const { Err::<(), &str>("no") }; 4].map(|no| no.map_err(Rc::from))
    );
}

#[test]
fn a_panic_and_a_stop_arrive_in_other_executors() {
    let message = panic_message(|| pollster::block_on(LocalTask::new(async { panic!("in there") }).into_future()));
    assert_eq!(message, "in there");
    let stops = || LocalTask::new(async { just_stopped::<(), std::convert::Infallible>().await });
    let message = panic_message(|| pollster::block_on(stops().into_future()).map(drop));
    assert!(message.contains("stopped_as_option"), "{message}");
    assert_eq!(
        pollster::block_on(stops().stopped_as_option().into_future()).map(|it| it.is_none()),
        Ok(true)
    );
}

/// Polls a future once, as an executor of another crate does, and drops it.
fn polled_once_and_dropped(future: impl Future) {
    let mut future = Box::pin(future);
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
}

#[test]
fn dropped_in_another_executor_it_ends_at_home() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (stuck, gets_going) = mpsc::channel::<()>();
    let gets_going = std::sync::Arc::new(std::sync::Mutex::new(gets_going));
    let forever = never::<(), std::convert::Infallible>;
    let waits: [&dyn Fn(DropsAt) -> LocalTask<()>; 7] = [
        // A future that ignores stops.
        &|local| {
            LocalTask::new(async move {
                let _local = local;
                std::future::pending::<()>().await;
            })
        },
        // A sender that stops at once.
        &|local| {
            LocalTask::new(async move {
                let _local = local;
                let Ok(()) = forever().await;
            })
        },
        // A sender that stops on another thread.
        &|local| {
            LocalTask::new(async move {
                let _local = local;
                let Ok(()) = starts_on(scheduler, forever()).continues_on(scheduler).await;
            })
        },
        // A sender that stops where the executor polls.
        &|local| {
            LocalTask::new(async move {
                let _local = local;
                let Ok(()) = from_future(std::future::pending()).await;
            })
        },
        // A sender that does not stop, but ends.
        &|local| {
            let gets_going = std::sync::Arc::clone(&gets_going);
            LocalTask::new(async move {
                let _local = local;
                let work = just_from(move || gets_going.lock().map(|going| going.recv().is_ok()).is_ok());
                let Ok(_) = starts_on(scheduler, work).await;
            })
        },
        // Several, one of which waits forever.
        &|local| {
            LocalTask::new(async move {
                let inner = LocalTask::new(async move {
                    let _local = local;
                    std::future::pending::<()>().await;
                });
                let outer = LocalTask::new(async move { inner.await });
                let _ = when_all((outer, LocalTask::new(async {}))).await;
            })
        },
        // A sender created by the stop of another.
        &|local| {
            LocalTask::new(async move {
                let _local = local;
                let late = || LocalTask::new(std::future::pending::<()>());
                let Ok(()) = forever().let_stopped(late).await;
            })
        },
    ];
    for wait in waits {
        for adapted in [false, true] {
            let (local, dropped) = DropsAt::new();
            let task = wait(local);
            if adapted {
                stuck.send(()).expect("it listens");
                polled_once_and_dropped(when_all((task.then(|()| ()), LocalTask::new(async {}))).into_future());
            } else {
                stuck.send(()).expect("it listens");
                polled_once_and_dropped(task.into_future());
            }
            assert_eq!(dropped.get(), Some(here()));
        }
    }
}

#[test]
fn a_race_of_another_crate_drops_the_loser_at_home() {
    let race = || async {
        let (local, dropped) = DropsAt::new();
        let loser = LocalTask::new(async move {
            let _local = local;
            Timer::global().schedule_after(Duration::from_secs(600)).await;
        });
        let winner = LocalTask::new(async {
            Timer::global().schedule_after(Duration::from_millis(1)).await;
        });
        // The loser has ended when the task that dropped it is done.
        let race = LocalTask::new(or(async { winner.await.is_ok() }, async {
            loser.stopped_as_option().await.is_err()
        }));
        let Ok(won) = race.await;
        (won, dropped.get() == Some(here()))
    };
    assert_eq!(elsewhere(|| Box::pin(race())), [(true, true); 4]);
}

#[test]
fn one_that_is_made_where_nobody_polls_is_refused() {
    let pool = ThreadPool::new(1);
    let work = starts_on(pool.scheduler(), just(())).let_value(|()| LocalTask::new(async {}));
    let message = panic_message(|| pollster::block_on(work.into_future()));
    assert!(message.contains("a local task stays on its thread"), "{message}");
}

#[test]
fn a_loop_of_another_thread_ends_the_process_rather_than_move_it() {
    let said = aborts("a_loop_of_another_thread_ends_the_process_rather_than_move_it", || {
        with_loop(|there| {
            let (arrived, arrives) = mpsc::channel::<()>();
            let task = LocalTask::new(async move {
                let kept = Rc::new(1);
                let wait = just_from(move || arrives.recv()).then(drop);
                let Ok(()) = starts_on(ThreadPool::global().scheduler(), wait).await;
                drop(kept);
            });
            arrived.send(()).expect("it waits");
            sync_wait(task.write_env(WithScheduler(there)))
        })
        .unwrap();
    });
    assert!(
        said.contains("a local task was resumed on a thread that is not its own"),
        "{said}"
    );
}
