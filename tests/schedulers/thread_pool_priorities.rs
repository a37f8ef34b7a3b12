//! Priorities on a `ThreadPool`: higher first, the lowest never starved, raised while queued.

use std::convert::Infallible;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};

use crate::common::*;
use Priority::{Background, Default, UserInitiated, UserInteractive, Utility};
use bowline::prelude::*;
use bowline::scheduler::{PoolSchedule, PoolScheduler, ThreadPool};
use bowline::{EmptyEnv, Operation, Panic, Transfer};

// Higher first.

#[test]
fn higher_levels_go_first_and_each_is_first_in_first_out() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let held = hold(pool.scheduler());
    for round in 0..4 {
        for (nth, priority) in [Default, Background, UserInteractive, Utility, UserInitiated]
            .into_iter()
            .enumerate()
        {
            let name = priority as usize * 100 + round * 10 + nth;
            execute(pool.scheduler().with_priority(priority), note(&order, name));
        }
    }
    drop(held);
    drop(pool);
    let expected = [(4, 2), (3, 4), (2, 0), (1, 3), (0, 1)];
    let expected = expected.map(|(level, nth)| [0, 1, 2, 3].map(|round| level * 100 + round * 10 + nth));
    assert_eq!(taken(order), expected.concat());
}

#[test]
fn what_a_worker_queues_itself_is_ordered_too() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    pool.install(|| {
        for (n, priority) in [Background, Utility, UserInitiated, UserInteractive]
            .into_iter()
            .enumerate()
        {
            execute(pool.scheduler().with_priority(priority), note(&order, n));
        }
        execute(pool.scheduler(), note(&order, 4));
        execute(pool.scheduler().with_priority(Default), note(&order, 5));
    });
    drop(pool);
    assert_eq!(taken(order), [3, 2, 5, 4, 1, 0]);
}

#[test]
fn low_work_waits_for_what_can_be_stolen() {
    // One worker has jobs of the default level in its own queue and does not get to them; the other finds those first.
    let pool = ThreadPool::new(2);
    let order = Order::default();
    let held = hold(pool.scheduler());
    let (sent, received) = mpsc::channel::<()>();
    let (arrived, arrives) = mpsc::channel();
    let scheduler = pool.scheduler();
    let jobs = [0, 1, 2].map(|n| note(&order, n));
    execute(scheduler, move || {
        jobs.into_iter().for_each(|job| execute(scheduler, job));
        arrived.send(()).unwrap();
        received.recv().unwrap();
    });
    arrives.recv().unwrap();
    execute(scheduler.with_priority(Background), note(&order, 9));
    drop(held);
    // Only the other worker runs until then.
    while lock(&order).len() < 3 {
        thread::yield_now();
    }
    sent.send(()).unwrap();
    drop(pool);
    let order = taken(order);
    let at = |n| order.iter().position(|&other| other == n).unwrap();
    assert!(at(0) < at(9) && at(1) < at(9), "{order:?}");
}

#[test]
fn the_priority_comes_from_the_environment_unless_the_scheduler_has_one() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let held = hold(pool.scheduler());
    let queue = |scheduler: PoolScheduler, env: Option<Priority>, n| {
        let work = scheduler.schedule().then({
            let note = note(&order, n);
            |()| note()
        });
        match env {
            Some(priority) => start_detached(work.write_env(With(priority))),
            None => start_detached(work),
        }
    };
    let plain = pool.scheduler();
    queue(plain.with_priority(Background), Some(UserInteractive), 0);
    queue(plain, Some(Utility), 1);
    queue(plain, None, 2);
    queue(plain.with_priority(UserInteractive), Some(Background), 3);
    queue(plain, Some(UserInitiated), 4);
    drop(held);
    drop(pool);
    assert_eq!(taken(order), [3, 4, 2, 1, 0]);
}

// The lowest is never starved.

/// Jobs that requeue themselves until stopped, and a count of the jobs run.
struct Endless {
    ran: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl Endless {
    fn new() -> Self {
        Endless {
            ran: Arc::default(),
            stopped: Arc::default(),
        }
    }

    /// Starts one more job that requeues itself at this level.
    fn start(&self, scheduler: PoolScheduler) {
        let (ran, stopped) = (self.ran.clone(), self.stopped.clone());
        start_detached(scheduler.schedule().repeat_until(move |()| {
            ran.fetch_add(1, SeqCst);
            stopped.load(SeqCst)
        }));
    }

    /// Returns a function that reports after how many jobs it ran. The last of `count` calls stops everything.
    fn probe(&self, count: usize) -> (impl Fn() + Clone + Send + 'static, mpsc::Receiver<usize>) {
        let (ran, stopped) = (self.ran.clone(), self.stopped.clone());
        let left = Arc::new(AtomicUsize::new(count));
        let (sent, received) = mpsc::channel();
        let probe = move || {
            if left.fetch_sub(1, SeqCst) == 1 {
                stopped.store(true, SeqCst);
            }
            sent.send(ran.load(SeqCst)).unwrap();
        };
        (probe, received)
    }
}

#[test]
fn no_level_is_starved_by_endless_work_at_others() {
    for level in Priority::ALL {
        let pool = ThreadPool::new(1);
        let (endless, held) = (Endless::new(), hold(pool.scheduler()));
        let scheduler = pool.scheduler();
        for priority in Priority::ALL.into_iter().filter(|priority| *priority != level) {
            (0..3).for_each(|_| endless.start(scheduler.with_priority(priority)));
        }
        let (probe, ran) = endless.probe(1);
        execute(scheduler.with_priority(level), probe);
        drop(held);
        let ran = ran.recv().unwrap();
        assert!(ran < ThreadPool::FAIRNESS, "{level:?} waited for {ran} jobs");
    }
}

#[test]
fn the_lowest_runs_again_and_again_beside_endless_urgent_work() {
    let pool = ThreadPool::new(1);
    let (endless, held) = (Endless::new(), hold(pool.scheduler()));
    for priority in [UserInteractive, UserInteractive, UserInitiated, Default, Default] {
        endless.start(pool.scheduler().with_priority(priority));
    }
    let (probe, ran) = endless.probe(20);
    let low = pool.scheduler().with_priority(Background);
    (0..20).for_each(|_| execute(low, probe.clone()));
    drop(probe);
    drop(held);
    drop(pool);
    let mut before = 0;
    for ran in ran {
        assert!(
            ran - before <= ThreadPool::FAIRNESS,
            "{} jobs between two",
            ran - before
        );
        before = ran;
    }
}

#[test]
fn what_came_from_outside_is_not_starved_by_what_a_worker_keeps_to_itself() {
    // A single hopping job stays in the worker's slot; several go through its ring.
    for hoppers in [1, 2, 5] {
        let pool = ThreadPool::new(1);
        let held = hold(pool.scheduler());
        let endless = Arc::new(Endless::new());
        let (scheduler, inside) = (pool.scheduler(), endless.clone());
        execute(scheduler, move || (0..hoppers).for_each(|_| inside.start(scheduler)));
        let (probe, ran) = endless.probe(1);
        execute(scheduler, probe);
        drop(held);
        let ran = ran.recv().unwrap();
        assert!(ran < ThreadPool::FAIRNESS, "it waited for {ran} jobs");
        assert!(ran > 0 || hoppers == 0, "it did not wait at all");
    }
}

#[test]
fn what_a_worker_keeps_is_not_starved_by_endless_urgent_work() {
    let pool = ThreadPool::new(1);
    let held = hold(pool.scheduler());
    let endless = Arc::new(Endless::new());
    let (scheduler, inside) = (pool.scheduler(), endless.clone());
    let (probe, ran) = endless.probe(2);
    execute(scheduler, move || {
        // The first goes into the ring, the second into the slot.
        execute(scheduler, probe.clone());
        execute(scheduler, probe);
        (0..2).for_each(|_| inside.start(scheduler.with_priority(UserInteractive)));
    });
    drop(held);
    let (first, second) = (ran.recv().unwrap(), ran.recv().unwrap());
    assert!(first <= ThreadPool::FAIRNESS, "the ring waited for {first} jobs");
    assert!(
        second - first <= ThreadPool::FAIRNESS,
        "the slot for {} more",
        second - first
    );
}

#[test]
fn the_slot_does_not_starve_the_ring() {
    let pool = ThreadPool::new(1);
    let held = hold(pool.scheduler());
    let endless = Arc::new(Endless::new());
    let (scheduler, inside) = (pool.scheduler(), endless.clone());
    let (probe, ran) = endless.probe(1);
    execute(scheduler, move || {
        execute(scheduler, probe);
        inside.start(scheduler);
    });
    drop(held);
    // Sooner than by turns: a single hopping job yields after four hops.
    assert!(ran.recv().unwrap() <= 4);
}

#[test]
fn a_worker_that_waits_starves_nothing_either() {
    let pool = ThreadPool::new(1);
    let endless = Endless::new();
    let scheduler = pool.scheduler();
    let ran = pool.install(|| {
        (0..2).for_each(|_| endless.start(scheduler.with_priority(UserInteractive)));
        (0..2).for_each(|_| endless.start(scheduler));
        let (probe, ran) = endless.probe(1);
        let low = scheduler.with_priority(Background);
        sync_wait(low.schedule().then(|()| probe())).unwrap();
        ran.recv().unwrap()
    });
    assert!(ran <= ThreadPool::FAIRNESS, "it waited for {ran} jobs");
}

// Raised while queued.

/// A receiver that counts, records its number, and may call a function at its completion.
struct Noting {
    n: usize,
    order: Order,
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

impl Receiver<(), Infallible> for Noting {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, (): ()) -> Transfer {
        if let Some(meanwhile) = self.meanwhile {
            meanwhile();
        }
        lock(&self.order).push(self.n);
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

/// An operation that is started and raised by hand. When this is dropped, it must have completed, and no thread may raise it.
struct Queued(NonNull<<PoolSchedule as Sender>::Operation<Noting>>);

// SAFETY: an operation may be started and raised on any thread.
unsafe impl Send for Queued {}
// SAFETY: as for `Send`.
unsafe impl Sync for Queued {}

impl Queued {
    fn new(scheduler: PoolScheduler, n: usize, order: &Order) -> Self {
        Queued::with(scheduler, n, order, None)
    }

    fn with(scheduler: PoolScheduler, n: usize, order: &Order, meanwhile: Option<Box<dyn FnOnce() + Send>>) -> Self {
        let order = order.clone();
        let operation = scheduler.schedule().connect(Noting { n, order, meanwhile });
        Queued(NonNull::from(Box::leak(Box::new(operation))))
    }

    /// Starts the operation. Called once.
    fn start(&self) {
        // SAFETY: the operation does not move until this is dropped.
        unsafe { Pin::new_unchecked(&mut *self.0.as_ptr()).start() }.run();
    }

    fn raise(&self, priority: Priority) {
        // SAFETY: the tests raise only started operations.
        unsafe { Operation::raise(self.0, priority) };
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // SAFETY: the tests drop it only after it has completed.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn queued(scheduler: PoolScheduler, count: usize, order: &Order) -> Vec<Queued> {
    (0..count).map(|n| Queued::new(scheduler, n, order)).collect()
}

#[test]
fn what_waits_in_the_injector_moves_up() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let held = hold(pool.scheduler());
    let jobs = queued(pool.scheduler().with_priority(Background), 8, &order);
    jobs.iter().for_each(Queued::start);
    // The first, the last, one in between; to different levels, one of them twice, one of them back down.
    jobs[3].raise(UserInteractive);
    jobs[0].raise(Utility);
    jobs[7].raise(Default);
    jobs[5].raise(Utility);
    jobs[5].raise(UserInitiated);
    jobs[3].raise(Background);
    jobs[4].raise(UserInteractive);
    drop(held);
    drop(pool);
    assert_eq!(taken(order), [3, 4, 5, 7, 0, 1, 2, 6]);
}

#[test]
fn raised_to_less_than_it_is_nothing_changes() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let held = hold(pool.scheduler());
    let jobs = queued(pool.scheduler().with_priority(UserInitiated), 3, &order);
    jobs.iter().for_each(Queued::start);
    for priority in [Background, Utility, Default, UserInitiated] {
        jobs[0].raise(priority);
    }
    drop(held);
    drop(pool);
    assert_eq!(taken(order), [0, 1, 2]);
}

#[test]
fn what_waits_in_the_ring_of_a_worker_moves_up() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let jobs = queued(pool.scheduler(), 6, &order);
    pool.install(|| {
        jobs.iter().for_each(Queued::start);
        jobs[2].raise(UserInteractive);
        jobs[0].raise(UserInitiated);
        jobs[3].raise(Background);
    });
    drop(pool);
    assert_eq!(taken(order), [2, 0, 5, 1, 3, 4]);
}

#[test]
fn what_waits_in_the_slot_of_a_worker_moves_up() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let jobs = queued(pool.scheduler(), 3, &order);
    let between = Queued::new(pool.scheduler().with_priority(UserInitiated), 9, &order);
    pool.install(|| {
        jobs.iter().for_each(Queued::start);
        between.start();
        jobs[2].raise(UserInteractive);
    });
    drop(pool);
    assert_eq!(taken(order), [2, 9, 0, 1]);
}

#[test]
fn what_did_not_fit_into_the_ring_moves_up() {
    const MANY: usize = 600;
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let jobs = queued(pool.scheduler(), MANY, &order);
    pool.install(|| {
        jobs.iter().for_each(Queued::start);
        jobs[MANY - 2].raise(UserInteractive);
        jobs[100].raise(UserInteractive);
    });
    drop(pool);
    let mut order = taken(order);
    assert_eq!(order[..2], [MANY - 2, 100]);
    order.sort_unstable();
    assert_eq!(order, (0..MANY).collect::<Vec<_>>());
}

#[test]
fn all_that_waits_in_a_ring_may_be_raised_out_of_it() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let jobs = queued(pool.scheduler(), 200, &order);
    pool.install(|| {
        for round in jobs.chunks(50) {
            round.iter().for_each(Queued::start);
            round.iter().rev().for_each(|job| job.raise(UserInteractive));
        }
    });
    drop(pool);
    let expected = [49, 99, 149, 199].map(|last| (0..50).map(|n| last - n).collect::<Vec<_>>());
    let order = taken(order);
    // The oldest of the other queues get their turns, but those queues are empty.
    assert_eq!(order, expected.concat());
}

#[test]
fn raised_while_it_runs_and_afterwards_it_does_not_run_again() {
    let pool = ThreadPool::new(1);
    let order = Order::default();
    let (running, runs) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let meanwhile = move || {
        running.send(()).unwrap();
        goes_on.recv().unwrap();
    };
    let job = Queued::with(pool.scheduler(), 7, &order, Some(Box::new(meanwhile)));
    job.start();
    runs.recv().unwrap();
    job.raise(UserInitiated);
    go_on.send(()).unwrap();
    // The worker runs this after the job.
    pool.install(|| ());
    job.raise(UserInteractive);
    drop(pool);
    // Its pool has ended by now.
    job.raise(UserInteractive);
    assert_eq!(taken(order), [7]);
}

#[test]
fn raised_by_many_at_once_each_runs_once() {
    const JOBS: usize = 64;
    let rounds = if cfg!(sanitized) { 20 } else { 200 };
    let pool = ThreadPool::new(2);
    for round in 0..rounds {
        let order = Order::default();
        let jobs = queued(
            pool.scheduler().with_priority([Background, Default][round % 2]),
            JOBS,
            &order,
        );
        let barrier = Barrier::new(3);
        thread::scope(|scope| {
            for raiser in 0..2 {
                let (jobs, barrier) = (&jobs, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for n in 0..JOBS {
                        let job = &jobs[(n * 7 + raiser * 31) % JOBS];
                        job.raise(Priority::ALL[(n + raiser + round) % 4]);
                    }
                });
            }
            if round % 4 < 2 {
                pool.install(|| jobs.iter().for_each(Queued::start));
            } else {
                jobs.iter().for_each(Queued::start);
            }
            barrier.wait();
        });
        while lock(&order).len() < JOBS {
            thread::yield_now();
        }
        // A job that would run twice has done so when everything of the lowest level has run.
        sync_wait(pool.scheduler().with_priority(Background).schedule()).unwrap();
        let mut order = taken(order);
        order.sort_unstable();
        assert_eq!(order, (0..JOBS).collect::<Vec<_>>());
    }
}
