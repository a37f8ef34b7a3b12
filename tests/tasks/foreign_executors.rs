//! Senders and tasks in executors of other crates, and futures of other crates in tasks.

use std::convert::Infallible;
use std::future::{Future, IntoFuture, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::*;
use bowline::Panic;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, RunLoop, ThreadPool, Timer};
use bowline::stop::StopSource;
use bowline::task::Task;
use futures_lite::future::{block_on, or, poll_once};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A limit far beyond the duration of a test: it turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn pool() -> PoolScheduler {
    ThreadPool::global().scheduler()
}

fn multi_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Runs a future in each executor.
fn everywhere<T, F>(make: impl Fn() -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut results = vec![pollster::block_on(make()), block_on(make())];
    let executor = async_executor::Executor::new();
    let task = executor.spawn(make());
    results.push(block_on(executor.run(task)));
    let current_thread = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    results.push(current_thread.block_on(make()));
    let multi_thread = multi_thread();
    let task = multi_thread.spawn(make());
    match multi_thread.block_on(task) {
        Ok(result) => results.push(result),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
    results
}

/// Runs a future in each executor, and asserts that all return `expected`.
fn gives<T, F>(expected: T, make: impl Fn() -> F)
where
    T: PartialEq + std::fmt::Debug + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    for result in everywhere(make) {
        assert_eq!(result, expected);
    }
}

/// A counter of wake-ups.
#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl CountWakes {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(CountWakes::default());
        (count.clone(), Waker::from(count))
    }

    fn wakes(&self) -> usize {
        self.0.load(SeqCst)
    }
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Polls a future until it is ready.
fn finish<F: Future>(mut future: Pin<&mut F>, waker: &Waker) -> F::Output {
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = poll(future.as_mut(), waker) {
            return output;
        }
        assert!(start.elapsed() < PATIENCE, "it never became ready");
        thread::yield_now();
    }
}

#[test]
fn a_ready_sender() {
    gives(42, || async {
        let Ok(six) = just(6).await;
        let Ok(seven) = just_from(|| 7).await;
        six * seven
    });
}

#[test]
fn a_sender_that_completes_inline_does_not_allocate() {
    let (_, waker) = CountWakes::new();
    let mut future = pin!(just(6).then(|x| x + 1).into_future());
    let (result, count) = allocations(|| poll(future.as_mut(), &waker));
    assert_eq!(result, Poll::Ready(Ok(7)));
    assert_eq!(count, 0);
}

#[test]
fn a_sender_that_completes_on_the_pool() {
    gives(7, || async {
        let Ok(seven) = starts_on(pool(), just_from(|| 7)).await;
        seven
    });
}

#[test]
fn a_timer() {
    let delay = Duration::from_millis(5);
    gives(true, move || async move {
        let start = Instant::now();
        Timer::global().schedule_after(delay).await;
        start.elapsed() >= delay
    });
}

#[test]
fn an_error_is_an_error() {
    gives(Err::<(), _>("no"), || async { just_error::<(), _>("no").await });
    gives(Err::<(), _>("no"), || async {
        just_error::<(), _>("no").continues_on(pool()).await
    });
    gives(Err::<(), _>("no"), || async {
        Task::<(), _>::try_new(async { Err("no") }).await
    });
}

#[test]
fn a_panic_unwinds_out_of_the_await() {
    async fn message<T>(future: impl Future<Output = T>) -> String {
        let mut future = pin!(future);
        poll_fn(
            move |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(_)) => Poll::Ready("it did not panic".to_owned()),
                Err(payload) => Poll::Ready(Panic::new(payload).message().unwrap_or("no text").to_owned()),
            },
        )
        .await
    }
    gives(PANIC.to_owned(), || message(just_from(quiet::<()>).into_future()));
    gives(PANIC.to_owned(), || {
        message(starts_on(pool(), just_from(quiet::<()>)).into_future())
    });
    gives(PANIC.to_owned(), || {
        message(Task::new(async { quiet::<()>() }).into_future())
    });
}

fn quiet<T>() -> T {
    quiet_panic()
}

#[test]
fn a_stop_panics_and_says_what_to_do() {
    let inline = panic_message(|| block_on(just_stopped::<(), Infallible>().into_future()));
    let elsewhere = panic_message(|| block_on(just_stopped::<(), Infallible>().continues_on(pool()).into_future()));
    let task =
        panic_message(|| block_on(Task::new(async { just_stopped::<(), Infallible>().await.is_ok() }).into_future()));
    for message in [inline, elsewhere, task] {
        for name in ["stopped_as_option", "stopped_as_error", "into_outcome"] {
            assert!(message.contains(name), "{message}");
        }
    }
}

#[test]
fn a_stop_that_is_observed_does_not_panic() {
    gives((true, Err(7)), || async {
        let Ok(value) = just_stopped::<(), Infallible>()
            .continues_on(pool())
            .stopped_as_option()
            .await;
        let error = just_stopped::<(), _>().continues_on(pool()).stopped_as_error(7).await;
        (value.is_none(), error)
    });
    let task = || Task::new(async { just_stopped::<(), Infallible>().await.is_ok() });
    gives(true, move || async move {
        let Ok(outcome) = task().into_outcome().await;
        outcome.is_stopped()
    });
}

/// Returns a task that awaits many kinds of senders.
fn sorts() -> Task<u32> {
    Task::new(async {
        let Ok(a) = just(1).await;
        let Ok(b) = starts_on(pool(), just_from(|| 2)).await;
        Timer::global().schedule_after(Duration::from_millis(1)).await;
        let Ok((c, d)) = when_all((just(4), just(8).continues_on(pool()))).await;
        let e = tokio::sync::OnceCell::new_with(Some(16)).get().copied().unwrap_or(0);
        a + b + c + d + e
    })
}

#[test]
fn a_task_that_awaits_them_all() {
    gives(Ok(31), || sorts().into_future());
}

#[test]
fn a_task_with_child_tasks() {
    fn tree(depth: u32) -> Task<u32> {
        Task::new(async move {
            if depth == 0 {
                pool().schedule().await;
                return 1;
            }
            let Ok(left) = tree(depth - 1).await;
            let Ok((right, more)) = when_all((tree(depth - 1), sorts())).await;
            left + right + more - 31
        })
    }
    gives(Ok(32), || tree(5).into_future());
}

#[test]
fn a_task_is_polled_where_the_executor_polls() {
    let here = thread::current().id();
    let work = Task::new(async move {
        for _ in 0..100 {
            pool().schedule().await;
            assert_eq!(thread::current().id(), here);
            let Ok(()) = Task::new(async move {
                pool().schedule().await;
                assert_eq!(thread::current().id(), here);
            })
            .await;
        }
    });
    assert_eq!(pollster::block_on(work.into_future()), Ok(()));
}

#[test]
fn affine_comes_back_to_the_executor() {
    let here = thread::current().id();
    let work = async move {
        let Ok(came_back) = pool()
            .schedule()
            .affine()
            .then(move |()| thread::current().id() == here)
            .await;
        came_back
    };
    assert!(block_on(work));
}

#[test]
fn one_allocation_for_a_sender_and_one_more_for_the_memory_of_a_task() {
    let (_, waker) = CountWakes::new();
    // Starts the pool and its workers.
    sync_wait(pool().schedule()).unwrap();

    let mut sender = pin!(starts_on(pool(), just_from(|| 7)).into_future());
    let (result, count) = allocations(|| finish(sender.as_mut(), &waker));
    assert_eq!((result, count), (Ok(7), 1));

    let mut task = pin!(
        Task::new(async {
            for _ in 0..100 {
                pool().schedule().await;
            }
        })
        .into_future()
    );
    let (result, count) = allocations(|| finish(task.as_mut(), &waker));
    // The task's own allocation came before. Its block may be from the thread's cache.
    assert_eq!(result, Ok(()));
    assert!((1..=2).contains(&count), "{count}");
}

#[test]
fn it_is_pending_for_ever_after_it_was_ready() {
    let (_, waker) = CountWakes::new();
    let mut inline = pin!(just(1).into_future());
    assert_eq!(poll(inline.as_mut(), &waker), Poll::Ready(Ok(1)));
    assert!(poll(inline.as_mut(), &waker).is_pending());

    let mut sender = pin!(starts_on(pool(), just(1)).into_future());
    assert_eq!(finish(sender.as_mut(), &waker), Ok(1));
    assert!(poll(sender.as_mut(), &waker).is_pending());

    let mut task = pin!(sorts().into_future());
    assert_eq!(finish(task.as_mut(), &waker), Ok(31));
    assert!(poll(task.as_mut(), &waker).is_pending());
}

#[test]
fn the_last_waker_is_the_one_that_wakes() {
    let run_loop = for_good(RunLoop::new());
    let (first, first_waker) = CountWakes::new();
    let (second, second_waker) = CountWakes::new();
    let mut future = pin!(just(1).continues_on(run_loop.scheduler()).into_future());
    assert!(poll(future.as_mut(), &first_waker).is_pending());
    assert!(poll(future.as_mut(), &second_waker).is_pending());
    drop(first_waker);
    assert_eq!(Arc::strong_count(&first), 1, "the first waker is kept no longer");
    run_loop.run_ready();
    assert_eq!((first.wakes(), second.wakes()), (0, 1));
    drop(second_waker);
    assert_eq!(
        Arc::strong_count(&second),
        1,
        "a waker that has woken is kept no longer"
    );
    let (_, third_waker) = CountWakes::new();
    assert_eq!(poll(future.as_mut(), &third_waker), Poll::Ready(Ok(1)));
}

#[test]
fn a_completion_inside_a_poll_wakes_nobody() {
    let (count, waker) = CountWakes::new();
    let mut task = pin!(
        Task::new(async {
            let Ok((a, b)) = when_all((just(1), Task::new(async { 2 }))).await;
            a + b
        })
        .into_future()
    );
    assert_eq!(poll(task.as_mut(), &waker), Poll::Ready(Ok(3)));
    assert_eq!(count.wakes(), 0);
}

/// Returns a future that lets others run first.
fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

#[test]
fn a_task_of_more_turns_than_one_poll_gets_to_its_end() {
    gives(1000, || async {
        let turns = Task::new(async {
            for _ in 0..1000 {
                yield_now().await;
            }
            1000
        });
        let Ok(turns) = turns.await;
        turns
    });
}

#[test]
fn a_task_that_never_rests_lets_the_executor_go_on() {
    let busy = Task::new(async {
        loop {
            yield_now().await;
        }
    });
    let rested = or(async { busy.await.is_ok() }, async {
        for _ in 0..10 {
            yield_now().await;
        }
        true
    });
    assert!(block_on(rested));
}

#[test]
fn a_dropped_sender_is_stopped_and_let_go() {
    let census = Census::new();
    let (told, hears) = mpsc::channel();
    let value = census.value();
    let sender = never::<(), Infallible>().upon_stopped(move || {
        let _keep = &value;
        told.send(thread::current().id()).expect("somebody waits");
    });
    let mut future = Box::pin(sender.into_future());
    assert!(block_on(poll_once(&mut future)).is_none());
    assert_eq!(census.alive(), 1);
    drop(future);
    assert_eq!(
        hears.try_recv(),
        Ok(thread::current().id()),
        "the stop is requested by the drop"
    );
    assert_eq!(census.alive(), 0, "nothing is left");
}

#[test]
fn a_dropped_sender_that_does_not_stop_ends_by_itself() {
    let census = Census::new();
    let run_loop = for_good(RunLoop::new());
    let (value, result) = (census.value(), census.value());
    let sender = run_loop.scheduler().schedule().unstoppable().then(move |()| {
        drop(value);
        result
    });
    let (count, waker) = CountWakes::new();
    let mut future = Box::pin(sender.into_future());
    assert!(poll(future.as_mut(), &waker).is_pending());
    drop(future);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "the waker is let go at once");
    assert_eq!(census.alive(), 2, "the operation is not");
    run_loop.run_ready();
    assert_eq!(census.alive(), 0);
    assert_eq!(count.wakes(), 0);
}

#[test]
fn a_result_that_nobody_took_is_dropped_with_the_future() {
    let census = Census::new();
    let run_loop = for_good(RunLoop::new());
    let (_, waker) = CountWakes::new();
    let mut future = Box::pin(just(census.value()).continues_on(run_loop.scheduler()).into_future());
    assert!(poll(future.as_mut(), &waker).is_pending());
    run_loop.run_ready();
    assert_eq!(census.alive(), 1);
    drop(future);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_future_that_was_never_polled_drops_its_sender() {
    let census = Census::new();
    let value = census.value();
    drop(just_from(move || drop(value)).into_future());
    let value = census.value();
    drop(Task::new(async move { drop(value) }).into_future());
    assert_eq!(census.alive(), 0);
}

/// Returns a task that has children and waits forever.
fn waits_for_ever(census: &Census) -> Task<()> {
    let (outer, inner) = (census.value(), census.value());
    Task::new(async move {
        let _outer = outer;
        pool().schedule().await;
        let Ok(()) = Task::new(async move {
            let _inner = inner;
            pool().schedule().await;
            let Ok(()) = never::<(), Infallible>().await;
        })
        .await;
    })
}

#[test]
fn a_dropped_task_is_stopped_and_let_go() {
    let census = Census::new();
    for polls in 0..20 {
        let (_, waker) = CountWakes::new();
        let mut future = Box::pin(waits_for_ever(&census).into_future());
        for _ in 0..polls {
            assert!(poll(future.as_mut(), &waker).is_pending());
            thread::yield_now();
        }
        drop(future);
    }
    // If it was on the pool at that moment, it ends there.
    let start = Instant::now();
    while census.alive() != 0 {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

#[test]
fn a_dropped_task_goes_on_no_further() {
    let census = Census::new();
    let ticks = Arc::new(AtomicUsize::new(0));
    let (value, ticking) = (census.value(), ticks.clone());
    let (wake, woken) = async_channel::bounded::<()>(1);
    let mut future = Box::pin(
        Task::new(async move {
            let _value = value;
            while woken.recv().await.is_ok() {
                ticking.fetch_add(1, SeqCst);
            }
        })
        .into_future(),
    );
    let (count, waker) = CountWakes::new();
    assert!(poll(future.as_mut(), &waker).is_pending());
    wake.try_send(()).expect("room");
    assert_eq!(count.wakes(), 1);
    assert!(poll(future.as_mut(), &waker).is_pending());
    drop(future);
    assert_eq!(ticks.load(SeqCst), 1);
    // It waits for a foreign future alone, so the stop drops it.
    let start = Instant::now();
    while census.alive() != 0 {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
    assert!(wake.try_send(()).is_err());
    assert_eq!(ticks.load(SeqCst), 1);
}

#[test]
fn timeouts_and_races_of_other_crates() {
    let census = Census::new();
    let runtime = multi_thread();
    runtime.block_on(async {
        let limit = Duration::from_millis(2);
        assert!(
            tokio::time::timeout(limit, never::<(), Infallible>().into_future())
                .await
                .is_err()
        );
        assert!(
            tokio::time::timeout(limit, waits_for_ever(&census).into_future())
                .await
                .is_err()
        );
        assert_eq!(tokio::time::timeout(PATIENCE, sorts().into_future()).await, Ok(Ok(31)));
        let won = tokio::select! {
            _ = waits_for_ever(&census).into_future() => 0,
            result = sorts().into_future() => result.unwrap_or(0),
        };
        assert_eq!(won, 31);
    });
    let won = block_on(or(async { waits_for_ever(&census).await.is_ok() }, async {
        sorts().await.is_ok()
    }));
    assert!(won);
    let start = Instant::now();
    while census.alive() != 0 {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

#[test]
fn an_aborted_tokio_task_lets_go() {
    let census = Census::new();
    let runtime = multi_thread();
    for _ in 0..100 {
        let task = runtime.spawn(waits_for_ever(&census).into_future());
        runtime.block_on(tokio::task::yield_now());
        task.abort();
    }
    drop(runtime);
    let start = Instant::now();
    while census.alive() != 0 {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

#[test]
fn many_at_once_on_many_threads() {
    let rounds = if cfg!(sanitized) { 20 } else { 100 };
    let runtime = multi_thread();
    let tasks: Vec<_> = (0..200u32)
        .map(|number| {
            runtime.spawn(async move {
                let mut sum = 0;
                for round in 0..rounds {
                    let Ok(x) = starts_on(pool(), just(number)).await;
                    let Ok(y) = Task::new(async move {
                        let Ok(y) = just(round).continues_on(pool()).await;
                        tokio::task::yield_now().await;
                        y
                    })
                    .await;
                    sum += x + y;
                }
                sum
            })
        })
        .collect();
    let expected: u32 = (0..200).map(|number| number * rounds + rounds * (rounds - 1) / 2).sum();
    let sum: u32 = runtime.block_on(async {
        let mut sum = 0;
        for task in tasks {
            sum += task.await.expect("it does not panic");
        }
        sum
    });
    assert_eq!(sum, expected);
}

#[test]
fn drops_race_with_completions() {
    let census = Census::new();
    let runtime = multi_thread();
    let mut random = XorShift::new(7);
    runtime.block_on(async {
        for _ in 0..if cfg!(sanitized) { 500 } else { 5_000 } {
            let value = census.value();
            let mut future = Box::pin(
                Task::new(async move {
                    let Ok(value) = just(value).continues_on(pool()).await;
                    pool().schedule().await;
                    value
                })
                .into_future(),
            );
            for _ in 0..random.below(6) {
                if poll_once(&mut future).await.is_some() {
                    break;
                }
            }
        }
    });
    let start = Instant::now();
    while census.alive() != 0 {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

#[test]
fn joins_of_other_crates_inside_a_task() {
    let work = Task::new(async {
        let senders = (0..50u32).map(|x| just(x).continues_on(pool()).into_future());
        let sum: u32 = join_all(senders)
            .await
            .into_iter()
            .map(|result| result.unwrap_or(0))
            .sum();
        let mut tasks: FuturesUnordered<_> = (0..50u32).map(|_| sorts().into_future()).collect();
        let mut more = 0;
        while let Some(Ok(x)) = tasks.next().await {
            more += x;
        }
        (sum, more)
    });
    assert_eq!(sync_wait(starts_on(pool(), work)).unwrap(), (1225, 1550));
}

#[test]
fn a_race_of_another_crate_inside_a_task_stops_the_loser() {
    let census = Census::new();
    let loser = waits_for_ever(&census);
    let work = Task::new(async move {
        let mut race: FuturesUnordered<_> = [loser, Task::new(async {})]
            .into_iter()
            .map(Task::into_future)
            .collect();
        race.next().await.is_some()
    });
    assert!(sync_wait(starts_on(pool(), work)).unwrap());
    let start = Instant::now();
    while census.alive() != 0 {
        assert!(start.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

/// An operation dropped inside the task has to be run by the executor before the task is done.
#[test]
fn a_race_inside_a_task_in_another_executor_ends_the_loser() {
    gives(Ok((2, 0)), || async {
        let census = Census::new();
        let seen = census.clone();
        let race = Task::new(async move {
            let value = census.value();
            let slow = from_future(async move {
                let _value = value;
                std::future::pending::<()>().await;
            });
            let slow = async {
                let _ = slow.await;
                1
            };
            let quick = async {
                yield_now().await;
                2
            };
            or(slow, quick).await
        });
        race.await.map(|won| (won, seen.alive()))
    });
}

#[test]
fn what_was_started_outside_may_be_polled_in_a_task() {
    let (_, waker) = CountWakes::new();
    let run_loop = for_good(RunLoop::new());
    let mut future = Box::pin(run_loop.scheduler().schedule().into_future());
    assert!(poll(future.as_mut(), &waker).is_pending());
    run_loop.run_until(Task::new(future)).unwrap();
}

#[test]
fn a_foreign_future_inside_a_task_is_woken_from_its_own_thread() {
    let runtime = multi_thread();
    let (sent, received) = tokio::sync::oneshot::channel();
    let (asks, asked) = async_channel::bounded(1);
    let handle = runtime.handle().clone();
    runtime.spawn(async move {
        let answer: async_channel::Sender<u32> = asked.recv().await.expect("it asks");
        tokio::time::sleep(Duration::from_millis(1)).await;
        answer.send(2).await.expect("it waits");
        sent.send(40).expect("it waits");
    });
    let here = thread::current().id();
    let work = Task::new(async move {
        let (answer, answered) = async_channel::bounded(1);
        asks.send(answer).await.expect("somebody listens");
        let two = answered.recv().await.expect("an answer");
        assert_eq!(thread::current().id(), here, "woken there, and polled here");
        let forty = received.await.expect("a value");
        let sleep = {
            let _context = handle.enter();
            tokio::time::sleep(Duration::from_millis(1))
        };
        sleep.await;
        assert_eq!(thread::current().id(), here);
        two + forty
    });
    assert_eq!(sync_wait(work).unwrap(), 42);
}

/// Returns a future that ignores stops and is never ready.
fn waits(census: &Census) -> impl Future<Output = ()> + Send + 'static {
    let value = census.value();
    async move {
        let _value = value;
        std::future::pending::<()>().await;
    }
}

#[test]
fn a_stop_drops_the_future_that_is_awaited_as_a_sender() {
    for on_pool in [false, true] {
        let census = Census::new();
        let source = StopSource::new();
        let token = source.token();
        let future = waits(&census);
        let (begun, begins) = mpsc::channel();
        let task = Task::new(async move {
            begun.send(()).expect("it waits");
            let Ok(()) = from_future(future).await;
            unreachable!("the stop ends it")
        });
        let task: Task<()> = if on_pool {
            Task::new(async move { starts_on(pool(), task).await.unwrap_or_else(|no| match no {}) })
        } else {
            task
        };
        let stopper = thread::spawn(move || {
            begins.recv().expect("it begins");
            source.request_stop();
        });
        assert!(sync_wait(task.write_env(WithStopToken(token))).is_stopped());
        assert_eq!(census.alive(), 0);
        stopper.join().expect("it requested the stop");
    }
}

#[test]
fn a_timeout_drops_the_future_that_is_awaited_as_a_sender() {
    gives((true, 0), || async {
        let census = Census::new();
        let task = {
            let future = waits(&census);
            Task::try_new(async { from_future(future).timeout(Duration::from_millis(1)).await })
        };
        let elapsed = matches!(task.await, Err(TimeoutError::Elapsed));
        (elapsed, census.alive())
    });
    // A task that waits for the future itself is stopped there, unless the future is ready.
    let source = StopSource::new();
    source.request_stop();
    let task = Task::new(async {
        assert_eq!(std::future::ready(5).await, 5);
        yield_now().await;
    });
    assert!(sync_wait(task.write_env(WithStopToken(source.token()))).is_stopped());
}

/// Any code may use the waker of a task: a poll with it outside of the task counts as another executor.
#[test]
fn polling_with_the_waker_of_a_task_does_not_make_it_that_task() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    let (kept, keeps) = mpsc::channel::<Waker>();
    let (done, is_done) = async_channel::bounded::<()>(1);
    let elsewhere = std::thread::spawn(move || {
        let waker = keeps.recv().expect("a waker");
        let mut context = Context::from_waker(&waker);
        let mut sum = 0;
        for round in 0..100 {
            let mut sender = pin!(starts_on(scheduler, just(round)).into_future());
            let mut task =
                pin!(Task::new(async move { starts_on(scheduler, just(round)).await.unwrap() }).into_future());
            sum += loop {
                if let Poll::Ready(Ok(value)) = sender.as_mut().poll(&mut context) {
                    break value;
                }
                std::thread::yield_now();
            };
            sum += loop {
                if let Poll::Ready(Ok(value)) = task.as_mut().poll(&mut context) {
                    break value;
                }
                std::thread::yield_now();
            };
        }
        done.send_blocking(()).expect("the task waits");
        sum
    });
    let task = Task::new(async move {
        poll_fn(|cx| Poll::Ready(kept.send(cx.waker().clone())))
            .await
            .expect("it listens");
        let mut hops = 0;
        while is_done.is_empty() {
            scheduler.schedule().await;
            hops += 1;
        }
        hops
    });
    sync_wait(starts_on(pool.scheduler(), task)).unwrap();
    assert_eq!(elsewhere.join().expect("it ends"), 2 * 99 * 50);
}

#[test]
fn a_socket_of_another_crate_inside_a_task() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_io()
        .build()
        .expect("a runtime");
    let handle = runtime.handle().clone();
    let (listener, address) = {
        let _context = handle.enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("it is bound");
        (TcpListener::from_std(listener).expect("a socket"), address)
    };
    let echo = Task::new(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let here = thread::current().id();
        let mut word = [0; 5];
        stream.read_exact(&mut word).await.expect("a word");
        assert_eq!(thread::current().id(), here, "woken there, and polled here");
        word.reverse();
        stream.write_all(&word).await.expect("somebody listens");
    });
    let asks = Task::new(async move {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        Timer::global().schedule_after(Duration::from_millis(1)).await;
        stream.write_all(b"strop").await.expect("somebody listens");
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await.expect("an answer");
        answer
    });
    // Sockets are opened in the context of the runtime, which serves them on a thread of its own.
    let _context = handle.enter();
    let ((), answer) = sync_wait(when_all((echo, asks))).unwrap();
    assert_eq!(&answer, b"ports");
}
