//! Parallel loops over many indices: one bound by memory, and one whose iterations differ widely.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline::prelude::*;
use rayon::prelude::*;

use super::work::{compute, scramble};
use crate::clock::{Elapsed, Stopwatch};
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools;

const METRICS: &[Metric] = &[Metric::new("time", "ns per index"), Metric::new("cores", "CPU/wall")];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    saxpy(bench)?;
    irregular(bench)?;
    small(bench)
}

fn saxpy(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let rayon = pools::rayon(config.threads);
    let length = config.size(16 << 20, 1 << 16);
    let passes = config.size(4, 1);
    let x: Vec<f32> = (0..length).map(|index| (index % 1000) as f32).collect();
    let mut y = vec![0.0; length];
    let y = SharedSlice::new(&mut y);
    let a = black_box(0.5_f32);

    // All contenders use the same memory, which the same thread fills before each turn.
    let turn = |pass: &dyn Fn()| {
        // SAFETY: no pass is running: `pass` runs below, and waits for its work.
        unsafe { y.range(0..length) }.fill(1.0);
        let watch = Stopwatch::start();
        for _ in 0..passes {
            pass();
        }
        let elapsed = watch.stop();
        // SAFETY: every pass has ended, so this thread has exclusive access.
        let y: &[f32] = unsafe { y.range(0..length) };
        let bits = y.iter().map(|value| u64::from(value.to_bits()));
        sample(elapsed, passes * length, bits)
    };
    let add = |range: Range<usize>| {
        // SAFETY: the ranges of one pass are disjoint, and no other code accesses the slice meanwhile.
        let y = unsafe { y.range(range.clone()) };
        for (y, x) in y.iter_mut().zip(&x[range]) {
            *y += a * x;
        }
    };
    Case::new(
        "bulk/saxpy",
        "y += a * x on 16 Mi floats: `bulk_chunked` and `par_iter_mut().zip()`.",
        METRICS,
    )
    .bowline(|| {
        turn(&|| {
            sync_wait(
                bowline
                    .scheduler()
                    .schedule()
                    .bulk_chunked(length, |range, ()| add(range)),
            )
            .unwrap()
        })
    })
    .peer("rayon", || {
        turn(&|| {
            rayon.install(|| {
                // SAFETY: this pass has exclusive access to the whole slice.
                let y = unsafe { y.range(0..length) };
                y.par_iter_mut().zip(&x).for_each(|(y, x)| *y += a * x);
            });
        })
    })
    .shown("bowline, bulk", || {
        turn(&|| {
            let each = |index: usize, (): &()| {
                // SAFETY: each index below `length`, the length of both, occurs once in a pass.
                unsafe { *y.at(index) += a * x.get_unchecked(index) };
            };
            sync_wait(bowline.scheduler().schedule().bulk(length, each)).unwrap();
        })
    })
    .shown("one thread", || turn(&|| add(0..length)))
    .run(bench)
}

/// Returns the cost of an index: small, growing towards the end, and now and then very large.
fn steps(index: usize, length: usize) -> u64 {
    let slope = (index * 64 / length) as u64;
    let peak = if scramble(index as u64).is_multiple_of(512) {
        20_000
    } else {
        0
    };
    8 + slope + peak
}

fn irregular(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let rayon = pools::rayon(config.threads);
    let length = config.size(1 << 20, 1 << 13);
    let results: Vec<AtomicU64> = (0..length).map(|_| AtomicU64::new(0)).collect();
    let call = |index: usize| results[index].store(compute(index as u64, steps(index, length)), Ordering::Relaxed);
    let turn = |pass: &dyn Fn()| {
        results.iter().for_each(|result| result.store(0, Ordering::Relaxed));
        let watch = Stopwatch::start();
        pass();
        let elapsed = watch.stop();
        sample(
            elapsed,
            length,
            results.iter().map(|result| result.load(Ordering::Relaxed)),
        )
    };
    Case::new(
        "bulk/irregular",
        "A million indices whose cost rises from 8 to 72 steps, and is 20 000 for one in 512: `bulk` and `par_iter`.",
        METRICS,
    )
    .bowline(|| turn(&|| sync_wait(bowline.scheduler().schedule().bulk(length, |index, ()| call(index))).unwrap()))
    .peer("rayon", || {
        turn(&|| rayon.install(|| (0..length).into_par_iter().for_each(call)))
    })
    .shown("one thread", || turn(&|| (0..length).for_each(call)))
    .run(bench)
}

/// Measures the cost of a loop with almost no work.
fn small(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    const METRICS: &[Metric] = &[Metric::new("time", "ns per loop"), Metric::new("cores", "CPU/wall")];
    let bowline = pools::bowline(config.threads);
    let rayon = pools::rayon(config.threads);
    let loops = config.size(2_000, 100);
    let length = 1_000;
    let turn = |pass: &dyn Fn(&AtomicU64)| {
        let sum = AtomicU64::new(0);
        let watch = Stopwatch::start();
        for _ in 0..loops {
            pass(&sum);
        }
        let elapsed = watch.stop();
        sample(elapsed, loops, [sum.into_inner()])
    };
    let call = |index: usize, sum: &AtomicU64| {
        if index.is_multiple_of(100) {
            sum.fetch_add(black_box(index) as u64, Ordering::Relaxed);
        }
    };
    Case::new(
        "bulk/small",
        "2 000 loops of 1 000 indices with next to nothing to do, from outside.",
        METRICS,
    )
    .bowline(|| {
        turn(&|sum| {
            sync_wait(
                bowline
                    .scheduler()
                    .schedule()
                    .bulk(length, |index, ()| call(index, sum)),
            )
            .unwrap();
        })
    })
    .peer("rayon", || {
        turn(&|sum| rayon.install(|| (0..length).into_par_iter().for_each(|index| call(index, sum))))
    })
    .run(bench)
}

fn sample(elapsed: Elapsed, count: usize, results: impl IntoIterator<Item = u64>) -> Sample {
    Sample {
        values: vec![Some(elapsed.wall_each(count)), elapsed.cores()],
        check: results
            .into_iter()
            .fold(0, |sum, result| sum.rotate_left(1).wrapping_add(result)),
    }
}

/// A slice of which several threads write disjoint parts.
struct SharedSlice {
    pointer: *mut f32,
    length: usize,
}

// SAFETY: the `unsafe` functions that access a part require exclusive access to it.
unsafe impl Sync for SharedSlice {}

impl SharedSlice {
    fn new(slice: &mut [f32]) -> Self {
        SharedSlice {
            pointer: slice.as_mut_ptr(),
            length: slice.len(),
        }
    }

    /// # Safety
    ///
    /// The slice is valid, and the caller has exclusive access to the part while it is used.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that the parts are disjoint")]
    unsafe fn range(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: the range is inside the slice, and the caller has exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(range.start), range.len()) }
    }

    /// # Safety
    ///
    /// The slice is valid and has such an element. The caller has exclusive access to the element while it is used.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is the only one")]
    unsafe fn at(&self, index: usize) -> &mut f32 {
        debug_assert!(index < self.length);
        // SAFETY: the element is inside the slice, and the caller has exclusive access.
        unsafe { &mut *self.pointer.add(index) }
    }
}
