//! `bulk` on a pool: which workers take part, and which of them completes.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bowline::model::PoolModel;
use bowline::prelude::*;
use loom::thread;

use crate::support::{Ended, World, explore};

/// The workers of a model: this thread is the first; the others look for work a few times.
struct Crew {
    world: World,
    pool: PoolModel,
    others: usize,
    /// The calling thread for each index.
    calls: Arc<Mutex<Vec<(usize, thread::ThreadId)>>>,
}

impl Crew {
    fn new(workers: usize) -> Self {
        Crew {
            world: World::default(),
            pool: PoolModel::new(workers),
            others: workers - 1,
            calls: Arc::default(),
        }
    }

    /// Returns the function of the `bulk`.
    fn call(&self) -> impl Fn(usize) + Send + Sync + 'static {
        let calls = self.calls.clone();
        move |index| {
            calls
                .lock()
                .expect("nobody panicked")
                .push((index, thread::current().id()));
        }
    }

    /// Starts `work` on this thread while the others look for work.
    fn run(&self, work: impl FnOnce()) {
        let pool = self.pool;
        for index in 1..=self.others {
            self.world.threads.spawn(move || {
                let worker = pool.worker(index);
                worker.within(|| {
                    worker.search();
                });
            });
        }
        let worker = pool.worker(0);
        worker.within(|| {
            work();
            // An invitation that was not taken has been withdrawn.
            assert!(!worker.run_next(false));
        });
    }

    /// Asserts that all queues are empty and each index was called once. Returns the threads that made the calls.
    fn end(self, shape: usize) -> Vec<thread::ThreadId> {
        self.world.end();
        assert!(!self.pool.has_work());
        self.pool.free();
        let mut calls = self.calls.lock().expect("nobody panicked").clone();
        calls.sort_by_key(|call| call.0);
        assert!(calls.iter().map(|call| call.0).eq(0..shape));
        calls.into_iter().map(|call| call.1).collect()
    }
}

/// Covers the first worker doing all calls and completing, either completing after both took part, and the second completing
/// without a call. A value that one of them read is dropped by the other only afterwards.
#[test]
fn the_last_to_leave_completes() {
    explore(
        4,
        &[
            "alone",
            "alone, then the other",
            "both, then the first",
            "both, then the other",
        ],
        |seen| {
            let crew = Crew::new(2);
            let (root, report) = crew.world.root();
            let (value, captured) = (crew.world.census.value(6), crew.world.census.value(0));
            let call = crew.call();
            let work = just(value).bulk(2, move |index, value| {
                assert_eq!(value.read() + captured.read(), 6);
                call(index);
            });
            crew.run(move || submit(work, root));
            let here = thread::current().id();
            let callers = crew.end(2);
            assert_eq!(report.get(), Ended::Value(6));
            seen.note(match (callers.iter().all(|&caller| caller == here), report.here()) {
                (true, true) => "alone",
                (true, false) => "alone, then the other",
                (false, true) => "both, then the first",
                (false, false) => "both, then the other",
            });
        },
    );
}

/// Covers the invitation going from the first to the second to the third, and being withdrawn by each sender.
#[test]
fn an_invitation_is_sent_on() {
    explore(3, &["one", "two", "three"], |seen| {
        let crew = Crew::new(3);
        let (root, report) = crew.world.root();
        let value = crew.world.census.value(6);
        let call = crew.call();
        let work = just(value).bulk(3, move |index, value| {
            assert_eq!(value.read(), 6);
            call(index);
        });
        crew.run(move || submit(work, root));
        let mut callers = crew.end(3);
        assert_eq!(report.get(), Ended::Value(6));
        callers.sort_by_key(|caller| format!("{caller:?}"));
        callers.dedup();
        seen.note(["one", "two", "three"][callers.len() - 1]);
    });
}

/// Covers one call panicking with the other not made, and both panicking. One panic arrives, after the value was dropped.
#[test]
fn the_first_panic_arrives() {
    explore(4, &["one", "two"], |seen| {
        let crew = Crew::new(2);
        let (root, report) = crew.world.root();
        let value = crew.world.census.value(6);
        let panics = Arc::new(AtomicUsize::new(0));
        let count = panics.clone();
        let work = just(value).bulk(2, move |_, value| {
            assert_eq!(value.read(), 6);
            count.fetch_add(1, SeqCst);
            std::panic::resume_unwind(Box::new("in a call"));
        });
        crew.run(move || submit(work, root));
        crew.end(0);
        assert_eq!(report.get(), Ended::Panicked);
        seen.note(["one", "two"][panics.load(SeqCst) - 1]);
    });
}
