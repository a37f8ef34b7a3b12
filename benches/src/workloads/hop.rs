//! The cost of scheduling onto a pool: from one of its workers, and from another thread.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use futures_lite::future;

use crate::clock::{Elapsed, Stopwatch};
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools::{self, AsyncExecutor};

const METRICS: &[Metric] = &[Metric::new("time", "ns per hop"), Metric::new("cpu", "CPU ns per hop")];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let tokio = pools::tokio(config.threads);
    let rayon = pools::rayon(config.threads);
    let smol = AsyncExecutor::new(config.threads);

    let hops = config.size(1_000_000, 20_000);
    Case::new(
        "hop/inside",
        "One loop on the pool, every turn of which goes through the pool's queue.",
        METRICS,
    )
    .bowline(|| loops_of_bowline(&bowline, 1, hops))
    .peer("tokio", || loops_of_tokio(&tokio, 1, hops))
    .shown("async-executor", || loops_of_smol(&smol, 1, hops))
    .shown("rayon", || loop_of_rayon(&rayon, hops))
    .run(bench)?;

    let loops = 4 * config.threads;
    let each = hops / loops;
    Case::new("hop/inside-many", "The same, with four loops for each worker.", METRICS)
        .bowline(|| loops_of_bowline(&bowline, loops, each))
        .peer("tokio", || loops_of_tokio(&tokio, loops, each))
        .shown("async-executor", || loops_of_smol(&smol, loops, each))
        .run(bench)?;

    let many = config.size(100_000, 5_000);
    Case::new(
        "hop/outside",
        "A thread that is no worker puts 100 000 jobs onto the pool, whose workers run them meanwhile, and waits for all.",
        METRICS,
    )
    .bowline(|| batches_of_bowline(&bowline, 1, many))
    .peer("tokio", || batches_of_tokio(&tokio, 1, many))
    .shown("async-executor", || batches_of_smol(&smol, 1, many))
    .shown("rayon", || batches_of_rayon(&rayon, 1, many))
    .run(bench)?;

    let few = 1_000;
    let batches = many / few;
    Case::new("hop/outside-1k", "The same, in batches of 1 000.", METRICS)
        .bowline(|| batches_of_bowline(&bowline, batches, few))
        .peer("tokio", || batches_of_tokio(&tokio, batches, few))
        .shown("async-executor", || batches_of_smol(&smol, batches, few))
        .shown("rayon", || batches_of_rayon(&rayon, batches, few))
        .run(bench)?;

    let loaded = config.size(20_000, 1_000);
    Case::new(
        "hop/outside-loaded",
        "The same in one batch of 20 000, while a loop as in `hop/inside` keeps each worker busy.",
        METRICS,
    )
    .bowline(|| {
        let load = Load::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let scheduler = bowline.scheduler();
                let turns = |_| {
                    let mut first = true;
                    let load = &load;
                    scheduler.schedule().repeat_until(move |()| load.turn(&mut first))
                };
                sync_wait(when_all_iter((0..config.threads).map(turns))).unwrap();
            });
            load.wait_until_all_have_begun(config.threads);
            let sample = batches_of_bowline(&bowline, 1, loaded);
            load.end();
            sample
        })
    })
    .peer("tokio", || {
        let load = Arc::new(Load::default());
        let tasks: Vec<_> = (0..config.threads)
            .map(|_| tokio.spawn(turns_until_end(load.clone())))
            .collect();
        load.wait_until_all_have_begun(config.threads);
        let sample = batches_of_tokio(&tokio, 1, loaded);
        load.end();
        tasks
            .into_iter()
            .for_each(|task| tokio.block_on(task).expect("the load ends"));
        sample
    })
    .shown("async-executor", || {
        let load = Arc::new(Load::default());
        let tasks: Vec<_> = (0..config.threads)
            .map(|_| smol.spawn(turns_until_end(load.clone())))
            .collect();
        load.wait_until_all_have_begun(config.threads);
        let sample = batches_of_smol(&smol, 1, loaded);
        load.end();
        tasks.into_iter().for_each(future::block_on);
        sample
    })
    .run(bench)?;

    Ok(())
}

fn sample(elapsed: Elapsed, hops: usize, counted: usize) -> Sample {
    Sample {
        values: vec![Some(elapsed.wall_each(hops)), elapsed.cpu_each(hops)],
        check: counted as u64,
    }
}

pub(super) fn loops_of_bowline(pool: &ThreadPool, loops: usize, turns: usize) -> Sample {
    let scheduler = pool.scheduler();
    let mut counts: Vec<Count> = (0..loops).map(|_| Count(0)).collect();
    let watch = Stopwatch::start();
    let all = counts.iter_mut().map(|count| {
        scheduler.schedule().repeat_until(move |()| {
            count.0 += 1;
            black_box(count.0) == turns
        })
    });
    sync_wait(when_all_iter(all)).unwrap();
    let elapsed = watch.stop();
    sample(elapsed, loops * turns, counts.iter().map(|count| count.0).sum())
}

/// The turns of a loop, which no other worker writes near: the peers have them in their tasks.
#[repr(align(128))]
struct Count(usize);

/// Returns a future that wakes itself and is pending `turns` times, and completes with that number.
fn turns(turns: usize) -> impl Future<Output = usize> {
    let mut count = 0;
    poll_fn(move |context| {
        if black_box(count) == turns {
            return Poll::Ready(count);
        }
        count += 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

fn turns_until_end(load: Arc<Load>) -> impl Future<Output = ()> {
    let mut first = true;
    poll_fn(move |context| {
        if load.turn(&mut first) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Loops on the pool that run until they are told to end.
#[derive(Default)]
struct Load {
    /// The number of loops that have begun.
    begun: AtomicUsize,
    ended: AtomicBool,
}

impl Load {
    /// Runs one turn of a loop. Returns whether it is the last.
    fn turn(&self, first: &mut bool) -> bool {
        if mem::take(first) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        self.ended.load(Ordering::Relaxed)
    }

    fn wait_until_all_have_begun(&self, loops: usize) {
        while self.begun.load(Ordering::Relaxed) < loops {
            thread::yield_now();
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn loops_of_tokio(runtime: &tokio::runtime::Runtime, loops: usize, each: usize) -> Sample {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..loops).map(|_| runtime.spawn(turns(each))).collect();
    let counts = runtime.block_on(async {
        let mut counts = 0;
        for task in tasks {
            counts += task.await.expect("the loop ends");
        }
        counts
    });
    let elapsed = watch.stop();
    sample(elapsed, loops * each, counts)
}

fn loops_of_smol(executor: &AsyncExecutor, loops: usize, each: usize) -> Sample {
    let watch = Stopwatch::start();
    let tasks: Vec<_> = (0..loops).map(|_| executor.spawn(turns(each))).collect();
    let counts = future::block_on(async {
        let mut counts = 0;
        for task in tasks {
            counts += task.await;
        }
        counts
    });
    let elapsed = watch.stop();
    sample(elapsed, loops * each, counts)
}

/// Runs a job that spawns the next. rayon cannot wait, so this is the closest equivalent.
fn loop_of_rayon(pool: &rayon::ThreadPool, turns: usize) -> Sample {
    fn turn(count: usize, turns: usize, done: mpsc::SyncSender<usize>) {
        if black_box(count) == turns {
            done.send(count).expect("the receiver waits");
        } else {
            rayon::spawn_fifo(move || turn(count + 1, turns, done));
        }
    }
    let (done, all_done) = mpsc::sync_channel(1);
    let watch = Stopwatch::start();
    pool.spawn_fifo(move || turn(0, turns, done));
    let counted = all_done.recv().expect("the loop ends");
    let elapsed = watch.stop();
    sample(elapsed, turns, counted)
}

/// Returns 1 if this is not the thread at `caller`: a job that its caller runs has not hopped.
fn hopped(caller: usize) -> usize {
    usize::from(black_box(here()) != caller)
}

/// Returns an address that identifies the thread, at the cost of an addition.
fn here() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| &raw const *here as usize)
}

pub(super) fn batches_of_bowline(pool: &ThreadPool, batches: usize, each: usize) -> Sample {
    let caller = here();
    let scheduler = pool.scheduler();
    let mut counted = 0;
    let watch = Stopwatch::start();
    for _ in 0..batches {
        let jobs = (0..each).map(|_| scheduler.schedule().then(move |()| hopped(caller)));
        counted += sync_wait(when_all_iter(jobs)).unwrap().into_iter().sum::<usize>();
    }
    let elapsed = watch.stop();
    sample(elapsed, batches * each, counted)
}

fn batches_of_tokio(runtime: &tokio::runtime::Runtime, batches: usize, each: usize) -> Sample {
    let caller = here();
    let mut counted = 0;
    let watch = Stopwatch::start();
    runtime.block_on(async {
        for _ in 0..batches {
            let tasks: Vec<_> = (0..each).map(|_| tokio::spawn(async move { hopped(caller) })).collect();
            for task in tasks {
                counted += task.await.expect("the task ends");
            }
        }
    });
    let elapsed = watch.stop();
    sample(elapsed, batches * each, counted)
}

fn batches_of_smol(executor: &AsyncExecutor, batches: usize, each: usize) -> Sample {
    let caller = here();
    let mut counted = 0;
    let watch = Stopwatch::start();
    future::block_on(async {
        for _ in 0..batches {
            let tasks: Vec<_> = (0..each)
                .map(|_| executor.spawn(async move { hopped(caller) }))
                .collect();
            for task in tasks {
                counted += task.await;
            }
        }
    });
    let elapsed = watch.stop();
    sample(elapsed, batches * each, counted)
}

fn batches_of_rayon(pool: &rayon::ThreadPool, batches: usize, each: usize) -> Sample {
    let caller = here();
    let mut counted = 0;
    let watch = Stopwatch::start();
    for _ in 0..batches {
        let mut results = vec![0_usize; each];
        pool.in_place_scope(|scope| {
            for result in &mut results {
                scope.spawn(move |_| *result = hopped(caller));
            }
        });
        counted += results.into_iter().sum::<usize>();
    }
    let elapsed = watch.stop();
    sample(elapsed, batches * each, counted)
}
