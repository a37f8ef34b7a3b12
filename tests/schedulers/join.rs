//! `join`: two closures in parallel.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, mpsc};

use super::thread_pool_children::with_pools;
use crate::common::*;
use bowline::join;
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;

/// Smaller where stack frames are larger.
const DEEP: usize = if cfg!(sanitized) { 1_000 } else { 10_000 };

/// Panics without calling the panic hook.
fn quiet_panic(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn both_results_come_in_order() {
    for workers in [1, 2, 4] {
        let pool = ThreadPool::new(workers);
        assert_eq!(pool.join(|| 1, || "two"), (1, "two"));
        assert_eq!(pool.install(|| join(|| 1, || "two")), (1, "two"));
        assert_eq!(pool.install(|| fib(20)), 6765);
    }
}

#[test]
fn thieves_take_forks_with_and_without_membarrier() {
    for workers in [2, 4] {
        with_pools(workers, |pool| {
            for _ in 0..20 {
                assert_eq!(pool.install(|| fib(16)), 987);
            }
        });
    }
}

#[test]
fn both_workers_take_part() {
    let pool = ThreadPool::new(2);
    let barrier = Barrier::new(2);
    let at_the_barrier = || {
        barrier.wait();
        pool.worker_index().unwrap()
    };
    let (a, b) = pool.join(at_the_barrier, at_the_barrier);
    assert_eq!(a + b, 1);
}

#[test]
fn every_worker_takes_part_in_nested_joins() {
    let pool = ThreadPool::new(4);
    let barrier = Barrier::new(4);
    let at_the_barrier = || {
        barrier.wait();
        1 << pool.worker_index().unwrap()
    };
    let two = || join(at_the_barrier, at_the_barrier);
    let ((a, b), (c, d)) = pool.join(two, two);
    assert_eq!(a | b | c | d, 0b1111);
}

#[test]
fn borrows_what_is_around_it() {
    let pool = ThreadPool::new(2);
    let mut numbers: Vec<u64> = (0..10_000).rev().collect();
    fn sort(numbers: &mut [u64]) {
        if numbers.len() <= 8 {
            return numbers.sort_unstable();
        }
        let middle = numbers.len() / 2;
        numbers.select_nth_unstable(middle);
        let (left, right) = numbers.split_at_mut(middle);
        join(|| sort(left), || sort(right));
    }
    pool.install(|| sort(&mut numbers));
    assert!(numbers.is_sorted());
}

#[test]
fn from_outside_it_uses_the_global_pool() {
    let here = || ThreadPool::global().worker_index().is_some();
    assert_eq!(join(here, here), (true, true));
    assert_eq!(fib(15), 610);
}

#[test]
fn on_a_worker_it_uses_that_pool() {
    let pool = ThreadPool::new(1);
    let here = || pool.worker_index();
    assert_eq!(pool.install(|| join(here, here)), (Some(0), Some(0)));
}

#[test]
fn from_a_worker_of_another_pool_it_uses_the_one_that_was_named() {
    let (one, other) = (ThreadPool::new(2), ThreadPool::new(2));
    let there = || one.worker_index().is_none() && other.worker_index().is_some();
    assert_eq!(one.install(|| other.join(there, there)), (true, true));
}

#[test]
fn what_can_only_be_moved_passes() {
    let pool = ThreadPool::new(2);
    let census = Census::new();
    let (a, b) = (census.value(), census.value());
    let (a, b) = pool.join(move || a, move || b);
    assert_eq!(census.alive(), 2);
    drop((a, b));
    assert_eq!(census.alive(), 0);
}

// Panics. Each with `b` run by the forking worker, and by another one, deterministically.

/// Calls `join` so that another worker runs `b`.
fn join_apart<A: Send, B: Send>(
    pool: &ThreadPool,
    a: impl FnOnce() -> A + Send,
    b: impl FnOnce() -> B + Send,
) -> (A, B) {
    let barrier = Barrier::new(2);
    pool.join(
        || {
            barrier.wait();
            a()
        },
        || {
            barrier.wait();
            b()
        },
    )
}

#[test]
fn a_panic_of_a_passes_after_b_has_finished() {
    let pool = ThreadPool::new(2);
    let finished = AtomicUsize::new(0);
    let one_more = || finished.fetch_add(1, SeqCst);
    assert_eq!(panic_message(|| join_apart(&pool, || quiet_panic("a"), one_more)), "a");
    assert_eq!(finished.load(SeqCst), 1);
    let alone = ThreadPool::new(1);
    assert_eq!(panic_message(|| alone.join(|| quiet_panic("a"), one_more)), "a");
    assert_eq!(finished.load(SeqCst), 2);
    assert_eq!(pool.join(|| 1, || 2), (1, 2));
}

#[test]
fn a_panic_of_a_waits_for_a_b_that_takes_longer() {
    let pool = ThreadPool::new(2);
    let finished = AtomicUsize::new(0);
    let started = Barrier::new(2);
    let message = panic_message(|| {
        pool.join(
            || {
                started.wait();
                quiet_panic("a");
            },
            || {
                started.wait();
                // The waiting thread has time to go to sleep.
                (0..1_000).for_each(|_| thread::yield_now());
                finished.fetch_add(1, SeqCst);
            },
        )
    });
    assert_eq!((message.as_str(), finished.load(SeqCst)), ("a", 1));
}

#[test]
fn a_panic_of_b_passes_after_a_has_finished() {
    let (pool, alone) = (ThreadPool::new(2), ThreadPool::new(1));
    let finished = AtomicUsize::new(0);
    let one_more = || finished.fetch_add(1, SeqCst);
    assert_eq!(panic_message(|| join_apart(&pool, one_more, || quiet_panic("b"))), "b");
    assert_eq!(panic_message(|| alone.join(one_more, || quiet_panic("b"))), "b");
    assert_eq!(finished.load(SeqCst), 2);
    assert_eq!(pool.join(|| 1, || 2), (1, 2));
}

#[test]
fn of_two_panics_that_of_a_passes() {
    let (pool, alone) = (ThreadPool::new(2), ThreadPool::new(1));
    let both = || join_apart(&pool, || quiet_panic("a"), || quiet_panic("b"));
    assert_eq!(panic_message(both), "a");
    assert_eq!(
        panic_message(|| alone.join(|| quiet_panic("a"), || quiet_panic("b"))),
        "a"
    );
}

#[test]
fn a_panic_leaves_no_result_behind() {
    let census = Census::new();
    let (pool, alone) = (ThreadPool::new(2), ThreadPool::new(1));
    let value = || census.value();
    panic_message(|| join_apart(&pool, value, || quiet_panic("b")));
    panic_message(|| join_apart(&pool, || quiet_panic("a"), value));
    panic_message(|| alone.join(value, || quiet_panic("b")));
    panic_message(|| alone.join(|| quiet_panic("a"), value));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_passes_through_nested_joins() {
    fn nest(depth: usize) {
        if depth == 0 {
            quiet_panic("at the bottom");
        }
        join(|| nest(depth - 1), || fib(5));
    }
    let pool = ThreadPool::new(2);
    assert_eq!(panic_message(|| pool.install(|| nest(50))), "at the bottom");
    assert_eq!(pool.install(|| fib(10)), 55);
}

// Depth.

#[test]
fn nests_deeper_than_the_queue_is_long() {
    fn left(depth: usize) -> usize {
        if depth == 0 {
            0
        } else {
            join(|| left(depth - 1), || 1).0 + 1
        }
    }
    fn right(depth: usize) -> usize {
        if depth == 0 {
            0
        } else {
            join(|| 1, || right(depth - 1)).1 + 1
        }
    }
    for workers in [1, 2] {
        let pool = ThreadPool::builder()
            .threads(workers)
            .stack_size(256 << 20)
            .build()
            .unwrap();
        assert_eq!(pool.install(|| left(DEEP)), DEEP);
        assert_eq!(pool.install(|| right(DEEP)), DEEP);
    }
}

// With other work of the pool.

#[test]
fn joins_and_jobs_mix() {
    let pool = ThreadPool::new(2);
    let hops = AtomicUsize::new(0);
    let hop = || {
        sync_wait(pool.scheduler().schedule().then(|()| hops.fetch_add(1, SeqCst))).unwrap();
    };
    fn nest(depth: u32, hop: &(impl Fn() + Sync)) {
        if depth == 0 {
            return hop();
        }
        join(|| nest(depth - 1, hop), || nest(depth - 1, hop));
    }
    pool.install(|| nest(10, &hop));
    assert_eq!(hops.into_inner(), 1 << 10);
}

#[test]
fn a_join_whose_other_half_is_done_does_not_wait_for_what_never_ends() {
    let pool = ThreadPool::new(2);
    let scheduler = pool.scheduler();
    let stop = bowline::stop::StopSource::new();
    let started = Barrier::new(2);
    let (sent, received) = mpsc::channel();
    let (first, second) = (&started, &started);
    let token = stop.token();
    let (held, ()) = pool.join(
        move || {
            first.wait();
            // The other worker has finished `b`, and is busy.
            let held = received.recv().unwrap();
            // Two jobs that requeue themselves, so that this worker's queue is never empty.
            for _ in 0..2 {
                let endless = scheduler.schedule().repeat_until(|()| false);
                start_detached(endless.write_env(WithStopToken(token.clone())));
            }
            held
        },
        move || {
            second.wait();
            // Keeps the worker that runs this busy afterwards.
            let urgent = scheduler.with_priority(Priority::UserInteractive);
            execute(urgent, move || {
                let (release, released) = mpsc::channel::<()>();
                sent.send(release).unwrap();
                // Returns when the sender is dropped.
                let _ = released.recv();
            });
        },
    );
    stop.request_stop();
    drop(held);
}

#[test]
fn does_not_allocate() {
    for workers in [1, 2] {
        let crew = CrewAllocations::new();
        crew.join();
        let pool = ThreadPool::builder()
            .threads(workers)
            .on_start(move |_| crew.join())
            .build()
            .unwrap();
        let run = || assert_eq!(pool.install(|| fib(18)), 2584);
        assert_eq!(settles_at(0, || crew.during(run).1), 0);
    }
}

/// The other half runs on this stack frame, so no unwind may leave the wait: neither here nor on another thread.
#[test]
fn a_destructor_that_panics_in_a_job_during_a_join_aborts() {
    let said = aborts("a_destructor_that_panics_in_a_job_during_a_join_aborts", || {
        let pool = ThreadPool::new(2);
        let scheduler = pool.scheduler();
        let both = Barrier::new(2);
        pool.join(
            || {
                both.wait();
                // The value has no receiver, so it is dropped at the completion.
                start_detached(scheduler.schedule().then(|()| Bomb));
            },
            || {
                both.wait();
                thread::sleep(std::time::Duration::from_secs(10));
            },
        );
    });
    assert!(said.contains("bowline:"), "{said}");
}
