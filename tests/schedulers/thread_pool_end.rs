//! The end of a `ThreadPool`: every accepted job runs exactly once, and all threads end.

use std::convert::Infallible;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{PoolSchedule, PoolScheduler, ThreadPool};
use bowline::{EmptyEnv, Operation, Panic, Transfer};

/// Smaller where everything is slower.
const MANY: usize = if cfg!(sanitized) { 300 } else { 3_000 };

/// Waits for threads that are about to end.
fn until_gone(census: &Census) {
    while census.alive() > 0 {
        thread::yield_now();
    }
}

/// Returns a number of workers that no other test here uses, so that no other pool takes the memory: this one, or another one if the
/// machine has as many processors.
fn unusual(workers: usize) -> usize {
    let machine = thread::available_parallelism().map_or(1, Into::into);
    workers + 10 * usize::from(workers == machine)
}

/// Returns the address of a scheduler's pool.
fn memory(scheduler: PoolScheduler) -> String {
    let text = format!("{scheduler:?}");
    text[..text.find('.').unwrap()].to_owned()
}

fn count(ran: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let ran = ran.clone();
    move || {
        ran.fetch_add(1, SeqCst);
    }
}

#[test]
fn an_idle_pool_ends_at_once() {
    let census = Census::new();
    for workers in [1, 2, 9] {
        let pool = census_pool(workers, &census);
        assert_eq!(census.alive(), workers);
        drop(pool);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn what_was_accepted_runs_before_the_drop_returns() {
    let census = Census::new();
    for workers in [1, 3] {
        let pool = census_pool(workers, &census);
        let ran = Arc::new(AtomicUsize::new(0));
        let held = hold(pool.scheduler());
        for n in 0..MANY {
            let scheduler = pool.scheduler().with_priority(Priority::ALL[n % 5]);
            execute(scheduler, count(&ran));
        }
        thread::scope(|scope| {
            scope.spawn(|| drop(pool));
            // Usually while the pool is already being dropped.
            drop(held);
        });
        assert_eq!(ran.load(SeqCst), MANY);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn what_comes_of_it_runs_too_at_every_priority() {
    /// Queues a chain of jobs, each at the next level.
    fn chain(scheduler: PoolScheduler, left: usize, ran: Arc<AtomicUsize>) {
        if left > 0 {
            execute(scheduler.with_priority(Priority::ALL[left % 5]), move || {
                ran.fetch_add(1, SeqCst);
                chain(scheduler, left - 1, ran);
            });
        }
    }
    for workers in [1, 4] {
        let census = Census::new();
        let pool = census_pool(workers, &census);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..4 {
            chain(pool.scheduler(), MANY, ran.clone());
        }
        drop(pool);
        assert_eq!(ran.load(SeqCst), 4 * MANY);
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_job_that_waits_keeps_the_pool_until_it_is_done() {
    let census = Census::new();
    let pool = census_pool(2, &census);
    let (sent, received) = mpsc::channel::<()>();
    let ran = Arc::new(AtomicUsize::new(0));
    let (scheduler, counts) = (pool.scheduler(), count(&ran));
    let (arrived, arrives) = mpsc::channel();
    execute(scheduler, move || {
        // The wait ends only after the drop has begun, and then needs the pool once more.
        let outside = from_future(async move { arrived.send(()).unwrap() });
        sync_wait(starts_on(scheduler, outside)).unwrap();
        received.recv().unwrap();
        sync_wait(when_all([scheduler.schedule(); 10])).unwrap();
        counts();
    });
    arrives.recv().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(pool));
        sent.send(()).unwrap();
    });
    assert_eq!(ran.load(SeqCst), 1);
    assert_eq!(census.alive(), 0);
}

#[test]
fn scheduling_from_outside_while_it_ends_loses_nothing() {
    for round in 0..MANY / 30 {
        let pool = ThreadPool::new(1 + round % 3);
        let scheduler = pool.scheduler();
        let ran = Arc::new(AtomicUsize::new(0));
        let barrier = Barrier::new(3);
        thread::scope(|scope| {
            for producer in 0..2 {
                let (ran, barrier) = (ran.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for n in 0..20 {
                        execute(scheduler.with_priority(Priority::ALL[(n + producer) % 5]), count(&ran));
                    }
                    // It runs, here or on the global pool.
                    sync_wait(scheduler.schedule()).unwrap();
                });
            }
            barrier.wait();
            drop(pool);
        });
        while ran.load(SeqCst) < 40 {
            thread::yield_now();
        }
        assert_eq!(ran.load(SeqCst), 40);
    }
}

#[test]
fn a_worker_drops_its_own_pool() {
    for workers in [1, 3] {
        let census = Census::new();
        let ran = Arc::new(AtomicUsize::new(0));
        let pool = census_pool(workers, &census);
        let scheduler = pool.scheduler();
        let (sent, received) = mpsc::channel::<ThreadPool>();
        let (after, counts) = (count(&ran), count(&ran));
        execute(scheduler, move || {
            drop(received.recv().unwrap());
            // It does not wait for itself, and the pool still works.
            sync_wait(scheduler.schedule()).unwrap();
            execute(scheduler, after);
            for priority in Priority::ALL {
                execute(scheduler.with_priority(priority), || ());
            }
            counts();
        });
        (0..MANY).for_each(|_| execute(scheduler, count(&ran)));
        sent.send(pool).unwrap();
        until_gone(&census);
        assert_eq!(ran.load(SeqCst), MANY + 2);
    }
}

#[test]
fn a_worker_of_another_pool_drops_it_and_both_need_each_other() {
    for workers in [1, 2] {
        let census = Census::new();
        let (pool, other) = (census_pool(1, &census), ThreadPool::new(workers));
        let ran = Arc::new(AtomicUsize::new(0));
        let (there, counts) = (other.scheduler(), count(&ran));
        let held = hold(pool.scheduler());
        // The last jobs of the dropped pool need the worker that drops it.
        execute(pool.scheduler(), move || {
            sync_wait(when_all([there.schedule(); 20])).unwrap();
            counts();
        });
        let (alive, pool) = (census.clone(), pool);
        other.install(move || {
            drop(held);
            drop(pool);
            assert_eq!(alive.alive(), 0);
        });
        assert_eq!(ran.load(SeqCst), 1);
    }
}

#[test]
fn a_worker_that_drops_a_pool_does_not_wait_for_the_next_one_in_its_memory() {
    let workers = unusual(11);
    let census = Census::new();
    let (pool, other) = (census_pool(workers, &census), ThreadPool::new(1));
    let (old, held) = (pool.scheduler(), hold(pool.scheduler()));
    let (sent, received) = mpsc::channel();
    let scheduler = other.scheduler();
    other.install(move || {
        // Runs while the drop waits, and returns when a new pool is at the old one's address.
        execute(scheduler, move || {
            drop(held);
            until_gone(&census);
            let next = ThreadPool::new(workers);
            assert_eq!(memory(next.scheduler()), memory(old));
            sent.send(next).unwrap();
        });
        drop(pool);
    });
    assert_eq!(received.recv().unwrap().install(|| 7), 7);
}

// Schedulers that outlive their pool.

#[test]
fn work_for_a_pool_that_has_ended_runs_on_the_global_one() {
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    drop(pool);
    for priority in Priority::ALL {
        let work = scheduler.with_priority(priority).schedule();
        assert!(
            sync_wait(work.then(|()| ThreadPool::global().worker_index()))
                .unwrap()
                .is_some()
        );
    }
    assert_eq!(sync_wait(starts_on(scheduler, just(7)).on(scheduler)).unwrap(), 7);
}

#[test]
fn a_scheduler_of_an_ended_pool_is_not_that_of_the_next_one_in_its_memory() {
    let workers = unusual(13);
    let pool = ThreadPool::new(workers);
    let old = pool.scheduler();
    drop(pool);
    let pool = ThreadPool::new(workers);
    let new = pool.scheduler();
    // A precondition of the test.
    assert_eq!(memory(old), memory(new));
    assert_ne!(old, new);
    let place = || {
        (
            pool.worker_index().is_some(),
            ThreadPool::global().worker_index().is_some(),
        )
    };
    for priority in Priority::ALL {
        let old = old.with_priority(priority);
        let from_outside = sync_wait(old.schedule().then(|()| place())).unwrap();
        assert_eq!(from_outside, (false, true));
        let from_inside = pool.install(|| sync_wait(old.schedule().then(|()| place())).unwrap());
        assert_eq!(from_inside, (false, true));
    }
    assert_eq!(sync_wait(new.schedule().then(|()| place())).unwrap(), (true, false));
}

// Raising what a pool that has ended passed on.

struct Tell(mpsc::Sender<bool>);

impl Receiver<(), Infallible> for Tell {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, (): ()) -> Transfer {
        self.0.send(ThreadPool::global().worker_index().is_some()).unwrap();
        Transfer::none()
    }

    fn set_error(self, error: Infallible) -> Transfer {
        match error {}
    }

    fn set_stopped(self) -> Transfer {
        panic!("it was not stopped")
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        payload.resume()
    }
}

#[test]
fn what_the_global_pool_took_over_is_raised_there() {
    type Queued = <PoolSchedule as Sender>::Operation<Tell>;
    // Fewer workers than the global pool may have, so that an index of a worker there is invalid here.
    let pool = ThreadPool::new(1);
    let scheduler = pool.scheduler();
    drop(pool);
    let global = ThreadPool::global();
    for inside in [false, true] {
        for round in 0..MANY / 10 {
            let (sent, received) = mpsc::channel();
            let operations: Vec<_> = (0..10)
                .map(|_| NonNull::from(Box::leak(Box::new(scheduler.schedule().connect(Tell(sent.clone()))))))
                .map(Shared::<Queued>)
                .collect();
            let start_and_raise = || {
                for operation in &operations {
                    // SAFETY: the operation does not move until it is freed below, and is started once.
                    unsafe { std::pin::Pin::new_unchecked(&mut *operation.0.as_ptr()).start() }.run();
                }
                for (n, operation) in operations.iter().enumerate() {
                    // SAFETY: the operation was started, and is not freed yet.
                    unsafe { Operation::raise(operation.0, Priority::ALL[(n + round) % 2]) };
                }
            };
            if inside {
                global.install(start_and_raise);
            } else {
                start_and_raise();
            }
            for _ in 0..10 {
                assert!(received.recv().unwrap());
            }
            drop(sent);
            assert!(received.recv().is_err(), "one ran twice");
            for operation in operations {
                // SAFETY: the operation has completed, and no thread raises it any longer.
                drop(unsafe { Box::from_raw(operation.0.as_ptr()) });
            }
        }
    }
}

struct Shared<T>(NonNull<T>);

// SAFETY: an operation may be started and raised on any thread.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Shared<T> {}
