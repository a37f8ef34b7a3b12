//! Tasks: coroutines that are senders.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::common::tasks::{hops, wakes_itself};
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{
    InlineScheduler, RunLoop, RunLoopSchedule, RunLoopScheduler, TaskScheduler, ThreadPool, Timer,
};
use bowline::stop::{StopSlot, StopSource};
use bowline::task::{SenderFuture, Task};
use bowline::{Completes, Operation, Receiver, Transfer, WithStopToken};

/// Runs the tests of depth: inline, on a run loop, and on a pool, each with the stack for a deep nest.
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

// The completions of a task.

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

/// Awaits that never fail and have no value return `()`.
#[test]
fn a_schedule_sender_a_sleep_a_yield_and_a_join_give_nothing_to_unwrap() {
    let (pool, run_loop) = (ThreadPool::new(1), RunLoop::new());
    let away = pool.scheduler();
    let task = Task::new(async move {
        let () = away.schedule().await;
        let () = InlineScheduler.schedule().await;
        let () = Timer::global().schedule_after(Duration::ZERO).await;
        let () = TaskScheduler::new(away).schedule().await;
        let () = away.or_abort().schedule().await;
        let () = task::yield_now().await;
        let () = task::sleep(Duration::ZERO).await;
        let () = task::sleep_until(Instant::now()).await;
        let scope = CountingScope::new();
        let () = scope.join().await;
        let () = task::shield(task::sleep(Duration::ZERO)).await;
    });
    run_loop.run_until(task).unwrap();
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

/// The example of P3552R1, "Result Type For `co_await`".
#[test]
fn an_await_is_nothing_a_value_a_tuple_an_error_or_never_returns() {
    let went_on = Arc::new(AtomicUsize::new(0));
    let task = Task::new({
        let went_on = went_on.clone();
        async move {
            let Ok(()) = just(()).await;
            let Ok(v) = just(0).await;
            let Ok((i, b, c)) = just((0, true, 'c')).await;
            let Err(e) = just_error::<Infallible, _>(0).await;
            assert_eq!((v, i, b, c, e), (0, 0, true, 'c', 0));
            went_on.fetch_add(1, SeqCst);
            let _ = just_stopped::<(), Infallible>().await;
            went_on.fetch_add(1, SeqCst);
        }
    });
    assert_eq!(sync_wait(task), Outcome::<(), Infallible>::Stopped);
    assert_eq!(went_on.load(SeqCst), 1);
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

/// `impl Sender` does not imply `IntoFuture`.
trait AwaitIt: Sender<Value: Send, Error: Send> + Sized + 'static {
    fn await_it(self) -> SenderFuture<Self> {
        SenderFuture::new(self)
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
            hops(1).await;
        })
        .await;
        census.alive()
    });
    assert_eq!(sync_wait(task).unwrap(), 0);
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
fn an_operation_that_is_not_started_runs_nothing_and_drops_what_it_holds() {
    let census = Census::new();
    let held = census.value();
    let task = Task::new(async move {
        let _held = held;
        unreachable!("nobody started it");
    });
    let mut slot = WaitSlot::new();
    drop(prepare(task, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn tasks_are_kept_and_moved_until_they_start() {
    let mut tasks: Vec<Task<usize>> = (0..3).map(|n| Task::new(async move { n })).collect();
    tasks.swap(0, 2);
    tasks[1] = Task::new(async { 7 });
    let kept = sync_wait(Task::new(async {
        let mut numbers = Vec::new();
        for task in tasks {
            let Ok(number) = task.await;
            numbers.push(number);
        }
        numbers
    }));
    assert_eq!(kept.unwrap(), [2, 7, 0]);
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
                hops(1).await;
            }
        });
        (task, value(()))
    });
}

/// The end of the innermost task of a nest.
#[derive(Clone, Copy, Debug)]
enum End {
    Value,
    Yield,
    Error,
    Stopped,
    Panic,
}

/// Returns tasks that await one another, this deep.
fn nest(depth: usize, end: End) -> Task<usize, &'static str> {
    Task::try_new(async move {
        if depth == 0 {
            match end {
                End::Value => return Ok(1),
                End::Yield => {
                    hops(1).await;
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

#[test]
fn a_panic_from_a_million_deep_takes_no_stack() {
    with_stack(DEEP_STACK, || {
        assert_eq!(panic_message(|| sync_wait(nest(ROUNDS, End::Panic))), PANIC);
    });
}

/// Returns tasks that await one another, with a wait that never ends at the bottom.
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
    type Run<'a> = &'a (dyn Fn(Task<()>, &StopSource) -> Outcome<(), Infallible> + Sync);
    let run: [Run<'_>; 3] = [
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

// Tasks as senders.

#[test]
fn tasks_are_senders_among_others() {
    let number = |n: u32| Task::new(async move { n });
    assert_eq!(sync_wait(when_all((number(1), just(2), number(3)))).unwrap(), (1, 2, 3));
    assert_eq!(sync_wait(number(1).let_value(move |n| number(n + 1))).unwrap(), 2);
    assert_eq!(sync_wait(just(4).let_value(number)).unwrap(), 4);
    assert_eq!(sync_wait(number(5).affine()).unwrap(), 5);
    assert_eq!(sync_wait(starts_on(InlineScheduler, number(6))).unwrap(), 6);
    assert_eq!(sync_wait(when_all_iter((0..3).map(number))).unwrap(), [0, 1, 2]);
    assert_eq!(sync_wait(number(1).sequence(number(2))).unwrap(), 2);
    let shared = starts_on(InlineScheduler, number(7)).split();
    assert_eq!(sync_wait(when_all((shared.clone(), shared))).unwrap(), (7, 7));
    let mut left = 3;
    let rounds = just(()).let_value(|()| Task::new(hops(1))).repeat_until(move |_: &()| {
        left -= 1;
        left == 0
    });
    sync_wait(rounds).unwrap();
}

#[test]
fn a_task_of_when_all_stops_its_siblings_with_an_error() {
    let fails = Task::<(), _>::try_new(async {
        hops(1).await;
        Err("no")
    });
    let waits = Task::<(), &'static str>::try_new(async { never().await });
    assert_eq!(sync_wait(when_all((waits, fails))), Outcome::Error("no"));
}

#[test]
fn a_task_sees_the_stop_token_of_its_receiver() {
    let source = StopSource::new();
    let run_loop = RunLoop::new();
    let requested = {
        let source = source.clone();
        Task::new(async move {
            let Ok(before) = read_env(StopRequested).await;
            source.request_stop();
            let Ok(after) = read_env(StopRequested).await;
            (before, after)
        })
    };
    let outcome = run_loop.run_until(requested.write_env(WithStopToken(source.token())));
    assert_eq!(outcome.unwrap(), (false, true));
}

// Wakers.

/// A future that becomes ready when signalled.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn set(&self) {
        let waker = {
            let mut state = self.state();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn waker(&self) -> Option<Waker> {
        self.state().1.clone()
    }

    /// Locks the state. It spins, since ThreadSanitizer does not see the half of `lock` that waits.
    fn state(&self) -> MutexGuard<'_, (bool, Option<Waker>)> {
        loop {
            match self.0.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::WouldBlock) => thread::yield_now(),
                Err(TryLockError::Poisoned(_)) => panic!("a clone of a waker has panicked"),
            }
        }
    }
}

impl Future for Signal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[test]
fn a_waker_may_outlive_the_task() {
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let task = Task::new(async move {
        poll_fn(|cx| {
            *keep.lock().unwrap() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
        3
    });
    assert_eq!(sync_wait(task).unwrap(), 3);
    let waker = kept.lock().unwrap().take().unwrap();
    waker.wake_by_ref();
    let other = waker.clone();
    assert!(waker.will_wake(&other));
    thread::spawn(move || other.wake()).join().unwrap();
    waker.wake();
}

#[test]
fn a_foreign_future_wakes_its_task_from_another_thread() {
    with_stack(SMALL_STACK, || {
        for _ in 0..100 {
            let signal = Signal::default();
            let task = Task::new({
                let signal = signal.clone();
                async move {
                    signal.await;
                    thread::current().id()
                }
            });
            thread::scope(|scope| {
                scope.spawn(|| signal.set());
                assert_eq!(sync_wait(task).unwrap(), thread::current().id());
            });
        }
    });
}

#[test]
fn wakes_of_a_task_that_is_queued_are_one_and_none_is_lost() {
    let run_loop = RunLoop::new();
    let signal = Signal::default();
    let polls = Arc::new(AtomicUsize::new(0));
    let task = Task::new({
        let (mut signal, polls) = (signal.clone(), polls.clone());
        poll_fn(move |cx| {
            polls.fetch_add(1, SeqCst);
            Pin::new(&mut signal).poll(cx)
        })
    });
    let (record, recorded) = Record::<(), Infallible>::new();
    // SAFETY: the loop is alive until the task has ended.
    let scheduler: RunLoopScheduler<'static> = unsafe { std::mem::transmute(run_loop.scheduler()) };
    submit(starts_on(scheduler, task), record);
    run_loop.run_ready();
    assert_eq!(polls.load(SeqCst), 1);
    let waker = signal.waker().unwrap();
    waker.wake_by_ref();
    waker.wake_by_ref();
    waker.wake_by_ref();
    while run_loop.run_ready() != 0 {}
    // Wake-ups that came while it was queued may cause one more poll.
    assert!((2..=3).contains(&polls.load(SeqCst)), "{polls:?}");
    let before = polls.load(SeqCst);
    while run_loop.run_ready() != 0 {}
    assert_eq!(polls.load(SeqCst), before, "nobody woke it");
    drop(waker);
    signal.set();
    while run_loop.run_ready() != 0 {}
    assert_eq!(recorded.try_recv().unwrap(), Recorded::Value(()));
}

#[test]
fn a_task_that_wakes_itself_lets_others_have_a_turn() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let task = |name: char| {
        let log = log.clone();
        Task::new(async move {
            for turn in 0..3 {
                log.lock().unwrap().push((name, turn));
                hops(1).await;
            }
        })
    };
    sync_wait(when_all((task('a'), task('b')))).unwrap();
    let expected = [('a', 0), ('b', 0), ('a', 1), ('b', 1), ('a', 2), ('b', 2)];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn wakers_on_many_threads_neither_lose_a_wake_nor_poll_twice_at_once() {
    const WAKES: usize = ROUNDS / 100;
    let pool = ThreadPool::new(2);
    let (wakers, received) = mpsc::channel::<Waker>();
    let count = Arc::new(AtomicUsize::new(0));
    let task = Task::new({
        let (count, mut inside, mut given) = (count.clone(), false, false);
        poll_fn(move |cx| {
            assert!(!std::mem::replace(&mut inside, true), "polled twice at once");
            if !std::mem::replace(&mut given, true) {
                wakers.send(cx.waker().clone()).unwrap();
            }
            let done = count.load(SeqCst) == 3 * WAKES;
            inside = false;
            if done { Poll::Ready(()) } else { Poll::Pending }
        })
    });
    thread::scope(|scope| {
        let count = &count;
        scope.spawn(move || {
            let waker = received.recv().unwrap();
            thread::scope(|scope| {
                for _ in 0..3 {
                    let waker = waker.clone();
                    scope.spawn(move || {
                        for _ in 0..WAKES {
                            count.fetch_add(1, SeqCst);
                            let waker = waker.clone();
                            waker.wake();
                        }
                    });
                }
            });
        });
        sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    });
}

// Several awaits at once.

/// Polls both until both are ready.
async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut first, mut second) = (None, None);
    poll_fn(move |cx| {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() {
            return Poll::Ready((first.take().unwrap(), second.take().unwrap()));
        }
        Poll::Pending
    })
    .await
}

#[test]
fn a_task_awaits_several_children_and_senders_at_once() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let task = move || {
        Task::new(async move {
            let turns = |n: usize| {
                Task::new(async move {
                    for _ in 0..n {
                        hops(1).await;
                    }
                    n
                })
            };
            let there = starts_on(scheduler, just(7));
            let ((Ok(three), Ok(one)), (Ok(seven), Ok(zero))) = join(
                join(turns(3).into_future(), turns(1).into_future()),
                join(there.into_future(), turns(0).into_future()),
            )
            .await;
            (three, one, seven, zero)
        })
    };
    for _ in 0..100 {
        assert_eq!(sync_wait(task()).unwrap(), (3, 1, 7, 0));
        assert_eq!(sync_wait(starts_on(scheduler, task())).unwrap(), (3, 1, 7, 0));
        assert_eq!(sync_wait(starts_on(InlineScheduler, task())).unwrap(), (3, 1, 7, 0));
    }
}

#[test]
fn a_value_in_the_same_poll_as_a_stop_is_the_result() {
    let task = Task::new(async {
        let child = Task::new(async {
            let mut stopped = Box::pin(just_stopped::<(), Infallible>().into_future());
            poll_fn(|cx| {
                assert!(stopped.as_mut().poll(cx).is_pending());
                Poll::Ready(5)
            })
            .await
        });
        let Ok(five) = child.await;
        five + 1
    });
    assert_eq!(sync_wait(task).unwrap(), 6);
}

#[test]
fn a_child_that_was_awaited_and_dropped_before_it_ran_does_not_run() {
    let census = Census::new();
    for children in 1..4 {
        for kept in 0..children {
            let held = census.clone();
            let task = Task::new(async move {
                let child = |runs: bool| {
                    let held = held.value();
                    Box::pin(
                        Task::new(async move {
                            let _held = held;
                            assert!(runs, "it was dropped");
                        })
                        .into_future(),
                    )
                };
                let mut futures: Vec<_> = (0..children).map(|n| Some(child(n == kept))).collect();
                poll_fn(|cx| {
                    for future in futures.iter_mut().flatten() {
                        if future.as_mut().poll(cx).is_ready() {
                            return Poll::Ready(());
                        }
                    }
                    for (n, future) in futures.iter_mut().enumerate() {
                        if n != kept {
                            *future = None;
                        }
                    }
                    Poll::Pending
                })
                .await;
            });
            sync_wait(three_inside_one_another(task)).unwrap();
            assert_eq!(census.alive(), 0);
        }
    }
}

/// A child at this nesting depth is queued, not polled at once.
fn three_inside_one_another(mut task: Task<()>) -> Task<()> {
    for _ in 0..3 {
        let inner = task;
        task = Task::new(async move { inner.await.unwrap() });
    }
    task
}

/// A chain of tasks is dropped in the poll that started it, while the innermost ones have not run yet.
async fn drops_a_chain(depth: usize, census: Census, ran: Arc<AtomicUsize>) {
    let mut chain = Task::new(never::<(), Infallible>().into_future());
    for _ in 0..depth {
        let (inner, held, counted) = (chain, census.value(), ran.clone());
        chain = Task::new(async move {
            let _held = held;
            counted.fetch_add(1, SeqCst);
            inner.await?
        });
    }
    let mut chain = Some(Box::pin(chain.into_future()));
    poll_fn(|cx| {
        assert!(chain.as_mut().unwrap().as_mut().poll(cx).is_pending());
        chain = None;
        Poll::Ready(())
    })
    .await;
}

#[test]
fn a_chain_that_has_begun_and_is_dropped_at_once_goes_no_further() {
    for depth in 1..12 {
        let (census, ran) = (Census::new(), Arc::new(AtomicUsize::new(0)));
        sync_wait(Task::new(drops_a_chain(depth, census.clone(), ran.clone()))).unwrap();
        assert!((1..=depth).contains(&ran.load(SeqCst)), "of {depth}");
        assert_eq!(census.alive(), 0);
    }
}

/// The frames of a child are in a list of its strand while they are queued.
#[test]
fn a_chain_in_a_child_that_has_begun_and_is_dropped_at_once_ends() {
    let pool = ThreadPool::new(1);
    for depth in 1..12 {
        let (census, ran) = (Census::new(), Arc::new(AtomicUsize::new(0)));
        let children = || {
            let (census, ran) = (census.clone(), ran.clone());
            Task::new(task::group(async move |group| {
                for _ in 0..3 {
                    group.spawn(drops_a_chain(depth, census.clone(), ran.clone()));
                }
            }))
        };
        sync_wait(children()).unwrap();
        sync_wait(starts_on(pool.scheduler(), children())).unwrap();
        assert!((6..=6 * depth).contains(&ran.load(SeqCst)), "of {depth}");
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_task_is_not_done_before_an_await_that_it_sent_away() {
    let pool = ThreadPool::new(1);
    for child in [false, true] {
        let finished = Arc::new(AtomicUsize::new(0));
        let (let_go, waits) = mpsc::channel::<()>();
        let (away, received) = mpsc::channel();
        let (scheduler, finish) = (pool.scheduler(), finished.clone());
        let task = Task::new(async move {
            let slow = starts_on(
                scheduler,
                just_from(move || {
                    waits.recv().unwrap();
                    finish.store(1, SeqCst);
                }),
            )
            .unstoppable();
            if child {
                let child = Task::new(async move { slow.await_it().await });
                poll_and_send(child.into_future(), away).await;
            } else {
                poll_and_send(slow.await_it(), away).await;
            }
            let_go.send(()).unwrap();
        });
        sync_wait(task).unwrap();
        assert_eq!(finished.load(SeqCst), 1, "with a child: {child}");
        drop(received.recv().unwrap());
    }
}

/// Starts a future and sends it away.
async fn poll_and_send(future: impl Future + Send + 'static, away: mpsc::Sender<Box<dyn Send>>) {
    poll_and_send_if(true, future, away).await;
}

/// Starts a future that may be ready at once, unless it `waits`, and sends it away.
async fn poll_and_send_if(waits: bool, future: impl Future + Send + 'static, away: mpsc::Sender<Box<dyn Send>>) {
    let mut future = Some(Box::pin(future));
    let mut polled = false;
    poll_fn(move |cx| {
        if polled {
            // A child that was awaited begins after the poll.
            away.send(Box::new(future.take())).unwrap();
            return Poll::Ready(());
        }
        polled = true;
        let pending = future.as_mut().unwrap().as_mut().poll(cx).is_pending();
        assert!(pending || !waits);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_task_is_not_done_before_a_child_that_it_dropped() {
    let census = Census::new();
    let signal = Signal::default();
    let held = census.value();
    let task = Task::new({
        let signal = signal.clone();
        async move {
            let mut child = Some(Box::pin(
                Task::new(async move {
                    let _held = held;
                    signal.await;
                })
                .into_future(),
            ));
            let mut polled = false;
            poll_fn(move |cx| {
                if polled {
                    child = None;
                    return Poll::Ready(());
                }
                polled = true;
                assert!(child.as_mut().unwrap().as_mut().poll(cx).is_pending());
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            while signal.waker().is_none() {
                thread::yield_now();
            }
            signal.set();
        });
        sync_wait(task).unwrap();
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_child_that_was_dropped_and_stops_leaves_its_parent_alone() {
    let signal = Signal::default();
    let task = Task::new({
        let signal = signal.clone();
        async move {
            let told = signal.clone();
            let mut child = Some(Box::pin(
                Task::new(async move {
                    told.await;
                    let _ = just_stopped::<(), Infallible>().await;
                })
                .into_future(),
            ));
            let mut polled = false;
            poll_fn(move |cx| {
                if polled {
                    child = None;
                    return Poll::Ready(());
                }
                polled = true;
                assert!(child.as_mut().unwrap().as_mut().poll(cx).is_pending());
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            signal.set();
            for _ in 0..10 {
                hops(1).await;
            }
            3
        }
    });
    assert_eq!(sync_wait(task).unwrap(), 3);
}

#[test]
fn an_await_that_was_sent_away_may_be_dropped_there_while_it_completes() {
    let pool = ThreadPool::new(2);
    for child in [false, true] {
        for _ in 0..200 {
            let (away, received) = mpsc::channel::<Box<dyn Send>>();
            let scheduler = pool.scheduler();
            let task = Task::new(async move {
                let slow = starts_on(scheduler, just_from(thread::yield_now));
                if child {
                    let child = Task::new(async move { slow.await });
                    poll_and_send_if(false, child.into_future(), away).await;
                } else {
                    poll_and_send_if(false, slow.into_future(), away).await;
                }
            });
            thread::scope(|scope| {
                scope.spawn(move || drop(received.recv()));
                sync_wait(task).unwrap();
            });
        }
    }
}

/// A hand-written coroutine: it awaits two senders in turn.
struct InTurn<A: Sender<Value: Send, Error: Send>, B: Sender<Value: Send, Error: Send>> {
    first: Pin<Box<SenderFuture<A>>>,
    second: Pin<Box<SenderFuture<B>>>,
    value: Option<A::Value>,
}

impl<A, B, E> Future for InTurn<A, B>
where
    A: Sender<Value: Send + Unpin, Error = E> + 'static,
    B: Sender<Value: Send, Error = E> + 'static,
    E: Send,
{
    type Output = Result<(A::Value, B::Value), E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.value.is_none() {
            match self.first.as_mut().poll(cx) {
                Poll::Ready(Ok(value)) => self.value = Some(value),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        match self.second.as_mut().poll(cx) {
            Poll::Ready(Ok(second)) => Poll::Ready(Ok((self.value.take().expect("it was kept"), second))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[test]
fn a_coroutine_of_ones_own_is_built_on_the_bridge() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let in_turn = || InTurn {
        first: Box::pin(SenderFuture::new(just(1))),
        second: Box::pin(SenderFuture::new(starts_on(scheduler, just(2)))),
        value: None,
    };
    assert_eq!(sync_wait(Task::try_new(in_turn())).unwrap(), (1, 2));
    assert_eq!(sync_wait(from_future(in_turn())).unwrap(), Ok((1, 2)));
    let stops = InTurn {
        first: Box::pin(SenderFuture::new(just(1))),
        second: Box::pin(SenderFuture::new(starts_on(
            scheduler,
            just_stopped::<(), Infallible>(),
        ))),
        value: None,
    };
    assert_eq!(sync_wait(Task::try_new(stops)), Outcome::Stopped);
}

// Affinity.

/// A run loop with a thread of its own.
fn elsewhere() -> RunLoopScheduler<'static> {
    static ELSEWHERE: RunLoop = RunLoop::new();
    static STARTED: std::sync::Once = std::sync::Once::new();
    STARTED.call_once(|| _ = thread::spawn(|| ELSEWHERE.run()));
    ELSEWHERE.scheduler()
}

/// A value that records the thread of its drop.
struct WhereDropped(mpsc::Sender<thread::ThreadId>);

impl Drop for WhereDropped {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).unwrap();
    }
}

#[test]
fn after_every_kind_of_completion_elsewhere_the_task_is_back() {
    let home = thread::current().id();
    let (notes, noted) = mpsc::channel();
    let note = || WhereDropped(notes.clone());
    let mut tasks: Vec<Task<(), &'static str>> = Vec::new();
    for _ in 0..10 {
        tasks.extend([
            Task::try_new({
                let _note = note();
                async move {
                    let _note = _note;
                    starts_on(elsewhere(), just(())).infallible_into().await
                }
            }),
            Task::try_new({
                let _note = note();
                async move {
                    let _note = _note;
                    starts_on(elsewhere(), just_error("no")).await
                }
            }),
            Task::try_new({
                let _note = note();
                async move {
                    let _note = _note;
                    starts_on(elsewhere(), just_stopped()).await
                }
            }),
            Task::try_new({
                let _note = note();
                async move {
                    let _note = _note;
                    starts_on(elsewhere(), just_panic("panic")).await_it().await
                }
            }),
        ]);
    }
    for task in tasks {
        let (record, recorded) = Record::<_, _>::new();
        let run_loop = RunLoop::new();
        // SAFETY: the loop is alive until the task has ended.
        let scheduler: RunLoopScheduler<'static> = unsafe { std::mem::transmute(run_loop.scheduler()) };
        submit(starts_on(scheduler, task), record);
        let completed = loop {
            run_loop.run_ready();
            if let Ok(completed) = recorded.try_recv() {
                break completed;
            }
            thread::yield_now();
        };
        assert_eq!(noted.recv().unwrap(), home, "{completed:?}");
    }
}

/// A user-defined scheduler that counts its trips.
#[derive(Clone)]
struct Trips {
    inside: RunLoopScheduler<'static>,
    count: Arc<AtomicUsize>,
}

impl PartialEq for Trips {
    fn eq(&self, other: &Self) -> bool {
        self.inside == other.inside
    }
}

impl Scheduler for Trips {
    type Schedule = RunLoopSchedule<'static>;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> Self::Schedule {
        self.count.fetch_add(1, SeqCst);
        self.inside.schedule()
    }
}

/// Runs a task on a user-defined scheduler, and counts its trips, without the first one that gets it there.
fn trips<T: Send + 'static>(task: Task<T>) -> (T, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let scheduler = Trips {
        inside: elsewhere(),
        count: count.clone(),
    };
    let value = sync_wait(starts_on(scheduler, task)).unwrap();
    (value, count.load(SeqCst) - 1)
}

#[test]
fn what_completes_inline_or_while_it_starts_takes_no_trip() {
    let task = Task::new(async {
        let Ok(a) = just(1).await;
        let Ok(b) = just_from(|| 2).then(|x| x + 1).await;
        let Ok(c) = just(4).let_value(just).await;
        let Ok(d) = when_all((just(1), just(2))).await;
        let Ok(e) = read_env(StopRequested).await;
        let _ = just_error::<(), _>(3).await;
        let Ok(f) = just_stopped::<(), Infallible>().stopped_as_option().await;
        (a, b, c, d, e, f)
    });
    assert_eq!(trips(task), ((1, 3, 4, (1, 2), false, None), 0));
}

#[test]
fn from_task_to_task_is_no_trip() {
    let task = Task::new(async {
        let Ok(a) = Task::new(async { 1 }).await;
        let Ok(b) = Task::new(async { 1 }).then(|x| x + 1).await;
        let Ok(c) = Task::new(async { 1 }).let_value(|x| Task::new(async move { x })).await;
        (a, b, c)
    });
    assert_eq!(trips(task), ((1, 2, 1), 0));
    // A child that takes a trip returns to its parents without another.
    let task = Task::new(async {
        let Ok(value) = Task::new(async {
            let Ok(value) = Task::new(async {
                hops(1).await;
                1
            })
            .await;
            value
        })
        .await;
        value
    });
    assert_eq!(trips(task), (1, 1));
}

#[test]
fn what_completes_elsewhere_takes_one_trip() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let home = thread::current().id();
        for _ in 0..10 {
            let Ok(there) = starts_on(scheduler, just_from(|| thread::current().id())).await;
            assert_ne!(there, home);
            assert_eq!(thread::current().id(), home);
        }
    });
    let ((), trips) = trips(task);
    assert!(trips <= 10, "{trips}");
}

#[test]
fn a_task_that_is_run_elsewhere_begins_and_ends_there_and_its_parent_is_back() {
    let there = sync_wait(starts_on(elsewhere(), just_from(|| thread::current().id()))).unwrap();
    let child = || {
        Task::new(async {
            let first = thread::current().id();
            hops(1).await;
            (first, thread::current().id())
        })
    };
    let task = Task::new(async move {
        let home = thread::current().id();
        assert_ne!(home, there);
        for _ in 0..10 {
            let Ok(ids) = starts_on(elsewhere(), child()).await;
            assert_eq!((ids, thread::current().id()), ((there, there), home));
            let Ok(ids) = child().on(elsewhere()).await;
            assert_eq!((ids, thread::current().id()), ((there, there), home));
        }
    });
    sync_wait(task).unwrap();
}

#[test]
fn a_task_in_a_pool_stays_in_the_pool() {
    let pool = ThreadPool::builder()
        .threads(2)
        .names(|n| format!("mine {n}"))
        .build()
        .unwrap();
    let task = Task::new(async move {
        for _ in 0..100 {
            let Ok(()) = starts_on(elsewhere(), just(())).await;
            let thread = thread::current();
            assert_eq!(thread.name().map(|name| name.starts_with("mine")), Some(true));
        }
    });
    sync_wait(starts_on(pool.scheduler(), task)).unwrap();
}

// Allocation.

#[test]
fn a_task_is_one_allocation_and_its_awaits_are_none() {
    /// Returns how often the second of two equal tasks allocates. The first one may allocate slabs for its thread.
    fn second<F: Future<Output = ()> + Send + 'static>(make: impl Fn() -> F) -> usize {
        sync_wait(Task::new(make())).unwrap();
        let (outcome, count) = allocations(|| sync_wait(Task::new(make())));
        outcome.unwrap();
        count
    }
    // A frame and a block are from the thread's slabs. There are none under a sanitizer.
    let expected = |count| if cfg!(sanitized = "address") { count } else { 0 };
    let count = second(|| async {
        for _ in 0..100 {
            let Ok(_) = just(1).then(|x| x + 1).await;
            let Ok(_) = when_all((just(1), just(2))).await;
            let Ok(_) = just_stopped::<(), Infallible>().stopped_as_option().await;
            let _ = just_error::<(), _>(1).await;
            wakes_itself(1).await;
        }
    });
    assert_eq!(count, expected(1));
    // A loop may hear a stop, so its operation is in the memory of the frame: one block for all awaits.
    let count = second(|| async {
        for _ in 0..100 {
            let Ok(_) = just(()).repeat_n(3).await;
        }
    });
    assert_eq!(count, expected(2));
    let count = second(|| async {
        for _ in 0..100 {
            let Ok(()) = Task::new(async { wakes_itself(1).await }).await;
        }
    });
    assert_eq!(count, expected(101));
}

#[test]
fn a_task_in_a_pool_allocates_nothing_when_it_is_resumed() {
    let crew = CrewAllocations::new();
    let pool = ThreadPool::builder()
        .threads(2)
        .on_start(move |_| crew.join())
        .build()
        .unwrap();
    let scheduler = pool.scheduler();
    let task = || {
        Task::new(async move {
            let mut before = 0;
            for round in 0..100 {
                if round == 1 {
                    // The task has its blocks from here on.
                    before = crew.so_far();
                }
                scheduler.schedule().await;
                hops(1).await;
            }
            crew.so_far() - before
        })
    };
    let counts = || sync_wait(starts_on(scheduler, task())).unwrap();
    assert_eq!(settles_at(0, counts), 0);
}

// Types.

#[test]
fn tasks_and_their_futures_are_send() {
    fn is_send<T: Send>(_: &T) {}
    let task = Task::new(async { 1 });
    is_send(&task);
    is_send(&task.into_future());
    is_send(&just(1).into_future());
}

#[test]
fn a_task_is_neither_copied_nor_made_of_nothing() {
    /// Whether a type implements a trait: if so, the inherent constant shadows that of the trait.
    struct Has<T>(std::marker::PhantomData<T>);
    trait HasNot {
        const CLONE: bool = false;
        const DEFAULT: bool = false;
    }
    impl<T> HasNot for Has<T> {}
    impl<T: Clone> Has<T> {
        const CLONE: bool = true;
    }
    impl<T: Default> Has<T> {
        const DEFAULT: bool = true;
    }
    assert_eq!((Has::<Vec<()>>::CLONE, Has::<Vec<()>>::DEFAULT), (true, true));
    assert_eq!((Has::<Task<()>>::CLONE, Has::<Task<()>>::DEFAULT), (false, false));
}

/// A sender that completes on its pool after a stop, and blocks the stopping thread until it has.
struct CompletesInTheMidst(Arc<ThreadPool>);

// SAFETY: the operation touches nothing of itself after its completion; it is `!Unpin`. It is started on the pool.
unsafe impl Sender for CompletesInTheMidst {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<(), Infallible>> = InTheMidst<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> InTheMidst<R> {
        InTheMidst {
            slot: StopSlot::new(InTheMidst::<R>::stop_requested),
            receiver: Some(receiver),
            pool: self.0,
            _pinned: PhantomPinned,
        }
    }
}

bowline::awaitable!([] CompletesInTheMidst);

/// First, so that the callback finds the operation.
#[repr(C)]
struct InTheMidst<R: Receiver<(), Infallible>> {
    slot: StopSlot<<R::Env as Env>::StopToken>,
    receiver: Option<R>,
    pool: Arc<ThreadPool>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> InTheMidst<R> {
    /// # Safety
    ///
    /// `slot` is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        let this = slot.cast::<Self>().as_ptr();
        // SAFETY: the slot is the first field; only this callback completes the operation, which is not used after the release.
        let (receiver, pool) = unsafe {
            let parts = ((*this).receiver.take(), (*this).pool.clone());
            slot.as_ref().release();
            parts
        };
        pool.install(|| receiver.map(|receiver| receiver.set_value(()).run()));
        Transfer::none()
    }
}

impl<R: Receiver<(), Infallible>> Operation for InTheMidst<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved.
        let this = NonNull::from(unsafe { self.get_unchecked_mut() });
        // SAFETY: the operation is pinned, and has not completed.
        unsafe {
            let token = this
                .as_ref()
                .receiver
                .as_ref()
                .expect("started once")
                .env()
                .stop_token();
            assert!(StopSlot::listen(this.cast(), token), "it is stopped later");
        }
        Transfer::none()
    }
}

#[test]
fn a_stop_that_is_still_on_its_way_when_the_sender_completes_does_not_move_the_task() {
    let pool = Arc::new(ThreadPool::new(1));
    let home = pool.install(|| thread::current().id());
    let source = StopSource::new();
    let (begins, begun) = mpsc::channel();
    let (ends, ended) = mpsc::channel();
    let inside = CompletesInTheMidst(pool.clone());
    let task = Task::new(async move {
        begins.send(()).unwrap();
        let Ok(()) = inside.await;
        ends.send(thread::current().id()).unwrap();
    });
    start_detached(starts_on(pool.scheduler(), task).write_env(WithStopToken(source.token())));
    begun.recv().unwrap();
    // The pool is busy until the task is suspended.
    pool.install(|| ());
    source.request_stop();
    assert_eq!(ended.recv().unwrap(), home);
}

/// A job of a loop that blocks in a loop of its own is not interrupted by the tasks of the outer one.
#[test]
fn a_task_does_not_go_on_while_a_job_of_its_loop_waits_in_another() {
    let source = StopSource::new();
    let token = source.token();
    let waiting = Arc::new(AtomicUsize::new(0));
    let seen = waiting.clone();
    let waits = Task::new(async move {
        let stops = never::<(), Infallible>()
            .write_env(WithStopToken(token))
            .stopped_as_option();
        let Ok(value) = stops.await;
        (value, seen.load(SeqCst))
    });
    let other = Task::new(async move {
        waiting.store(1, SeqCst);
        let stopped = sync_wait(Task::new(async move { source.request_stop() })).unwrap();
        waiting.store(0, SeqCst);
        stopped
    });
    assert_eq!(
        RunLoop::new().run_until(when_all((waits, other))).unwrap(),
        ((None, 0), true)
    );
}

/// A completion on the thread of a loop resumes its task at once: a tree of tasks has as many alive as it is deep.
#[test]
fn a_tree_of_tasks_on_a_loop_is_run_branch_by_branch() {
    fn tree(depth: usize, census: &Census) -> Task<usize> {
        let (held, census) = (census.value(), census.clone());
        Task::new(async move {
            let _held = held;
            if depth == 0 {
                return census.alive();
            }
            let (a, b) = when_all((tree(depth - 1, &census), tree(depth - 1, &census)))
                .await
                .unwrap();
            a.max(b)
        })
    }
    let census = Census::new();
    let most = sync_wait(tree(10, &census)).unwrap();
    assert!(most <= 2 * 10 + 1, "{most} at a time");
}
