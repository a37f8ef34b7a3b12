//! The spare threads of a pool: when they are started, and their records.
//!
//! A spare thread is started when a worker blocks, jobs are queued, and no spare thread is parked. It takes a stuck
//! seat or parks, is reused, and ends with the pool. [`Spares`] counts the started threads, under a lock. `block.rs` is
//! the only caller of `start_spare`.

use std::boxed::Box;
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use super::blocking::BlockingConfig;
use super::builder::ThreadHooks;
use super::seat::ThreadRecord;
use super::shared::{self, PoolShared};
use super::worker::Worker;
use crate::Panic;
use crate::sync::{Mutex, lock, thread};

/// The default of the largest number of spare threads.
pub(super) const MOST: usize = 512;

/// The configuration of the threads of a pool that are started on demand, and their join handles.
pub(super) struct SpareConfig {
    /// The names of the workers, by seat. A spare thread's name extends the one of the seat that it was started for.
    pub(super) names: Vec<String>,
    pub(super) stack_size: Option<usize>,
    pub(super) hooks: ThreadHooks,
    /// The largest number of spare threads.
    pub(super) most: usize,
    /// The threads of blocking closures, which share the names, the stack size and the hooks.
    pub(super) blocking: BlockingConfig,
    /// The started threads. The drop of the pool, which owns a reference to this, joins them.
    pub(super) handles: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// The spare threads that a pool has started.
pub(super) struct Spares {
    inner: Mutex<SpareState>,
}

struct SpareState {
    /// The records of spare threads, by number. They are reused by later pools in the same memory.
    records: Vec<&'static ThreadRecord>,
    /// The number of threads that the pool has started.
    started: usize,
    /// `None` if there is no pool, and in a model, which starts its threads itself.
    start: Option<Arc<SpareConfig>>,
}

impl Spares {
    pub(super) fn new() -> Self {
        Spares {
            inner: Mutex::new(SpareState {
                records: Vec::new(),
                started: 0,
                start: None,
            }),
        }
    }

    /// Begins a new generation without spare threads.
    pub(super) fn open(&self, start: Option<Arc<SpareConfig>>) {
        let mut inner = lock(&self.inner);
        inner.started = 0;
        inner.start = start;
    }

    /// Returns the number of threads that the pool has started. Waits for one that is being started, so that a thread
    /// which already runs is counted.
    pub(super) fn started(&self) -> usize {
        lock(&self.inner).started
    }

    /// Ends the generation. The caller drops the result, which contains user code.
    pub(super) fn close(&self) -> Option<Arc<SpareConfig>> {
        lock(&self.inner).start.take()
    }
}

impl PoolShared {
    /// Starts a spare thread, which takes a stuck seat or parks. Returns `false` at the limit of their number, or if
    /// the system refuses.
    ///
    /// The caller is a thread of the pool in the middle of a job, so the pool cannot end meanwhile.
    #[cold]
    pub(super) fn start_spare(&'static self, seat: usize, generation: u32) -> bool {
        // The lock is held until the thread is started, so that the numbers have no gaps.
        let mut inner = lock(&self.spares.inner);
        let Some(start) = inner.start.clone() else {
            return false;
        };
        let number = inner.started;
        if number >= start.most {
            return false;
        }
        if inner.records.len() == number {
            inner.records.push(Box::leak(Box::new(ThreadRecord::new())));
        }
        let record = inner.records[number];
        // The record may name a seat of an earlier generation. No other thread accesses it in this one.
        record.set_seat(None, false);
        // Reserves the thread's place in the list of spare threads, so that parking does not allocate.
        self.idle.0.expect_spares(number + 1);
        let mut builder = thread::Builder::new();
        if let Some(name) = start.names.get(seat) {
            builder = builder.name(format!("{name}-spare-{number}"));
        }
        if let Some(bytes) = start.stack_size {
            builder = builder.stack_size(bytes);
        }
        self.arrive();
        let hooks = start.hooks.clone();
        let index = self.seats.len() + number;
        // The caller is about to wait, and must not unwind. So a panic counts as a refusal of the system.
        let spawned = Panic::catch(|| builder.spawn(move || work(self, generation, record, index, &hooks)));
        match spawned {
            Ok(Ok(handle)) => {
                inner.started += 1;
                lock(&start.handles).push(handle);
                true
            }
            refused => {
                // This is not the last thread to leave: the caller is counted too.
                self.leave(generation);
                discard(refused);
                false
            }
        }
    }
}

/// Drops the result of user code. The destructor of a panic's payload may panic in turn.
fn discard<T>(outcome: Result<T, Panic>) {
    _ = Panic::catch(|| drop(outcome)).map_err(Panic::discard);
}

/// Runs a spare thread until the pool ends.
fn work(
    shared: &'static PoolShared,
    generation: u32,
    record: &'static ThreadRecord,
    index: usize,
    hooks: &ThreadHooks,
) {
    run_inside(hooks, index, || {
        shared.idle.0.arrive();
        Worker::spare(shared, generation, record, index, hooks.reactor.clone()).run();
        shared::part(shared, generation);
    });
}

/// Runs a thread that others count on inside the user's functions, whatever those do.
pub(super) fn run_inside(hooks: &ThreadHooks, index: usize, run: impl Fn()) {
    let (ran, wrapped) = hooks.wrap(index, || {
        // The panic hook has reported a panic of `on_start`. The thread works nevertheless.
        discard(hooks.start(index));
        run();
    });
    discard(wrapped);
    if !ran {
        discard(hooks.start(index));
        run();
    }
}
