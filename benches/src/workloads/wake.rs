//! The time that a sleeping pool takes to run a job from another thread.

use std::thread;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use futures_lite::future;

use crate::clock::process_cpu;
use crate::harness::{Bench, Case, Metric, Sample, percentile};
use crate::pools::{self, AsyncExecutor};

const METRICS: &[Metric] = &[
    Metric::new("latency", "µs, median"),
    Metric::new("latency p99", "µs"),
    Metric::new("round trip", "µs, median"),
    Metric::new("cpu", "CPU µs per wake-up"),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let bowline = pools::bowline(config.threads);
    let tokio = pools::tokio(config.threads);
    let rayon = pools::rayon(config.threads);
    let smol = AsyncExecutor::new(config.threads);

    let times = config.size(300, 30);
    Case::new(
        "wake/idle",
        "One job for a pool that sleeps: until the job runs, and until the thread that waits for it has its result.",
        METRICS,
    )
    .bowline(|| {
        wakes(times, || {
            sync_wait(bowline.scheduler().schedule().then(|()| Instant::now())).unwrap()
        })
    })
    .peer("tokio", || {
        wakes(times, || {
            let task = tokio.spawn(async { Instant::now() });
            tokio.block_on(task).expect("the task ends")
        })
    })
    .shown("async-executor", || {
        wakes(times, || future::block_on(smol.spawn(async { Instant::now() })))
    })
    .shown("rayon", || wakes(times, || rayon.install(Instant::now)))
    .run(bench)?;
    Ok(())
}

/// Measures `run`, which runs one job on the pool and returns the time at which it ran.
fn wakes(times: usize, run: impl Fn() -> Instant) -> Sample {
    let mut latencies = Vec::with_capacity(times);
    let mut round_trips = Vec::with_capacity(times);
    let cpu = process_cpu();
    for _ in 0..times {
        // Longer than any of the pools searches for work.
        thread::sleep(Duration::from_micros(500));
        let begin = Instant::now();
        let ran = run();
        round_trips.push(micros(begin.elapsed()));
        latencies.push(micros(ran - begin));
    }
    let cpu = process_cpu()
        .zip(cpu)
        .map(|(now, then)| micros(now - then) / times as f64);
    Sample {
        values: vec![
            Some(percentile(&mut latencies, 0.5)),
            Some(percentile(&mut latencies, 0.99)),
            Some(percentile(&mut round_trips, 0.5)),
            cpu,
        ],
        check: latencies.len() as u64,
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
