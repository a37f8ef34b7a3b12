//! Children that sleep: the memory of one, and the time that it takes.
//!
//! Each turn of a contender is a process of its own, since an allocator keeps what another contender has freed.

use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, thread};

use bowline::prelude::*;
use bowline::task::{self, Task};
use tokio::task::JoinSet;

use super::work::scramble;
use crate::clock::Stopwatch;
use crate::harness::{Bench, Case, Config, Metric, Sample};
use crate::machine::resident;
use crate::pools;

const SLEEPERS: &[Metric] = &[
    Metric::new("memory", "bytes per child"),
    Metric::new("cpu", "CPU ns per child"),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let count = config.size(1_000_000, 10_000);
    Case::new(
        "groups/sleep",
        "A million children that sleep at once, from three seconds on, in no order: resident memory when all sleep.",
        SLEEPERS,
    )
    .most_rounds(3)
    .bowline(|| in_a_process(Contender::Bowline, count, config))
    .peer("tokio's JoinSet", || in_a_process(Contender::Tokio, count, config))
    .run(bench)
}

/// The library or its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    Bowline,
    Tokio,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Bowline => "bowline",
            Contender::Tokio => "tokio",
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Contender::Bowline, Contender::Tokio]
            .into_iter()
            .find(|contender| contender.name() == name)
            .ok_or_else(|| format!("{name} has no children that sleep"))
    }
}

/// The parameters of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleepers {
    pub contender: Contender,
    pub count: usize,
    pub threads: usize,
    /// The time until the first child wakes up, in milliseconds. All children sleep by then.
    pub lead: u64,
}

/// Runs the children in a process of their own, with a longer lead where a busy machine could not start them in time.
fn in_a_process(contender: Contender, count: usize, config: Config) -> Sample {
    let leads = [1, 3, 9].map(|factor| factor * config.size(3_000, 200));
    let mut values = Vec::new();
    for lead in leads {
        values = again(contender, [count, config.threads, lead]);
        if values.iter().all(Option::is_some) {
            break;
        }
    }
    Sample {
        values,
        check: count as u64,
    }
}

/// Runs this program again, as `sleepers`, and returns its two numbers.
fn again(contender: Contender, numbers: [usize; 3]) -> Vec<Option<f64>> {
    let program = env::current_exe().expect("this program has a path");
    let output = Command::new(program)
        .args(["sleepers", contender.name()])
        .args(numbers.map(|number| number.to_string()))
        .output()
        .expect("this program starts again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    vec![numbers.next().flatten(), numbers.next().flatten()]
}

impl Sleepers {
    /// Runs the children. Returns one line: the bytes and the nanoseconds of CPU time of one, or `-` for a value that
    /// was not measured.
    pub fn measure(self) -> String {
        // A small group before the memory is read: threads, timers and thread-local values exist by then.
        let warm_up = Sleepers {
            count: 100,
            lead: 20,
            ..self
        };
        let (memory, cpu) = match self.contender {
            Contender::Bowline => {
                let pool = pools::bowline(self.threads);
                warm_up.bowline(&pool);
                self.each(|| self.bowline(&pool))
            }
            Contender::Tokio => {
                let mut builder = tokio::runtime::Builder::new_multi_thread();
                builder.worker_threads(self.threads).enable_time();
                let runtime = builder.build().expect("tokio starts its workers");
                warm_up.tokio(&runtime);
                self.each(|| self.tokio(&runtime))
            }
        };
        let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| value.to_string());
        format!("{} {}", text(memory), text(cpu))
    }

    fn each(self, run: impl FnOnce() -> Option<f64>) -> (Option<f64>, Option<f64>) {
        let before = resident();
        let watch = Stopwatch::start();
        let asleep = run();
        let elapsed = watch.stop();
        let memory = asleep
            .zip(before)
            .map(|(asleep, before)| (asleep - before) / self.count as f64);
        (memory, elapsed.cpu_each(self.count))
    }

    /// The time at which a child wakes up: within a third of the lead after it.
    fn deadline(self, begin: Instant, index: usize) -> Instant {
        let lead = Duration::from_millis(self.lead);
        begin + lead + Duration::from_nanos(scramble(index as u64) % (lead.as_nanos() as u64 / 3))
    }

    /// Returns the memory of the process when all children sleep, or `None` if they did not begin in time.
    fn asleep(self, begin: Instant, begun: &AtomicUsize) -> Option<f64> {
        let lead = Duration::from_millis(self.lead);
        while begun.load(Relaxed) < self.count {
            if begin.elapsed() >= lead {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
        // The last children have counted themselves, but may not sleep yet.
        thread::sleep(Duration::from_millis(5));
        resident().filter(|_| begin.elapsed() < lead)
    }

    pub(super) fn bowline(self, pool: &bowline::scheduler::ThreadPool) -> Option<f64> {
        let begin = Instant::now();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = begun.clone();
        let children = Task::new(async move {
            task::group(async move |group| {
                for index in 0..self.count {
                    let (count, deadline) = (count.clone(), self.deadline(begin, index));
                    group.spawn(async move {
                        count.fetch_add(1, Relaxed);
                        task::sleep_until(deadline).await;
                    });
                }
                while group.next().await.is_some() {}
            })
            .await;
        });
        thread::scope(|scope| {
            let all = scope.spawn(|| sync_wait(starts_on(pool.scheduler(), children)).unwrap());
            let asleep = self.asleep(begin, &begun);
            all.join().expect("the children end");
            asleep
        })
    }

    fn tokio(self, runtime: &tokio::runtime::Runtime) -> Option<f64> {
        let begin = Instant::now();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = begun.clone();
        let all = runtime.spawn(async move {
            let mut set = JoinSet::new();
            for index in 0..self.count {
                let (count, deadline) = (count.clone(), self.deadline(begin, index));
                set.spawn(async move {
                    count.fetch_add(1, Relaxed);
                    tokio::time::sleep_until(deadline.into()).await;
                });
            }
            while set.join_next().await.is_some() {}
        });
        let asleep = self.asleep(begin, &begun);
        runtime.block_on(all).expect("the children end");
        asleep
    }
}
