//! `ThreadPool`.

mod common;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;

#[test]
fn work_runs_on_the_pools_threads() {
    let pool = ThreadPool::new(2);
    let index = sync_wait(pool.scheduler().schedule().then(|()| pool.worker_index())).unwrap();
    assert!(index.is_some_and(|index| index < 2));
    assert_eq!(pool.worker_index(), None);
}

#[test]
fn a_sender_hops_a_million_times() {
    let pool = ThreadPool::new(2);
    sync_wait(starts_on(
        pool.scheduler(),
        pool.scheduler().schedule().repeat_n(1_000_000),
    ))
    .unwrap();
}

#[test]
fn join_computes() {
    fn fib(n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let (a, b) = bowline::join(|| fib(n - 1), || fib(n - 2));
        a + b
    }
    let pool = ThreadPool::new(2);
    assert_eq!(pool.install(|| fib(27)), 196418);
}
