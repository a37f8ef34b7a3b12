//! Starting the spare threads of a pool.

use core::mem;
use std::boxed::Box;
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use super::seat::ThreadRecord;
use super::shared::{self, PoolShared};
use super::worker::Worker;
use crate::Panic;
use crate::sync::{Mutex, lock, thread};

/// How many spare threads a pool may have, where the builder does not say.
pub(super) const MOST: usize = 512;

/// How the spare threads of one pool are started.
pub(super) struct SpareConfig {
    /// The names of the workers.
    pub(super) names: Vec<String>,
    pub(super) stack_size: Option<usize>,
    pub(super) on_start: Arc<dyn Fn(usize) + Send + Sync>,
    /// How many there may be.
    pub(super) most: usize,
    /// The threads that were started. They are joined by the drop of the pool, which holds this too.
    pub(super) handles: Mutex<Vec<thread::JoinHandle<()>>>,
}

/// The spare threads that a pool has started.
pub(super) struct Spares {
    inner: Mutex<SpareState>,
}

struct SpareState {
    /// One for each spare thread of this pool and of earlier ones in the same memory, by its number.
    records: Vec<&'static ThreadRecord>,
    /// How many threads the pool has started.
    started: usize,
    /// `None` when there is no pool, or in a model, which starts its threads itself.
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

    /// Begins a new life of the pool's memory, without a spare thread.
    pub(super) fn open(&self, start: Option<Arc<SpareConfig>>) {
        let mut inner = lock(&self.inner);
        inner.started = 0;
        inner.start = start;
    }

    /// Ends that life. What is returned holds a function of the user.
    pub(super) fn close(&self) -> Option<Arc<SpareConfig>> {
        lock(&self.inner).start.take()
    }
}

impl PoolShared {
    /// Starts a spare thread, which takes a stuck seat or parks. `false` when there are as many as there may be, or the
    /// system does not give one.
    ///
    /// The caller is a thread of the pool in the middle of a job, for which the pool waits.
    #[cold]
    pub(super) fn start_spare(&'static self, seat: usize, generation: u32) -> bool {
        // Held until the thread is started, so that the numbers have no gaps.
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
        // It may have had a seat in an earlier life of the memory. No other thread knows of it in this one.
        record.set_seat(None, false);
        // No thread parks before it has a place in the list, which then need not grow.
        self.idle.0.expect_spares(number + 1);
        let mut builder = thread::Builder::new();
        if let Some(name) = start.names.get(seat) {
            builder = builder.name(format!("{name}-spare-{number}"));
        }
        if let Some(bytes) = start.stack_size {
            builder = builder.stack_size(bytes);
        }
        self.arrive();
        let on_start = start.on_start.clone();
        let index = self.seats.len() + number;
        // A panic is a thread that the system does not give. The caller waits for something, and must not unwind.
        let spawned = Panic::catch(|| builder.spawn(move || work(self, generation, record, index, on_start)));
        match spawned {
            Ok(Ok(handle)) => {
                inner.started += 1;
                lock(&start.handles).push(handle);
                true
            }
            refused => {
                // Not the last to leave: the caller is counted too.
                self.leave(generation);
                discard(refused);
                false
            }
        }
    }
}

/// Drops the outcome of a call of the user. The destructor of a panic's payload may panic in turn.
fn discard<T>(outcome: Result<T, Panic>) {
    mem::forget(Panic::catch(|| drop(outcome)));
}

/// The life of a spare thread.
fn work(
    shared: &'static PoolShared,
    generation: u32,
    record: &'static ThreadRecord,
    index: usize,
    on_start: Arc<dyn Fn(usize) + Send + Sync>,
) {
    // The panic hook has reported a panic.
    discard(Panic::catch(|| on_start(index)));
    drop(on_start);
    shared.idle.0.arrive();
    Worker::spare(shared, generation, record, index).run();
    shared::part(shared, generation);
}
