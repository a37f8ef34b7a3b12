//! The newest job of a worker of a `ThreadPool`, which the worker keeps for itself: it runs elsewhere if the worker does not get
//! to it, and is raised wherever it is.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use crate::thread_pool_children::with_pools;
use bowline::prelude::*;
use bowline::scheduler::PoolScheduler;
use bowline::task::{self, SpawnOptions};

const ROUNDS: usize = 500;

/// Queues a job that queues another one and waits for it, in a way that the pool does not know of; and so on.
fn chain(scheduler: PoolScheduler, depth: usize, ended: mpsc::Sender<()>) {
    execute(scheduler, move || {
        if depth != 0 {
            let (inner, inner_ended) = mpsc::channel();
            chain(scheduler, depth - 1, inner);
            inner_ended.recv().unwrap();
        }
        ended.send(()).unwrap();
    });
}

#[test]
fn a_job_whose_worker_blocks_in_its_own_way_runs_elsewhere() {
    let watchdog = Watchdog::new(Duration::from_secs(120));
    for workers in [2, 3, 4] {
        with_pools(workers, |pool| {
            let scheduler = pool.scheduler();
            for round in 0..ROUNDS {
                watchdog.step(format!("round {round} on {workers} workers"));
                // Others come from outside meanwhile, so that workers search, find, and go to sleep again.
                let (other, others_ended) = mpsc::channel();
                for _ in 0..round % 4 {
                    let other = other.clone();
                    execute(scheduler, move || other.send(()).unwrap());
                }
                drop(other);
                let (ended, has_ended) = mpsc::channel();
                chain(scheduler, workers - 1, ended);
                has_ended.recv().unwrap();
                assert_eq!(others_ended.iter().count(), round % 4);
            }
        });
    }
}

#[test]
fn tasks_that_hop_are_raised_wherever_they_are() {
    const HOPS: usize = 50;
    for workers in [1, 2] {
        with_pools(workers, |pool| {
            let scheduler = pool.scheduler();
            let hops = Arc::new(AtomicUsize::new(0));
            let tasks: Vec<_> = (0..ROUNDS)
                .map(|_| {
                    let hops = hops.clone();
                    task::detach_with(SpawnOptions::new().scheduler(scheduler), async move {
                        for _ in 0..HOPS {
                            scheduler.schedule().await;
                            hops.fetch_add(1, SeqCst);
                        }
                    })
                })
                .collect();
            for (number, task) in tasks.iter().enumerate() {
                let level = [Priority::UserInitiated, Priority::UserInteractive][number % 2];
                task.raise(level);
            }
            for task in tasks {
                task::block_on(task).unwrap();
            }
            assert_eq!(hops.load(SeqCst), ROUNDS * HOPS);
        });
    }
}
