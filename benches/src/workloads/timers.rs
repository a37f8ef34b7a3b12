//! Very many timers at once: their cost and their lateness.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::{RunLoop, Timer};

use super::work::scramble;
use crate::clock::Stopwatch;
use crate::harness::{Bench, Case, Metric, Sample, percentile};

pub(super) const METRICS: &[Metric] = &[
    Metric::new("cpu", "CPU ns per timer"),
    Metric::new("late p50", "µs"),
    Metric::new("late p99", "µs"),
    Metric::new("late max", "µs"),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let hundred_thousand = Timers {
        count: config.size(100_000, 2_000),
        lead: Duration::from_millis(config.size(200, 20) as u64),
        window: Duration::from_millis(config.size(100, 20) as u64),
    };
    let about = "100 000 timers, the first due in 200 ms, the rest within 100 ms of it, in no order.";
    hundred_thousand.compare("timers/100k", about, usize::MAX, bench)?;

    let spread = Timers {
        window: Duration::from_millis(config.size(1000, 50) as u64),
        ..hundred_thousand
    };
    let about = "The same, within a second: one every 10 µs.";
    spread.compare("timers/100k-spread", about, 5, bench)?;

    let million = Timers {
        count: config.size(1_000_000, 20_000),
        lead: Duration::from_millis(config.size(2000, 100) as u64),
        window: Duration::from_millis(config.size(1000, 20) as u64),
    };
    let about = "A million timers, the first due in two seconds, the rest within a second of it.";
    million.compare("timers/1M", about, 3, bench)?;
    Ok(())
}

#[derive(Clone, Copy)]
pub(super) struct Timers {
    pub(super) count: usize,
    /// The time until the first timer is due. All are started by then.
    pub(super) lead: Duration,
    /// The time between the first and the last deadline.
    pub(super) window: Duration,
}

impl Timers {
    fn compare(
        self,
        name: &'static str,
        about: &'static str,
        most_rounds: usize,
        bench: &mut Bench,
    ) -> Result<(), String> {
        let timer = Timer::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("tokio starts");
        Case::new(name, about, METRICS)
            .most_rounds(most_rounds)
            .bowline(|| self.bowline(&timer))
            .peer("tokio", || self.tokio(&runtime))
            .shown("bowline, on a run loop", || self.bowline_on_a_run_loop())
            .run(bench)
    }

    fn deadline(&self, begin: Instant, index: usize) -> Instant {
        let window = self.window.as_nanos() as u64;
        begin + self.lead + Duration::from_nanos(scramble(index as u64) % window)
    }

    /// Calls `run` with the time of the first deadline. `run` returns the lateness of each timer.
    fn measure(self, run: impl FnOnce(Instant) -> Vec<Option<Duration>>) -> Sample {
        let watch = Stopwatch::start();
        let late = run(Instant::now());
        let elapsed = watch.stop();
        let late: Option<Vec<Duration>> = late.into_iter().collect();
        let late = late.expect("no timer is early");
        let mut late: Vec<f64> = late.into_iter().map(|late| late.as_secs_f64() * 1e6).collect();
        Sample {
            values: vec![
                elapsed.cpu_each(self.count),
                Some(percentile(&mut late, 0.5)),
                Some(percentile(&mut late, 0.99)),
                Some(percentile(&mut late, 1.0)),
            ],
            check: late.len() as u64,
        }
    }

    /// Runs the timers on a thread of their own.
    pub(super) fn bowline(self, timer: &Timer) -> Sample {
        self.measure(|begin| sync_wait(when_all_iter(self.timers(timer, begin))).unwrap())
    }

    /// Runs the timers on the waiting thread.
    pub(super) fn bowline_on_a_run_loop(self) -> Sample {
        let run_loop = RunLoop::new();
        let timer = Timer::on(&run_loop);
        self.measure(|begin| run_loop.run_until(when_all_iter(self.timers(&timer, begin))).unwrap())
    }

    fn timers(
        self,
        timer: &Timer,
        begin: Instant,
    ) -> impl Iterator<Item = impl Sender<Value = Option<Duration>, Error = Infallible>> {
        (0..self.count).map(move |index| {
            let deadline = self.deadline(begin, index);
            timer.schedule_at(deadline).then(move |()| lateness(deadline))
        })
    }

    pub(super) fn tokio(self, runtime: &tokio::runtime::Runtime) -> Sample {
        self.measure(|begin| {
            runtime.block_on(async {
                let start = |index| {
                    let deadline = self.deadline(begin, index);
                    tokio::spawn(async move {
                        tokio::time::sleep_until(deadline.into()).await;
                        lateness(deadline)
                    })
                };
                let timers: Vec<_> = (0..self.count).map(start).collect();
                let mut late = Vec::with_capacity(self.count);
                for timer in timers {
                    late.push(timer.await.expect("the timer ends"));
                }
                late
            })
        })
    }
}

/// Returns the lateness, or `None` if the timer is early.
fn lateness(deadline: Instant) -> Option<Duration> {
    Instant::now().checked_duration_since(deadline)
}
