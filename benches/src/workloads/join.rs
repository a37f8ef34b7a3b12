//! Fork and join: the Fibonacci numbers the slow way, every call a `join`, without a cut-off.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::clock::Stopwatch;
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools;

const METRICS: &[Metric] = &[
    Metric::new("time", "ns per node"),
    Metric::new("cores", "CPU/wall"),
    Metric::new("workers", "that took part"),
    Metric::new("least share", "% of the leaves"),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let rayon = pools::rayon(config.threads);

    let number = config.size(30, 20) as u64;
    let times = config.size(5, 2);
    let about = "fib(30): 1 346 268 joins in a tree of 2 692 537 nodes.";
    let turn = |timed: &dyn Fn(u64) -> u64, counted: &dyn Fn(u64, &Leaves) -> u64| {
        let watch = Stopwatch::start();
        let mut sum = 0;
        for _ in 0..times {
            sum += timed(black_box(number));
        }
        let elapsed = watch.stop();
        // The threads that take part are counted in a separate run, since counting takes time.
        let leaves = Leaves::new(config.threads);
        sum += counted(number, &leaves);
        Sample {
            values: vec![
                Some(elapsed.wall_each(times * nodes(number))),
                elapsed.cores(),
                Some(leaves.workers() as f64),
                Some(leaves.least_share() * 100.0),
            ],
            check: sum,
        }
    };
    Case::new("join/fib", about, METRICS)
        .bowline(|| {
            turn(&|number| bowline.install(|| fib_bowline(number)), &|number, leaves| {
                bowline.install(|| fib_bowline_counted(number, leaves))
            })
        })
        .peer("rayon", || {
            turn(&|number| rayon.install(|| fib_rayon(number)), &|number, leaves| {
                rayon.install(|| fib_rayon_counted(number, leaves))
            })
        })
        .run(bench)?;
    Ok(())
}

/// Returns the number of nodes of the tree that `number` makes.
pub(super) fn nodes(number: u64) -> usize {
    2 * fib(number + 1) as usize - 1
}

fn fib(number: u64) -> u64 {
    let (mut this, mut next) = (0, 1);
    for _ in 0..number {
        (this, next) = (next, this + next);
    }
    this
}

/// Defines one function for each `join`.
macro_rules! fib {
    ($plain:ident, $counted:ident, $join:path) => {
        pub(super) fn $plain(number: u64) -> u64 {
            if number < 2 {
                return number;
            }
            let (a, b) = $join(|| $plain(number - 1), || $plain(number - 2));
            a + b
        }

        fn $counted(number: u64, leaves: &Leaves) -> u64 {
            if number < 2 {
                leaves.count();
                return number;
            }
            let (a, b) = $join(|| $counted(number - 1, leaves), || $counted(number - 2, leaves));
            a + b
        }
    };
}

fib!(fib_bowline, fib_bowline_counted, bowline::join);
fib!(fib_rayon, fib_rayon_counted, rayon::join);

/// A count of the leaves that each thread ran.
struct Leaves {
    /// Distinguishes this count from earlier ones.
    run: usize,
    threads: AtomicUsize,
    counts: Vec<AtomicUsize>,
}

impl Leaves {
    fn new(threads: usize) -> Self {
        static RUNS: AtomicUsize = AtomicUsize::new(1);
        Leaves {
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            threads: AtomicUsize::new(0),
            counts: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    fn count(&self) {
        thread_local! {
            /// The run that this thread counts for, and its index there.
            static PLACE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
        }
        let (run, mut place) = PLACE.get();
        if run != self.run {
            place = self.threads.fetch_add(1, Ordering::Relaxed);
            PLACE.set((self.run, place));
        }
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of threads that ran a leaf.
    fn workers(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Returns the share of all leaves that the thread with the fewest ran.
    fn least_share(&self) -> f64 {
        let counts = || self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        counts().min().unwrap_or(0) as f64 / counts().sum::<usize>() as f64
    }
}
