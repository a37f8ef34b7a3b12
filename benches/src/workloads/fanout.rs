//! Many jobs, all pushed by one worker: how well other workers share them.

use std::hint::black_box;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use futures_lite::future;

use super::work::compute;
use crate::clock::{Elapsed, Stopwatch};
use crate::harness::{Bench, Case, Metric, Sample};
use crate::pools::{self, AsyncExecutor};

const METRICS: &[Metric] = &[Metric::new("time", "ns per job"), Metric::new("cores", "CPU/wall")];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let config = bench.config;
    let coarse = Jobs {
        count: config.size(4_000, 200),
        steps: 12_000,
    };
    let about = "A job on the pool starts 4 000 jobs that compute for about 20 µs each, and waits for them.";
    coarse.compare("fanout/coarse", about, bench)?;

    let fine = Jobs {
        count: config.size(100_000, 5_000),
        steps: 300,
    };
    let about = "The same with 100 000 jobs of about half a microsecond.";
    fine.compare("fanout/fine", about, bench)
}

#[derive(Clone, Copy)]
struct Jobs {
    count: usize,
    steps: u64,
}

impl Jobs {
    fn compare(self, name: &'static str, about: &'static str, bench: &mut Bench) -> Result<(), String> {
        let config = bench.config;
        let bowline = pools::bowline(config.threads);
        let tokio = pools::tokio(config.threads);
        let rayon = pools::rayon(config.threads);
        let smol = AsyncExecutor::new(config.threads);
        Case::new(name, about, METRICS)
            .bowline(|| self.bowline(&bowline))
            .peer("rayon", || self.rayon(&rayon))
            .shown("tokio", || self.tokio(&tokio))
            .shown("async-executor", || self.smol(&smol))
            .shown("one thread", || self.one_thread())
            .run(bench)
    }

    fn sample(self, elapsed: Elapsed, results: impl IntoIterator<Item = u64>) -> Sample {
        Sample {
            values: vec![Some(elapsed.wall_each(self.count)), elapsed.cores()],
            check: results.into_iter().fold(0, u64::wrapping_add),
        }
    }

    fn job(self, index: usize) -> u64 {
        compute(index as u64, self.steps)
    }

    fn bowline(self, pool: &ThreadPool) -> Sample {
        let scheduler = pool.scheduler();
        let watch = Stopwatch::start();
        let jobs = (0..self.count).map(|index| scheduler.schedule().then(move |()| self.job(index)));
        let results = sync_wait(starts_on(scheduler, when_all_iter(jobs))).unwrap();
        let elapsed = watch.stop();
        self.sample(elapsed, results)
    }

    fn rayon(self, pool: &rayon::ThreadPool) -> Sample {
        let watch = Stopwatch::start();
        let mut results = vec![0; self.count];
        pool.scope(|scope| {
            for (index, result) in results.iter_mut().enumerate() {
                scope.spawn(move |_| *result = self.job(index));
            }
        });
        let elapsed = watch.stop();
        self.sample(elapsed, results)
    }

    fn tokio(self, runtime: &tokio::runtime::Runtime) -> Sample {
        let watch = Stopwatch::start();
        let all = runtime.spawn(async move {
            let jobs: Vec<_> = (0..self.count)
                .map(|index| tokio::spawn(async move { self.job(index) }))
                .collect();
            let mut results = Vec::with_capacity(self.count);
            for job in jobs {
                results.push(job.await.expect("the job ends"));
            }
            results
        });
        let results = runtime.block_on(all).expect("the jobs end");
        let elapsed = watch.stop();
        self.sample(elapsed, results)
    }

    fn smol(self, executor: &AsyncExecutor) -> Sample {
        let watch = Stopwatch::start();
        let spawner = executor.spawner();
        let all = executor.spawn(async move {
            let jobs: Vec<_> = (0..self.count)
                .map(|index| spawner.spawn(async move { self.job(index) }))
                .collect();
            let mut results = Vec::with_capacity(self.count);
            for job in jobs {
                results.push(job.await);
            }
            results
        });
        let results = future::block_on(all);
        let elapsed = watch.stop();
        self.sample(elapsed, results)
    }

    fn one_thread(self) -> Sample {
        let watch = Stopwatch::start();
        let results: Vec<u64> = (0..self.count).map(|index| black_box(self.job(index))).collect();
        let elapsed = watch.stop();
        self.sample(elapsed, results)
    }
}
