//! Senders behind boxes: the cost of a hop inside many of them.

use std::hint::black_box;
use std::sync::{Arc, OnceLock};

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;

use crate::clock::{Elapsed, Stopwatch};
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools;

const HOPS: &[Metric] = &[Metric::new("time", "ns per hop")];

/// The depths that are compared.
const DEEP: usize = 8_000;
const SHALLOW: usize = 500;

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let hops = config.size(20_000, 500);
    Case::new(
        "boxes/deep",
        "A loop that hops inside 8 000 nested boxed senders, against one inside 500.",
        HOPS,
    )
    .bowline(|| hops_inside(&bowline, DEEP, hops))
    .peer("500 deep", || hops_inside(&bowline, SHALLOW, hops))
    .shown("no box", || hops_inside(&bowline, 0, hops))
    .run(bench)
}

/// Measures from the first hop to the last, without making and destroying the boxes.
pub(super) fn hops_inside(pool: &ThreadPool, depth: usize, hops: usize) -> Sample {
    let elapsed: Arc<OnceLock<Elapsed>> = Arc::default();
    let (mut count, mut watch, result) = (0, None, elapsed.clone());
    let turns = pool.scheduler().schedule().repeat_until(move |()| {
        count += 1;
        if count == 1 {
            watch = Some(Stopwatch::start());
        }
        let last = black_box(count) > hops;
        if let Some(watch) = watch.take_if(|_| last) {
            let _ = result.set(watch.stop());
        }
        last
    });
    if depth == 0 {
        sync_wait(turns).unwrap();
    } else {
        let nested = (1..depth).fold(turns.boxed(), |inside, _| inside.boxed());
        sync_wait(nested).unwrap();
    }
    let elapsed = elapsed.get().expect("the last turn has ended");
    Sample {
        values: vec![Some(elapsed.wall_each(hops))],
        check: hops as u64,
    }
}
