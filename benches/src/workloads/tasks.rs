//! Coroutines: the cost of an `.await` of a sender, of another task, and at depth.

use std::future::{self, Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use async_channel::{Receiver, Sender as ChannelSender, bounded};
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::task::Task;
use tokio::runtime::Runtime;

use crate::clock::{Elapsed, Stopwatch};
use crate::harness::{Bench, Case, Metric, Sample};
use crate::machine::resident;
use crate::pools;

const AWAITS: &[Metric] = &[Metric::new("time", "ns per await")];
const NODES: &[Metric] = &[Metric::new("time", "ns per node"), Metric::new("cores", "CPU/wall")];
const LEVELS: &[Metric] = &[
    Metric::new("time", "ns per level"),
    Metric::new("memory", "bytes per level"),
];
const TRIPS: &[Metric] = &[Metric::new("time", "ns per round trip")];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let tokio = pools::tokio(config.threads);

    let many = config.size(10_000_000, 100_000);
    Case::new("tasks/ready", "Awaiting a sender that is ready, in a loop.", AWAITS)
        .bowline(|| ready_in_bowline(many))
        .peer("std::future::ready", || {
            in_task(many, async move |i| future::ready(black_box(i)).await)
        })
        .run(bench)?;

    let some = config.size(2_000_000, 20_000);
    Case::new("tasks/child", "Awaiting a task that is ready, in a loop.", AWAITS)
        .bowline(|| children_of_bowline(some))
        .peer("a boxed future", || in_task(some, async move |i| boxed(i).await))
        .shown("tokio's spawn", || {
            let few = some / 10;
            let watch = Stopwatch::start();
            let sum = tokio.block_on(async {
                let mut sum = 0;
                for i in 0..few {
                    sum += tokio::spawn(async move { black_box(i) }).await.expect("it ends");
                }
                sum
            });
            let elapsed = watch.stop();
            black_box(sum);
            Sample {
                values: vec![Some(elapsed.wall_each(few))],
                check: sum_to(some),
            }
        })
        .run(bench)?;

    let depth = config.size(25, 12) as u32;
    Case::new(
        "tasks/fib",
        "fib(25) of tasks: of the two children one is put onto the pool, the other goes on here. In tokio a task is spawned.",
        NODES,
    )
    .bowline(|| fib_in_bowline(&bowline, depth))
    .peer("tokio", || {
        let watch = Stopwatch::start();
        let result = tokio.block_on(async { tokio::spawn(fib_of_tokio(depth)).await.expect("it ends") });
        nodes(watch.stop(), depth, result)
    })
    .shown("tokio, with one child a boxed future", || {
        let watch = Stopwatch::start();
        let result = tokio.block_on(async { tokio::spawn(fib_of_tokio_and_boxes(depth)).await.expect("it ends") });
        nodes(watch.stop(), depth, result)
    })
    .run(bench)?;

    let hops = config.size(1_000_000, 20_000);
    Case::new(
        "tasks/hop",
        "A task that goes through the pool's queue at every await.",
        AWAITS,
    )
    .bowline(|| hops_of_bowline(&bowline, hops))
    .peer("tokio", || hops_of_tokio(&tokio, hops))
    .run(bench)?;

    let wakes = config.size(20_000, 1_000);
    let deep = config.size(10_000, 100);
    Case::new(
        "tasks/depth",
        "Waking the innermost of 10 000 tasks that await one another, against that of ten.",
        AWAITS,
    )
    .bowline(|| wakes_at(&bowline, deep, wakes))
    .peer("depth 10", || wakes_at(&bowline, 10, wakes))
    .shown("boxed futures", || {
        wakes_of_boxes(&bowline, deep, wakes / 20).checked(wakes as u64)
    })
    .run(bench)?;

    let levels = config.size(10_000_000, 10_000);
    // Before the first round, because freed memory still belongs to the process.
    let before = resident();
    Case::new(
        "tasks/recursion",
        "Ten million tasks, each awaiting the next: made, run and freed.",
        LEVELS,
    )
    .most_rounds(3)
    .bowline(|| {
        let watch = Stopwatch::start();
        let (reached, deepest) = sync_wait(countdown(levels)).unwrap();
        let elapsed = watch.stop();
        let memory = deepest
            .zip(before)
            .map(|(deepest, before)| (deepest - before) / levels as f64);
        Sample {
            values: vec![Some(elapsed.wall_each(levels)), memory],
            check: reached as u64,
        }
    })
    .run(bench)?;

    let trips = config.size(200_000, 5_000);
    Case::new(
        "tasks/ping-pong",
        "Two tasks that hand a number to and fro, with a lock and a waker between them and nothing else.",
        TRIPS,
    )
    .bowline(|| ping_pong_in_bowline(&bowline, trips))
    .peer("tokio", || {
        let there = Arc::new((Baton::default(), Baton::default()));
        both_on_tokio(&tokio, trips, ping(there.clone(), trips), pong(there, trips))
    })
    .run(bench)?;

    Case::new(
        "tasks/channels",
        "The same over two channels of another crate, which take most of the time.",
        TRIPS,
    )
    .bowline(|| {
        let ((to, served), (back, returned)) = (bounded(1), bounded(1));
        both_on_bowline(&bowline, trips, send(to, returned, trips), answer(served, back))
    })
    .peer("tokio", || {
        let ((to, served), (back, returned)) = (bounded(1), bounded(1));
        both_on_tokio(&tokio, trips, send(to, returned, trips), answer(served, back))
    })
    .run(bench)?;

    Ok(())
}

fn sum_to(many: usize) -> u64 {
    (0..many as u64).sum()
}

/// Runs a loop of awaits inside one task.
fn in_task<F, Fut>(many: usize, mut await_one: F) -> Sample
where
    F: FnMut(u64) -> Fut + Send + 'static,
    Fut: Future<Output = u64> + Send + 'static,
{
    let task = Task::new(async move {
        let mut sum = 0;
        for i in 0..many as u64 {
            sum += await_one(i).await;
        }
        sum
    });
    let watch = Stopwatch::start();
    let sum = sync_wait(task).unwrap();
    let elapsed = watch.stop();
    Sample {
        values: vec![Some(elapsed.wall_each(many))],
        check: sum,
    }
}

pub(super) fn ready_in_bowline(many: usize) -> Sample {
    in_task(many, async move |i| just(black_box(i)).await.unwrap())
}

pub(super) fn children_of_bowline(many: usize) -> Sample {
    in_task(many, async move |i| child(i).await.unwrap())
}

fn child(i: u64) -> Task<u64> {
    Task::new(async move { black_box(i) })
}

fn boxed(i: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move { black_box(i) })
}

pub(super) fn fib_in_bowline(pool: &ThreadPool, depth: u32) -> Sample {
    let scheduler = pool.scheduler();
    let watch = Stopwatch::start();
    let result = sync_wait(starts_on(scheduler, fib(depth, scheduler))).unwrap();
    nodes(watch.stop(), depth, result)
}

fn fib(n: u32, scheduler: PoolScheduler) -> Task<u64> {
    Task::new(async move {
        if n < 2 {
            return u64::from(n);
        }
        let both = when_all((starts_on(scheduler, fib(n - 1, scheduler)), fib(n - 2, scheduler)));
        let (a, b) = both.await.unwrap();
        a + b
    })
}

fn fib_of_tokio(n: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return u64::from(n);
        }
        let (one, other) = (tokio::spawn(fib_of_tokio(n - 1)), tokio::spawn(fib_of_tokio(n - 2)));
        one.await.expect("it ends") + other.await.expect("it ends")
    })
}

fn fib_of_tokio_and_boxes(n: u32) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return u64::from(n);
        }
        let one = tokio::spawn(fib_of_tokio_and_boxes(n - 1));
        let other = fib_of_tokio_and_boxes(n - 2).await;
        one.await.expect("it ends") + other
    })
}

/// Returns the number of calls of `fib`.
pub(super) fn calls(n: u32) -> usize {
    let (mut one, mut next) = (1, 1);
    for _ in 1..n {
        (one, next) = (next, one + next + 1);
    }
    next
}

fn nodes(elapsed: Elapsed, depth: u32, result: u64) -> Sample {
    Sample {
        values: vec![Some(elapsed.wall_each(calls(depth))), elapsed.cores()],
        check: result,
    }
}

pub(super) fn hops_of_bowline(pool: &ThreadPool, hops: usize) -> Sample {
    let scheduler = pool.scheduler();
    let task = Task::new(async move {
        let mut count = 0;
        while black_box(count) < hops {
            scheduler.schedule().await;
            count += 1;
        }
        count
    });
    let watch = Stopwatch::start();
    let count = sync_wait(starts_on(scheduler, task)).unwrap();
    let elapsed = watch.stop();
    Sample {
        values: vec![Some(elapsed.wall_each(hops))],
        check: count as u64,
    }
}

fn hops_of_tokio(runtime: &Runtime, hops: usize) -> Sample {
    let mut count = 0;
    let turns = poll_fn(move |context| {
        if black_box(count) == hops {
            return Poll::Ready(count);
        }
        count += 1;
        context.waker().wake_by_ref();
        Poll::Pending
    });
    let watch = Stopwatch::start();
    let count = runtime.block_on(async { tokio::spawn(turns).await.expect("it ends") });
    let elapsed = watch.stop();
    Sample {
        values: vec![Some(elapsed.wall_each(hops))],
        check: count as u64,
    }
}

/// Returns the innermost of `depth` tasks.
fn innermost(depth: usize, leaf: Task<Elapsed>) -> Task<Elapsed> {
    let mut task = leaf;
    for _ in 0..depth {
        let inner = task;
        task = Task::new(async move { inner.await.unwrap() });
    }
    task
}

pub(super) fn wakes_at(pool: &ThreadPool, depth: usize, wakes: usize) -> Sample {
    let scheduler = pool.scheduler();
    let leaf = Task::new(async move {
        let watch = Stopwatch::start();
        for _ in 0..wakes {
            scheduler.schedule().await;
        }
        watch.stop()
    });
    let elapsed = sync_wait(starts_on(scheduler, innermost(depth, leaf))).unwrap();
    Sample {
        values: vec![Some(elapsed.wall_each(wakes))],
        check: wakes as u64,
    }
}

pub(super) fn wakes_of_boxes(pool: &ThreadPool, depth: usize, wakes: usize) -> Sample {
    let watch = Stopwatch::start();
    let turns = sync_wait(starts_on(pool.scheduler(), Task::new(nest(depth, wakes)))).unwrap();
    Sample {
        values: vec![Some(watch.stop().wall_each(wakes))],
        check: turns as u64,
    }
}

/// Returns nested boxed futures of the same depth, whose innermost wakes itself.
fn nest(depth: usize, turns: usize) -> Pin<Box<dyn Future<Output = usize> + Send>> {
    let mut count = 0;
    let mut future: Pin<Box<dyn Future<Output = usize> + Send>> = Box::pin(poll_fn(move |context| {
        if count == turns {
            return Poll::Ready(count);
        }
        count += 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }));
    for _ in 0..depth {
        let inner = future;
        future = Box::pin(async move { black_box(inner.await) });
    }
    future
}

/// Returns the number of levels, and the memory of the process at the deepest.
pub(super) fn countdown(levels: usize) -> Task<(usize, Option<f64>)> {
    Task::new(async move {
        match levels {
            0 => (0, resident()),
            _ => {
                let (reached, deepest) = countdown(levels - 1).await.unwrap();
                (reached + 1, deepest)
            }
        }
    })
}

/// A number on its way from one task to another, and the receiving task's waker.
#[derive(Default)]
struct Baton(Mutex<(Option<usize>, Option<Waker>)>);

impl Baton {
    fn pass(&self, number: usize) {
        let waker = {
            let mut inside = self.0.lock().expect("not poisoned");
            inside.0 = Some(number);
            inside.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn take(&self) -> usize {
        poll_fn(|context| {
            let mut inside = self.0.lock().expect("not poisoned");
            match inside.0.take() {
                Some(number) => Poll::Ready(number),
                None => {
                    inside.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

async fn ping(there: Arc<(Baton, Baton)>, trips: usize) -> usize {
    let mut last = 0;
    for trip in 1..=trips {
        there.0.pass(trip);
        last = there.1.take().await;
    }
    last
}

async fn pong(there: Arc<(Baton, Baton)>, trips: usize) {
    for _ in 0..trips {
        let number = there.0.take().await;
        there.1.pass(number);
    }
}

async fn send(to: ChannelSender<usize>, returned: Receiver<usize>, trips: usize) -> usize {
    let mut last = 0;
    for trip in 1..=trips {
        to.send(trip).await.expect("the other listens");
        last = returned.recv().await.expect("the other answers");
    }
    last
}

async fn answer(served: Receiver<usize>, back: ChannelSender<usize>) {
    while let Ok(trip) = served.recv().await {
        if back.send(trip).await.is_err() {
            break;
        }
    }
}

pub(super) fn ping_pong_in_bowline(pool: &ThreadPool, trips: usize) -> Sample {
    let there = Arc::new((Baton::default(), Baton::default()));
    both_on_bowline(pool, trips, ping(there.clone(), trips), pong(there, trips))
}

fn both_on_bowline<A, B>(pool: &ThreadPool, trips: usize, one: A, other: B) -> Sample
where
    A: Future<Output = usize> + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let scheduler = pool.scheduler();
    let watch = Stopwatch::start();
    let both = when_all((
        starts_on(scheduler, Task::new(one)),
        starts_on(scheduler, Task::new(other)),
    ));
    let (last, ()) = sync_wait(both).unwrap();
    round_trips(watch.stop(), trips, last)
}

fn both_on_tokio<A, B>(runtime: &Runtime, trips: usize, one: A, other: B) -> Sample
where
    A: Future<Output = usize> + Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let watch = Stopwatch::start();
    let last = runtime.block_on(async {
        let (one, other) = (tokio::spawn(one), tokio::spawn(other));
        other.await.expect("it ends");
        one.await.expect("it ends")
    });
    round_trips(watch.stop(), trips, last)
}

fn round_trips(elapsed: Elapsed, trips: usize, last: usize) -> Sample {
    Sample {
        values: vec![Some(elapsed.wall_each(trips))],
        check: last as u64,
    }
}
