//! The global pool and its replacement. It can be replaced once per process, so the one test of this file starts a process for
//! each case.

use std::sync::mpsc;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;

const CASE: &str = "BOWLINE_GLOBAL_CASE";

const CASES: [(&str, fn()); 6] = [
    ("made when it is first asked for", || {
        let machine = thread::available_parallelism().unwrap().get();
        assert_eq!(ThreadPool::global().threads(), machine);
        assert_eq!(ThreadPool::global().scheduler(), ThreadPool::global().scheduler());
    }),
    ("replaced before it is asked for", || {
        ThreadPool::new(3).make_global().unwrap();
        assert_eq!(ThreadPool::global().threads(), 3);
        assert_eq!(
            bowline::join(|| ThreadPool::global().worker_index().is_some(), || 7),
            (true, 7)
        );
    }),
    ("replaced a second time", || {
        ThreadPool::new(3).make_global().unwrap();
        let again = ThreadPool::new(5).make_global().unwrap_err();
        assert_eq!(again.threads(), 5);
        // It is returned in working order.
        assert_eq!(again.install(|| 7), 7);
        assert_eq!(ThreadPool::global().threads(), 3);
    }),
    ("replaced after it was asked for", || {
        let machine = ThreadPool::global().threads();
        let late = ThreadPool::new(machine + 1).make_global().unwrap_err();
        assert_eq!(late.threads(), machine + 1);
        assert_eq!(ThreadPool::global().threads(), machine);
    }),
    ("asked for by many at once", || {
        let barrier = std::sync::Barrier::new(8);
        let schedulers = thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                ThreadPool::global().scheduler()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        assert!(schedulers.iter().all(|scheduler| *scheduler == schedulers[0]));
        assert_eq!(ThreadPool::global().install(|| 7), 7);
    }),
    ("takes over what comes to a pool that has ended", || {
        let pool = ThreadPool::new(1);
        let scheduler = pool.scheduler();
        ThreadPool::builder()
            .threads(2)
            .names(|_| "heir".to_owned())
            .build()
            .unwrap()
            .make_global()
            .unwrap();
        drop(pool);
        for priority in Priority::ALL {
            let (sent, received) = mpsc::channel();
            execute(scheduler.with_priority(priority), move || {
                sent.send(thread::current().name().map(str::to_owned)).unwrap();
            });
            assert_eq!(received.recv().unwrap().as_deref(), Some("heir"));
        }
    }),
];

#[test]
fn the_global_pool_is_made_once_and_replaced_once() {
    if let Some(case) = std::env::var_os(CASE) {
        let (_, run) = CASES.iter().find(|(name, _)| case == *name).unwrap();
        return run();
    }
    for (name, _) in CASES {
        passes_in_own_process("the_global_pool_is_made_once_and_replaced_once", &[(CASE, name)]);
    }
}
