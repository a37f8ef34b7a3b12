//! The CPU time of a pool that has become idle.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use bowline::prelude::*;
use bowline::scheduler::Timer;
use futures_lite::future;

use crate::clock::Others;
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools::{self, AsyncExecutor};

const METRICS: &[Metric] = &[
    Metric::new("cpu", "CPU µs per second"),
    Metric::new("runs", "times a worker ran per second"),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let time = Duration::from_millis(config.size(1000, 50) as u64);
    // Each pool lives only during its own turn, so that only its workers are counted.
    Case::new(
        "idle/pool",
        "A pool that has run a job, for a second, without work.",
        METRICS,
    )
    .most_rounds(3)
    .bowline(|| {
        let pool = pools::bowline(config.threads);
        idle(time, || {
            sync_wait(pool.scheduler().schedule().then(|()| black_box(1))).unwrap()
        })
    })
    .peer("tokio", || {
        let runtime = pools::tokio(config.threads);
        idle(time, || {
            runtime
                .block_on(runtime.spawn(async { black_box(1) }))
                .expect("the task ends")
        })
    })
    .shown("rayon", || {
        let pool = pools::rayon(config.threads);
        idle(time, || pool.install(|| black_box(1)))
    })
    .shown("async-executor", || {
        let executor = AsyncExecutor::new(config.threads);
        idle(time, || future::block_on(executor.spawn(async { black_box(1) })))
    })
    .shown("bowline, a timer", || {
        let timer = Timer::new();
        idle(time, || {
            sync_wait(timer.schedule_after(Duration::ZERO).then(|()| black_box(1))).unwrap()
        })
    })
    .run(bench)?;
    Ok(())
}

fn idle(time: Duration, work: impl FnOnce() -> u64) -> Sample {
    let check = work();
    // Waits until the pool has stopped searching for work.
    thread::sleep(Duration::from_millis(20));
    let before = Others::now();
    thread::sleep(time);
    let passed = Others::now().zip(before).map(|(now, then)| Others {
        cpu: now.cpu.saturating_sub(then.cpu),
        runs: now.runs.saturating_sub(then.runs),
    });
    let seconds = time.as_secs_f64();
    Sample {
        values: vec![
            passed.map(|passed| passed.cpu.as_secs_f64() * 1e6 / seconds),
            passed.map(|passed| passed.runs as f64 / seconds),
        ],
        check,
    }
}
