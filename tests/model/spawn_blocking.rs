//! Closures that block: queueing against parking, against a stop, and against the end of the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bowline::model::PoolModel;
use bowline::prelude::*;
use bowline::stop::{InplaceStopToken, StopSource};
use loom::thread;

use crate::support::{Ended, World, explore};

/// Closes a pool, and works for it until it has ended.
fn end(pool: PoolModel) {
    pool.close();
    pool.worker(0).run();
    pool.leave();
}

/// Covers a closure that is queued before the thread parks, and one that wakes it. The pool is closed meanwhile, and ends after
/// the closure. Then the thread leaves.
#[test]
fn a_closure_meets_a_thread_that_parks() {
    explore(3, &["ran"], |seen| {
        let world = World::default();
        let pool = PoolModel::new(1);
        world.threads.spawn(pool.blocking_thread());
        let (root, report) = world.root();
        let value = world.census.value(5);
        value.touch();
        submit(
            pool.scheduler().spawn_blocking(move |_| {
                assert_eq!(value.read(), 5);
                value
            }),
            root,
        );
        end(pool);
        // The pool has waited for the closure.
        assert_eq!(report.get(), Ended::Value(5));
        world.end();
        assert_eq!(pool.blocking_threads(), 0);
        pool.free();
        seen.note("ran");
    });
}

/// Covers a stop before the start, before the entry is queued, while it is queued, when a thread has taken it, while the closure
/// runs, and afterwards. The operation completes once, its memory is freed at once, and the closure runs at most once.
#[test]
fn a_stop_races_with_the_begin() {
    let outcomes = [
        "ran",
        "ran, and was told",
        "stopped in the start",
        "stopped by the stopping thread",
        "stopped in its turn",
    ];
    explore(2, &outcomes, |seen| {
        let world = World::default();
        let pool = PoolModel::new(1);
        let source = StopSource::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let (root, report) = world.root();
        world.threads.spawn(pool.blocking_thread());
        let stopper = Arc::new(std::sync::Mutex::new(None));
        world.threads.spawn({
            let (source, stopper) = (source.clone(), stopper.clone());
            move || {
                *stopper.lock().expect("nobody panicked") = Some(thread::current().id());
                source.request_stop();
            }
        });
        let (value, told) = (world.census.value(3), Arc::new(AtomicUsize::new(0)));
        value.touch();
        let closure = {
            let (calls, told) = (calls.clone(), told.clone());
            move |token: InplaceStopToken<'_>| {
                calls.fetch_add(1, SeqCst);
                if token.stop_requested() {
                    told.fetch_add(1, SeqCst);
                }
                value
            }
        };
        let sender = pool.scheduler().spawn_blocking(closure);
        submit(sender.write_env(WithStopToken(source.token())), root);
        let in_start = report.is_there() && report.here();
        end(pool);
        world.threads.join();
        let by_stopper = stopper
            .lock()
            .expect("nobody panicked")
            .is_some_and(|stopper| report.by(stopper));
        seen.note(match report.get() {
            Ended::Value(3) if told.load(SeqCst) == 1 => "ran, and was told",
            Ended::Value(3) => "ran",
            Ended::Stopped if in_start => "stopped in the start",
            Ended::Stopped if by_stopper => "stopped by the stopping thread",
            Ended::Stopped => "stopped in its turn",
            other => panic!("{other:?}"),
        });
        assert_eq!(calls.load(SeqCst), usize::from(matches!(report.get(), Ended::Value(_))));
        world.end();
        pool.free();
    });
}

/// Covers closures that are started while the pool ends. One is admitted and the pool waits for it, or it is refused and runs
/// where it was started: a model has no global pool.
#[test]
fn a_closure_comes_at_the_end_of_the_pool() {
    explore(2, &["on the pool's thread", "where it was started"], |seen| {
        let world = World::default();
        let pool = PoolModel::new(1);
        world.threads.spawn(pool.blocking_thread());
        let (root, report) = world.root();
        world.threads.spawn({
            let (seen, report, value) = (seen.clone(), report.clone(), world.census.value(4));
            move || {
                value.touch();
                submit(pool.scheduler().spawn_blocking(move |_| value), root);
                if report.is_there() && report.here() {
                    seen.note("where it was started");
                } else {
                    seen.note("on the pool's thread");
                }
            }
        });
        end(pool);
        world.threads.join();
        assert_eq!(report.get(), Ended::Value(4));
        world.end();
        pool.free();
    });
}

/// Covers two closures for one thread, one of them stopped: the other runs, and the queue stays consistent.
#[test]
fn a_stop_beside_another_closure_leaves_that_one() {
    explore(2, &["both ran", "one ran"], |seen| {
        let world = World::default();
        let pool = PoolModel::new(1);
        let source = StopSource::new();
        let (root, report) = world.root();
        let (other, other_report) = world.root();
        world.threads.spawn(pool.blocking_thread());
        let (first, second) = (world.census.value(1), world.census.value(2));
        let stopped = pool.scheduler().spawn_blocking(move |_| first);
        submit(stopped.write_env(WithStopToken(source.token())), root);
        submit(pool.scheduler().spawn_blocking(move |_| second), other);
        world.threads.spawn(move || _ = source.request_stop());
        end(pool);
        world.threads.join();
        assert_eq!(other_report.get(), Ended::Value(2));
        seen.note(match report.get() {
            Ended::Value(1) => "both ran",
            Ended::Stopped => "one ran",
            other => panic!("{other:?}"),
        });
        world.end();
        pool.free();
    });
}
