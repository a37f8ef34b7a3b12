//! Task groups: the cost of a child, of a tree of children and of a stop that reaches many.

use std::future::{Future, pending};
use std::hint::{self, black_box};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use async_executor::StaticExecutor;
use bowline::prelude::*;
use bowline::scheduler::{PoolScheduler, ThreadPool};
use bowline::stop::StopSource;
use bowline::task::{self, SpawnOptions, Task};
use futures_lite::future;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::sleepers;
use crate::clock::{Elapsed, Stopwatch};
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools;

pub(super) const CHILDREN: &[Metric] = &[Metric::new("time", "ns per child"), Metric::new("cores", "CPU/wall")];
pub(super) const LEAVES: &[Metric] = &[Metric::new("time", "ns per leaf"), Metric::new("cores", "CPU/wall")];

const READS: &[Metric] = &[Metric::new("time", "ns per read")];
const HANDLERS: &[Metric] = &[Metric::new("time", "ns per handler")];
const WAITS: &[Metric] = &[Metric::new("time", "us")];

/// The number of children of a node.
const ARITY: u64 = 10;

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let tokio = pools::tokio(config.threads);
    let rayon = pools::rayon(config.threads);

    let many = config.size(1_000_000, 10_000) as u64;
    Case::new(
        "groups/spawn",
        "A million children that do nothing, spawned by one task and joined there.",
        CHILDREN,
    )
    .bowline(|| spawn_in_bowline(&bowline, many))
    .peer("tokio's JoinSet", || in_sets_of(&tokio, many, many))
    .run(bench)?;

    Case::new(
        "groups/spawn-static",
        "The same against smol's static executor, whose handles are awaited one by one.",
        CHILDREN,
    )
    .bowline(|| spawn_in_bowline(&bowline, many))
    .peer("smol's static executor", || in_batches_of(config.threads, many, many))
    .run(bench)?;

    let (two, one) = (pools::bowline(2), pools::bowline(1));
    Case::new(
        "groups/workers",
        "The children of `groups/spawn` on two workers, against one.",
        CHILDREN,
    )
    .bowline(|| spawn_in_bowline(&two, many))
    .peer("one worker", || spawn_in_bowline(&one, many))
    .run(bench)?;
    drop((two, one));

    let leaves = config.size(1_000_000, 1_000) as u64;
    Case::new(
        "groups/skynet",
        "A tree of tasks, ten to a node, down to a million leaves whose numbers are added up.",
        LEAVES,
    )
    .bowline(|| skynet_in_bowline(&bowline, leaves))
    .peer("tokio", || skynet_in_tokio(&tokio, leaves))
    .shown("rayon's scope", || skynet_in_rayon(&rayon, leaves))
    .run(bench)?;

    let waiting = config.size(100_000, 1_000) as u64;
    Case::new(
        "groups/cancel",
        "Cancelling a hundred thousand children that wait, and awaiting their end.",
        CHILDREN,
    )
    .bowline(|| cancel_in_bowline(&bowline, waiting))
    .peer("tokio's JoinSet", || cancel_in_tokio(&tokio, waiting))
    .run(bench)?;

    Case::new(
        "groups/size",
        "What a child costs in a group of a million, against groups of ten.",
        CHILDREN,
    )
    .bowline(|| spawn_in_bowline(&bowline, many))
    .peer("groups of ten", || in_groups_of(&bowline, 10, many))
    .shown("of a hundred", || in_groups_of(&bowline, 100, many))
    .shown("of a thousand", || in_groups_of(&bowline, 1_000, many))
    .shown("of ten thousand", || in_groups_of(&bowline, 10_000, many))
    .shown("of a hundred thousand", || {
        in_groups_of(&bowline, 100_000.min(many), many)
    })
    .run(bench)?;

    sleepers::run(bench)?;

    let reads = config.size(10_000_000, 100_000);
    Case::new("groups/local", "Reading a task-local value, bound last.", READS)
        .bowline(|| local_in_bowline(reads))
        .peer("tokio's task_local", || {
            let work = TOKIO_LEVEL.scope(1, async move {
                let watch = Stopwatch::start();
                let sum: u64 = (0..reads).map(|_| TOKIO_LEVEL.with(|level| black_box(*level))).sum();
                (watch.stop(), sum)
            });
            let (elapsed, sum) = tokio.block_on(work);
            per(elapsed, reads, sum)
        })
        .run(bench)?;

    let handlers = config.size(1_000_000, 10_000);
    Case::new(
        "groups/handler",
        "Installing a cancellation handler around something that is ready, and removing it.",
        HANDLERS,
    )
    .bowline(|| handlers_in_bowline(handlers))
    .run(bench)?;

    let behind = config.size(500, 20);
    Case::new(
        "groups/escalation",
        "How long a task waits behind five hundred others of the lowest level, each at work for 20 us, when it is raised.",
        WAITS,
    )
    .bowline(|| latency(&bowline, behind, true))
    .peer("the same, not raised", || latency(&bowline, behind, false))
    .run(bench)
}

bowline::task_local! {
    static LEVEL: u64;
}

tokio::task_local! {
    static TOKIO_LEVEL: u64;
}

pub(super) fn local_in_bowline(reads: usize) -> Sample {
    let work = LEVEL.scope(1, async move {
        let watch = Stopwatch::start();
        let sum: u64 = (0..reads)
            .map(|_| LEVEL.with(|level| black_box(*level)).unwrap_or(0))
            .sum();
        (watch.stop(), sum)
    });
    let (elapsed, sum) = sync_wait(Task::new(work)).unwrap();
    per(elapsed, reads, sum)
}

pub(super) fn handlers_in_bowline(handlers: usize) -> Sample {
    let source = StopSource::new();
    let work = Task::new(async move {
        let watch = Stopwatch::start();
        let mut sum = 0;
        for _ in 0..handlers {
            sum += task::with_cancellation_handler(|| {}, async { black_box(1) }).await;
        }
        (watch.stop(), sum)
    });
    let (elapsed, sum) = sync_wait(work.write_env(WithStopToken(source.token()))).unwrap();
    per(elapsed, handlers, sum)
}

fn per(elapsed: Elapsed, many: usize, check: u64) -> Sample {
    Sample {
        values: vec![Some(elapsed.wall_each(many))],
        check,
    }
}

/// Measures the time until the last of many tasks runs that keep the pool busy.
fn latency(pool: &ThreadPool, behind: usize, raised: bool) -> Sample {
    let options = SpawnOptions::new()
        .priority(Priority::Background)
        .scheduler(pool.scheduler());
    // The tasks are not awaited, since that would raise them.
    let (ended, all_ended) = mpsc::channel();
    for _ in 0..behind {
        let ended = ended.clone();
        task::detach_with(options.clone(), async move {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(20) {
                hint::spin_loop();
            }
            drop(ended);
        });
    }
    drop(ended);
    let (ran, last_ran) = mpsc::channel();
    let last = task::detach_with(options, async move {
        ran.send(Instant::now()).expect("it is waited for");
    });
    let asked = Instant::now();
    if raised {
        last.raise(Priority::UserInteractive);
    }
    let waited = last_ran.recv().expect("it runs").saturating_duration_since(asked);
    // Returns an error when all tasks have ended, because they own the senders.
    let _: Result<(), _> = all_ended.recv();
    Sample {
        values: vec![Some(waited.as_nanos() as f64 / 1000.0)],
        check: behind as u64,
    }
}

fn each(elapsed: Elapsed, many: u64, check: u64) -> Sample {
    Sample {
        values: vec![Some(elapsed.wall_each(many as usize)), elapsed.cores()],
        check,
    }
}

/// Spawns children in one group, and adds up their results.
async fn one_group(from: u64, to: u64) -> u64 {
    task::group(async move |group| {
        for number in from..to {
            group.spawn(async move { black_box(number) });
        }
        let mut sum = 0;
        while let Some(number) = group.next().await {
            sum += number;
        }
        sum
    })
    .await
}

fn on(scheduler: PoolScheduler, many: u64, work: impl Future<Output = u64> + Send + 'static) -> Sample {
    let watch = Stopwatch::start();
    let sum = sync_wait(starts_on(scheduler, Task::new(work))).unwrap();
    each(watch.stop(), many, sum)
}

pub(super) fn spawn_in_bowline(pool: &ThreadPool, many: u64) -> Sample {
    on(pool.scheduler(), many, one_group(0, many))
}

pub(super) fn in_groups_of(pool: &ThreadPool, size: u64, many: u64) -> Sample {
    on(pool.scheduler(), many, async move {
        let mut sum = 0;
        for from in (0..many).step_by(size as usize) {
            sum += one_group(from, many.min(from + size)).await;
        }
        sum
    })
}

/// Spawns children in sets of a size, one set after the other.
pub(super) fn in_sets_of(runtime: &Runtime, size: u64, many: u64) -> Sample {
    let watch = Stopwatch::start();
    let sum = runtime.block_on(async move {
        let all = tokio::spawn(async move {
            let mut sum = 0;
            for from in (0..many).step_by(size as usize) {
                let mut set = JoinSet::new();
                for number in from..many.min(from + size) {
                    set.spawn(async move { black_box(number) });
                }
                while let Some(number) = set.join_next().await {
                    sum += number.expect("it ends");
                }
            }
            sum
        });
        all.await.expect("it ends")
    });
    each(watch.stop(), many, sum)
}

/// Spawns children on smol's static executor in batches of a size, one batch after the other.
pub(super) fn in_batches_of(threads: usize, size: u64, many: u64) -> Sample {
    // A static executor: it lives as long as the process, and its threads as long as this value.
    static EXECUTOR: StaticExecutor = StaticExecutor::new();
    let (open, closed) = async_channel::bounded::<()>(1);
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let closed = closed.clone();
            thread::spawn(move || {
                // The channel is closed at the end.
                let _ = future::block_on(EXECUTOR.run(closed.recv()));
            })
        })
        .collect();
    let watch = Stopwatch::start();
    let sum = future::block_on(EXECUTOR.spawn(async move {
        let mut sum = 0;
        for from in (0..many).step_by(size as usize) {
            let children: Vec<_> = (from..many.min(from + size))
                .map(|number| EXECUTOR.spawn(async move { black_box(number) }))
                .collect();
            for child in children {
                sum += child.await;
            }
        }
        sum
    }));
    let elapsed = watch.stop();
    open.close();
    for worker in workers {
        worker.join().expect("a worker ends");
    }
    each(elapsed, many, sum)
}

pub(super) fn skynet_in_bowline(pool: &ThreadPool, leaves: u64) -> Sample {
    let watch = Stopwatch::start();
    let sum = sync_wait(starts_on(pool.scheduler(), Task::new(skynet(0, leaves)))).unwrap();
    each(watch.stop(), leaves, sum)
}

pub(super) fn skynet_in_tokio(runtime: &Runtime, leaves: u64) -> Sample {
    let watch = Stopwatch::start();
    let sum = runtime.block_on(async { tokio::spawn(skynet_of_tokio(0, leaves)).await.expect("it ends") });
    each(watch.stop(), leaves, sum)
}

pub(super) fn skynet_in_rayon(pool: &rayon::ThreadPool, leaves: u64) -> Sample {
    let watch = Stopwatch::start();
    let sum = pool.install(|| skynet_of_rayon(0, leaves));
    each(watch.stop(), leaves, sum)
}

/// Returns the sum of the numbers of `leaves` leaves from `first` on.
#[expect(
    clippy::manual_async_fn,
    reason = "the bound `Send` lets it spawn itself without a box"
)]
fn skynet(first: u64, leaves: u64) -> impl Future<Output = u64> + Send {
    async move {
        if leaves == 1 {
            return first;
        }
        task::group(async move |group| {
            let each = leaves / ARITY;
            for child in 0..ARITY {
                group.spawn(skynet(first + child * each, each));
            }
            let mut sum = 0;
            while let Some(part) = group.next().await {
                sum += part;
            }
            sum
        })
        .await
    }
}

#[expect(clippy::manual_async_fn, reason = "as for `skynet`")]
fn skynet_of_tokio(first: u64, leaves: u64) -> impl Future<Output = u64> + Send {
    async move {
        if leaves == 1 {
            return first;
        }
        let each = leaves / ARITY;
        let children: Vec<_> = (0..ARITY)
            .map(|child| tokio::spawn(skynet_of_tokio(first + child * each, each)))
            .collect();
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("it ends");
        }
        sum
    }
}

/// Returns the same sum from a tree of jobs, each of which adds its part to that of its parent.
fn skynet_of_rayon(first: u64, leaves: u64) -> u64 {
    if leaves == 1 {
        return first;
    }
    let each = leaves / ARITY;
    let sum = AtomicU64::new(0);
    rayon::scope(|scope| {
        for child in 0..ARITY {
            let sum = &sum;
            scope.spawn(move |_| {
                sum.fetch_add(skynet_of_rayon(first + child * each, each), Relaxed);
            });
        }
    });
    sum.into_inner()
}

pub(super) fn cancel_in_bowline(pool: &ThreadPool, many: u64) -> Sample {
    let ended = Arc::new(AtomicUsize::new(0));
    let (count, scheduler) = (ended.clone(), pool.scheduler());
    let work = Task::new(async move {
        task::group(async move |group| {
            let (begun, all_have_begun) = Begun::of(many as usize);
            for _ in 0..many {
                let (begun, ended) = (begun.clone(), Counted(count.clone()));
                group.spawn(async move {
                    let _ended = ended;
                    begun.one_more();
                    never::<(), ()>().await
                });
            }
            all_have_begun.recv().await.expect("the children begin");
            let watch = Stopwatch::start();
            group.cancel_all();
            while group.next().await.is_some() {}
            watch.stop()
        })
        .await
    });
    let elapsed = sync_wait(starts_on(scheduler, work)).unwrap();
    each(elapsed, many, ended.load(Relaxed) as u64)
}

fn cancel_in_tokio(runtime: &Runtime, many: u64) -> Sample {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let elapsed = runtime.block_on(async move {
        let all = tokio::spawn(async move {
            let (begun, all_have_begun) = Begun::of(many as usize);
            let mut set = JoinSet::new();
            for _ in 0..many {
                let (begun, ended) = (begun.clone(), Counted(count.clone()));
                set.spawn(async move {
                    let _ended = ended;
                    begun.one_more();
                    pending::<()>().await;
                });
            }
            all_have_begun.recv().await.expect("the children begin");
            let watch = Stopwatch::start();
            set.shutdown().await;
            watch.stop()
        });
        all.await.expect("it ends")
    });
    each(elapsed, many, ended.load(Relaxed) as u64)
}

/// A countdown of the children that have not begun.
struct Begun {
    left: AtomicUsize,
    all: async_channel::Sender<()>,
}

impl Begun {
    /// Returns the countdown, and a channel that receives one message from the last child.
    fn of(many: usize) -> (Arc<Self>, async_channel::Receiver<()>) {
        let (all, all_have_begun) = async_channel::bounded(1);
        let left = AtomicUsize::new(many);
        (Arc::new(Begun { left, all }), all_have_begun)
    }

    fn one_more(&self) {
        if self.left.fetch_sub(1, Relaxed) == 1 {
            self.all.try_send(()).expect("there is room for one");
        }
    }
}

/// A count of the tasks that have ended.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}
