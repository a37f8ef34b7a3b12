//! Tasks: coroutines that are senders.

mod common;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};

use bowline::factories::Never;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, RunLoopSchedule, RunLoopScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::Task;
use common::*;

/// Where the tests of depth run: right here, on a run loop, and on a pool, each with the stack of a deep nest.
fn everywhere<T, E, F>(make: F)
where
    T: Send + PartialEq + std::fmt::Debug + 'static,
    E: Send + std::fmt::Debug + 'static,
    F: Fn() -> (Task<T, E>, Outcome<T, E>) + Sync,
    Outcome<T, E>: PartialEq,
{
    with_stack(DEEP_STACK, || {
        let (task, expected) = make();
        assert_eq!(sync_wait(starts_on(InlineScheduler, task)), expected, "inline");
        let (task, expected) = make();
        assert_eq!(sync_wait(task), expected, "in the loop of `sync_wait`");
        let (task, expected) = make();
        assert_eq!(RunLoop::new().run_until(task), expected, "in a run loop");
        let pool = ThreadPool::builder()
            .threads(2)
            .stack_size(DEEP_STACK)
            .build()
            .expect("a pool");
        let (task, expected) = make();
        assert_eq!(sync_wait(starts_on(pool.scheduler(), task)), expected, "in a pool");
    });
}

fn value<T>(value: T) -> Outcome<T, Infallible> {
    Outcome::Value(value)
}

// What a task completes with.

#[test]
fn a_value_is_the_output_of_the_future() {
    assert_eq!(sync_wait(Task::new(async { 3 })).unwrap(), 3);
}

#[test]
fn a_sender_that_is_awaited_gives_its_value() {
    let task = Task::new(async {
        let Ok(one) = just(1).await;
        let Ok(two) = just(1).then(|x| x + 1).await;
        one + two
    });
    assert_eq!(sync_wait(task).unwrap(), 3);
}

#[test]
fn a_question_mark_reports_a_typed_error_and_runs_nothing_after_it() {
    let went_on = Arc::new(AtomicUsize::new(0));
    let task = Task::<(), &'static str>::try_new({
        let went_on = went_on.clone();
        async move {
            just_error::<(), _>("no").await?;
            went_on.fetch_add(1, SeqCst);
            Ok(())
        }
    });
    assert_eq!(sync_wait(task), Outcome::Error("no"));
    assert_eq!(went_on.load(SeqCst), 0);
}

#[test]
fn an_error_enum_takes_several_types_by_from() {
    #[derive(Debug, PartialEq)]
    enum Error {
        Text(&'static str),
        Number(u32),
    }
    impl From<&'static str> for Error {
        fn from(text: &'static str) -> Self {
            Error::Text(text)
        }
    }
    impl From<u32> for Error {
        fn from(number: u32) -> Self {
            Error::Number(number)
        }
    }
    let task = |text: bool| {
        Task::<(), Error>::try_new(async move {
            if text {
                just_error::<(), _>("text").await?;
            }
            Task::<(), u32>::try_new(async { Err(7) }).await?;
            Ok(())
        })
    };
    assert_eq!(sync_wait(task(true)), Outcome::Error(Error::Text("text")));
    assert_eq!(sync_wait(task(false)), Outcome::Error(Error::Number(7)));
}

#[test]
fn an_error_that_is_looked_at_does_not_end_the_task() {
    let task = Task::new(async { just_error::<(), _>(4).await.unwrap_err() });
    assert_eq!(sync_wait(task).unwrap(), 4);
}

#[test]
fn a_stopped_sender_stops_the_task_at_the_await_and_drops_its_locals() {
    let census = Census::new();
    let local = census.value();
    let task = Task::new(async move {
        let _local = local;
        let _ = just_stopped::<(), Infallible>().await;
        unreachable!("it goes on after a stop")
    });
    assert_eq!(sync_wait(task), Outcome::<Infallible, Infallible>::Stopped);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stopped_child_stops_its_parent_at_the_await() {
    let task = Task::new(async {
        let Ok(()) = Task::new(async {
            let _ = just_stopped::<(), Infallible>().await;
        })
        .await;
        unreachable!("it goes on after a stop")
    });
    assert_eq!(sync_wait(task), Outcome::<Infallible, Infallible>::Stopped);
}

#[test]
fn a_stop_can_be_looked_at_instead() {
    let stopped = || {
        Task::new(async {
            let _ = just_stopped::<(), Infallible>().await;
            1
        })
    };
    let task = Task::new(async move {
        let Ok(none) = stopped().stopped_as_option().await;
        let error = stopped().infallible_into().stopped_as_error(9).await.unwrap_err();
        let Ok(outcome) = stopped().into_outcome().await;
        let Ok(other) = stopped().upon_stopped(|| 5).await;
        (none, error, outcome, other)
    });
    assert_eq!(
        sync_wait(task).unwrap(),
        (None, 9, Outcome::<i32, Infallible>::Stopped, 5)
    );
}

#[test]
fn a_panic_of_the_future_of_a_sender_and_of_a_child_arrives() {
    let own = Task::<()>::new(async { panic!("own") });
    assert_eq!(panic_message(|| sync_wait(own)), "own");
    let awaited = Task::new(async {
        let Ok(()) = just_panic::<(), Infallible>("a sender").await_it().await;
    });
    assert_eq!(panic_message(|| sync_wait(awaited)), "a sender");
    let child = Task::new(async {
        let Ok(()) = Task::<()>::new(async { panic!("a child") }).await;
    });
    assert_eq!(panic_message(|| sync_wait(child)), "a child");
}

/// `impl Sender` does not say that it can be awaited.
trait AwaitIt: Sender<Value: Send, Error: Send> + Sized + 'static {
    fn await_it(self) -> bowline::task::SenderFuture<Self> {
        bowline::task::SenderFuture::new(self)
    }
}
impl<S: Sender<Value: Send, Error: Send> + 'static> AwaitIt for S {}

#[test]
fn a_panic_of_a_local_that_is_dropped_arrives() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a local");
        }
    }
    let task = Task::new(async {
        let _bomb = Bomb;
        let _ = just_stopped::<(), Infallible>().await;
    });
    assert_eq!(panic_message(|| sync_wait(task)), "a local");
}

#[test]
fn locals_are_dropped_before_the_completion_is_delivered() {
    let census = Census::new();
    for kind in 0..4 {
        let local = census.value();
        let task = Task::<(), ()>::try_new(async move {
            let _local = local;
            match kind {
                0 => Ok(()),
                1 => Err(()),
                2 => just_stopped().await,
                _ => quiet_panic(),
            }
        });
        let (record, recorded) = Record::new();
        let alive = || {
            let census = census.clone();
            move || census.alive()
        };
        let (value, error, stopped) = (alive(), alive(), alive());
        let task = starts_on(InlineScheduler, task)
            .then(move |()| ("value", value()))
            .map_err(move |()| ("error", error()))
            .upon_stopped(move || ("stopped", stopped()));
        submit(task, record);
        let expected = match kind {
            0 => Recorded::Value(("value", 0)),
            1 => Recorded::Error(("error", 0)),
            2 => Recorded::Value(("stopped", 0)),
            _ => Recorded::Panicked(PANIC.to_owned()),
        };
        assert_eq!(recorded.recv().unwrap(), expected);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn the_locals_of_a_child_are_dropped_before_its_parent_goes_on() {
    let census = Census::new();
    let local = census.value();
    let task = Task::new(async move {
        let Ok(()) = Task::new(async move {
            let _local = local;
            yield_now().await;
        })
        .await;
        census.alive()
    });
    assert_eq!(sync_wait(task).unwrap(), 0);
}

/// Lets others have a turn.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

// Laziness.

#[test]
fn a_task_that_is_not_started_runs_nothing_and_drops_what_it_holds() {
    let census = Census::new();
    let held = census.value();
    let task = Task::new(async move {
        let _held = held;
        unreachable!("nobody started it");
    });
    assert_eq!(census.alive(), 1);
    drop(task);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_child_that_is_not_awaited_runs_nothing() {
    let census = Census::new();
    let held = census.value();
    let seen = census.clone();
    let task = Task::new(async move {
        let child = Task::new(async move {
            let _held = held;
            unreachable!("nobody awaits it");
        });
        drop(child);
        seen.alive()
    });
    assert_eq!(sync_wait(task).unwrap(), 0);
}

#[test]
fn a_million_nested_tasks_that_were_not_started_are_dropped_in_a_small_stack() {
    with_stack(SMALL_STACK, || {
        let census = Census::new();
        let mut task = Task::new(async {});
        for _ in 0..ROUNDS {
            let (inside, held) = (task, census.value());
            task = Task::new(async move {
                let _held = held;
                let Ok(()) = inside.await;
            });
        }
        drop(task);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_few_nested_tasks_are_dropped_one_inside_the_other() {
    struct Last(Option<Task<()>>, Census);
    impl Drop for Last {
        fn drop(&mut self) {
            drop(self.0.take());
            assert_eq!(self.1.alive(), 0, "what is inside is dropped when `drop` returns");
        }
    }
    let census = Census::new();
    let held = census.value();
    let inside = Task::new(async move { drop(held) });
    let last = Last(Some(inside), census);
    drop(Task::new(async move { drop(last) }));
}

#[test]
fn a_panic_of_one_of_many_nested_tasks_leaves_none_of_them_behind() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            quiet_panic();
        }
    }
    let census = Census::new();
    let mut task = Task::new(async {});
    for level in 0..1000 {
        let (inside, held) = (task, census.value());
        let bomb = (level == 500).then(|| Bomb);
        task = Task::new(async move {
            let _held = (held, bomb);
            let Ok(()) = inside.await;
        });
    }
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(task)));
    assert!(dropped.is_err());
    assert_eq!(census.alive(), 0);
}

// Depth.

const AWAITS: usize = 10 * ROUNDS;

#[test]
fn ten_million_awaits_of_ready_senders_take_no_stack() {
    everywhere(|| {
        let task = Task::new(async {
            let mut sum = 0usize;
            for _ in 0..AWAITS {
                let Ok(one) = just(1).await;
                sum += one;
            }
            sum
        });
        (task, value(AWAITS))
    });
}

#[test]
fn ten_million_awaits_of_ready_children_take_no_stack() {
    everywhere(|| {
        let task = Task::new(async {
            let mut sum = 0usize;
            for _ in 0..AWAITS {
                let Ok(one) = Task::new(async { 1 }).await;
                sum += one;
            }
            sum
        });
        (task, value(AWAITS))
    });
}

#[test]
fn a_million_awaits_of_tasks_as_senders_take_no_stack() {
    everywhere(|| {
        let task = Task::new(async {
            let mut sum = 0usize;
            for _ in 0..ROUNDS {
                let Ok(one) = Task::new(async { 1 }).then(|one| one).await;
                sum += one;
            }
            sum
        });
        (task, value(ROUNDS))
    });
}

#[test]
fn a_million_turns_take_no_stack() {
    everywhere(|| {
        let task = Task::new(async {
            for _ in 0..ROUNDS {
                yield_now().await;
            }
        });
        (task, value(()))
    });
}

/// What the innermost task of a nest does.
#[derive(Clone, Copy, Debug)]
enum End {
    Value,
    Yield,
    Error,
    Stopped,
    Panic,
}

/// Tasks that await one another, this deep.
fn nest(depth: usize, end: End) -> Task<usize, &'static str> {
    Task::try_new(async move {
        if depth == 0 {
            match end {
                End::Value => return Ok(1),
                End::Yield => {
                    yield_now().await;
                    return Ok(1);
                }
                End::Error => return Err("the bottom"),
                End::Stopped => just_stopped::<(), Infallible>().infallible_into().await?,
                End::Panic => quiet_panic(),
            }
        }
        Ok(nest(depth - 1, end).await? + 1)
    })
}

#[test]
fn recursion_a_million_deep_takes_no_stack() {
    everywhere(|| (nest(ROUNDS, End::Value), Outcome::Value(ROUNDS + 1)));
}

#[test]
fn recursion_a_million_deep_that_waits_at_the_bottom_takes_no_stack() {
    everywhere(|| (nest(ROUNDS, End::Yield), Outcome::Value(ROUNDS + 1)));
}

#[test]
fn an_error_from_a_million_deep_takes_no_stack() {
    everywhere(|| (nest(ROUNDS, End::Error), Outcome::Error("the bottom")));
}

#[test]
fn a_stop_from_a_million_deep_takes_no_stack() {
    everywhere(|| (nest(ROUNDS, End::Stopped), Outcome::Stopped));
}

#[test]
fn a_panic_from_deep_inside_takes_no_stack() {
    // Every level unwinds once.
    const DEPTH: usize = ROUNDS / 10;
    with_stack(DEEP_STACK, || {
        let message = |f: &dyn Fn()| panic_message(f);
        assert_eq!(message(&|| _ = sync_wait(nest(DEPTH, End::Panic))), PANIC);
        assert_eq!(
            message(&|| _ = sync_wait(starts_on(InlineScheduler, nest(DEPTH, End::Panic)))),
            PANIC
        );
        let pool = ThreadPool::builder().threads(2).stack_size(DEEP_STACK).build().unwrap();
        assert_eq!(
            message(&|| _ = sync_wait(starts_on(pool.scheduler(), nest(DEPTH, End::Panic)))),
            PANIC
        );
    });
}

/// Tasks that await one another, and at the bottom something that never comes.
fn wait_deep(depth: usize, arrived: mpsc::Sender<()>) -> Task<()> {
    Task::new(async move {
        if depth == 0 {
            arrived.send(()).expect("somebody waits");
            let Ok(()) = never::<(), Infallible>().await;
        } else {
            let Ok(()) = wait_deep(depth - 1, arrived).await;
        }
    })
}

#[test]
fn a_task_that_waits_a_million_deep_is_cancelled_in_constant_stack() {
    let pool = ThreadPool::builder().threads(2).stack_size(DEEP_STACK).build().unwrap();
    let run: [&(dyn Fn(Task<()>, &StopSource) -> Outcome<(), Infallible> + Sync); 3] = [
        &|task, source| sync_wait(task.write_env(WithStopToken(source.token()))),
        &|task, source| sync_wait(starts_on(InlineScheduler, task).write_env(WithStopToken(source.token()))),
        &|task, source| sync_wait(starts_on(pool.scheduler(), task).write_env(WithStopToken(source.token()))),
    ];
    for run in run {
        let (arrived, arrives) = mpsc::channel();
        let source = StopSource::new();
        thread::scope(|scope| {
            let source = &source;
            scope.spawn(move || {
                with_stack(DEEP_STACK, move || {
                    arrives.recv().expect("it gets there");
                    source.request_stop();
                });
            });
            with_stack(DEEP_STACK, move || {
                assert_eq!(run(wait_deep(ROUNDS, arrived), source), Outcome::Stopped);
            });
        });
    }
}
