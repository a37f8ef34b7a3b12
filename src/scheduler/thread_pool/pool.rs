use core::fmt;
use core::mem;
use std::sync::Arc;
use std::vec::Vec;

use super::blocking;
#[cfg(not(loom))]
use super::builder::BuildError;
use super::builder::ThreadPoolBuilder;
use super::entry::OwnedEntry;
use super::schedule::PoolScheduler;
use super::shared::PoolShared;
use super::spare::SpareConfig;
use super::worker::Worker;
use crate::scheduler::hosted::while_blocked;
use crate::sync::{lock, thread};
use crate::{Scheduler, Sender, Transfer, sync_wait};

/// A work-stealing pool of threads.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
///
/// let pool = ThreadPool::new(2);
/// let data = [1, 2, 3, 4];
/// let (evens, odds) = sync_wait(when_all((
///     just(&data).continues_on(pool.scheduler()).then(|d| d.iter().filter(|x| *x % 2 == 0).count()),
///     just(&data).continues_on(pool.scheduler()).then(|d| d.iter().filter(|x| *x % 2 == 1).count()),
/// )))
/// .unwrap();
/// assert_eq!((evens, odds), (2, 2));
/// ```
///
/// # Scheduling
///
/// [`scheduler`](ThreadPool::scheduler) returns a handle. Scheduling never fails and never allocates, on any thread:
/// the operation is the queue's node. A worker queues the jobs that it makes ready on itself. It runs the newest first
/// and the rest in order, and idle workers steal from it.
///
/// # Blocking
///
/// A job may block in these ways:
///
/// - in [`sync_wait`] and other drivers of a [`RunLoop`](crate::scheduler::RunLoop);
/// - in [`join`](crate::join), and at the end of a [`scope`](crate::task::scope);
/// - in the drop of another pool.
///
/// If there is other work, its thread then passes its place in the pool to a *spare* thread. After the wait it
/// continues without a place. So the pool keeps running as many jobs at once as it has threads, and jobs that wait for
/// each other do not deadlock. A waiting thread runs no other jobs on its stack.
///
/// Spare threads are started on demand, reused, and end with the pool. There are at most 512 of them, or as many as
/// [`spare_threads`](ThreadPoolBuilder::spare_threads) says. If none is available, a blocked thread keeps its place
/// until a free thread takes it over.
///
/// If all threads of the pool wait for jobs that are queued there, they wait for ever. That takes a chain of jobs, each
/// waiting for the next, as long as there are threads. Waits that do not nest need fewer: while sixteen threads are
/// blocked, the newest jobs run first, which are usually the awaited ones.
///
/// A thread without a place works as before. It schedules onto the queue of all workers. If a worker sleeps, `join` and
/// `bulk` take its place, and share their work.
///
/// A thread that blocks by other means, on a channel for instance, keeps its place. Other workers run the jobs that are
/// queued there. Calls that block long belong in [`spawn_blocking`](crate::task::spawn_blocking), which has threads of its own
/// in each pool.
///
/// # Priorities
///
/// There are five levels: see [`Priority`](crate::Priority). Work at a higher level is taken first. No level starves: a
/// worker takes the oldest job of each level, and of its own queues, at least once in [`FAIRNESS`](ThreadPool::FAIRNESS)
/// picks. [`Operation::raise`](crate::Operation::raise) moves a queued job to a higher level.
///
/// # The end
///
/// Dropping the pool waits until all jobs that it has accepted, and all jobs that follow from them, have run. That includes
/// the closures of [`spawn_blocking`](crate::task::spawn_blocking), running or queued. Then its threads end. If one of its own threads drops the pool, the drop returns at once, and the threads end on their own. A
/// worker of another pool blocks in the drop. Two jobs that each drop the pool of the other wait for ever. Work that
/// arrives later, through a scheduler that was kept, runs on the [global](ThreadPool::global) pool.
///
/// # Panics in jobs
///
/// A panic of user code completes its sender through the panic channel, and the worker continues. If there is no such
/// channel, as for a destructor that panics inside a completion, the process aborts with a message.
pub struct ThreadPool {
    shared: &'static PoolShared,
    generation: u32,
    threads: Vec<thread::JoinHandle<()>>,
    start: Arc<SpareConfig>,
}

impl ThreadPool {
    /// The fairness bound: a worker takes the oldest job of each priority level, and of its own queues, at least once in
    /// this many picks. The oldest child of a task has the fewest turns, and all others four times as many.
    pub const FAIRNESS: usize = super::pick::FAIRNESS as usize;

    /// Creates a pool with this number of threads.
    ///
    /// # Panics
    ///
    /// If `threads` is zero, or the system refuses a thread. [`ThreadPool::builder`] returns errors instead.
    pub fn new(threads: usize) -> Self {
        match ThreadPool::builder().threads(threads).build() {
            Ok(pool) => pool,
            Err(error) => error.fail(),
        }
    }

    /// Returns a builder, which configures the threads of a pool.
    pub fn builder() -> ThreadPoolBuilder {
        ThreadPoolBuilder::new()
    }

    pub(super) fn assemble(
        shared: &'static PoolShared,
        generation: u32,
        threads: Vec<thread::JoinHandle<()>>,
        start: Arc<SpareConfig>,
    ) -> Self {
        ThreadPool {
            shared,
            generation,
            threads,
            start,
        }
    }

    /// Returns a handle that schedules onto this pool.
    #[inline]
    pub fn scheduler(&self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// Returns the number of threads, without the spare ones. As many jobs run at once.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Returns the number of spare threads started so far, because other threads blocked: see
    /// [`spare_threads`](ThreadPoolBuilder::spare_threads).
    pub fn spare_threads(&self) -> usize {
        self.shared.spares.started()
    }

    /// Returns the number of threads that run the closures of [`spawn_blocking`](crate::task::spawn_blocking), or wait for one:
    /// see [`blocking_threads`](ThreadPoolBuilder::blocking_threads).
    pub fn blocking_threads(&self) -> usize {
        self.shared.blocking.threads()
    }

    /// Returns the index of the calling thread in this pool, or `None` if it is not one of its threads.
    ///
    /// The index belongs to a place, which a [blocking](ThreadPool#blocking) thread passes to a spare one. After that
    /// the thread keeps the index until it has another place, while the spare thread has the same index.
    pub fn worker_index(&self) -> Option<usize> {
        let worker = Worker::current()?;
        worker.works_for(self.shared, self.generation).then(|| worker.index())
    }

    /// Runs a function on the pool and returns its result. On a thread of the pool, calls it directly.
    ///
    /// ```
    /// use bowline::scheduler::ThreadPool;
    ///
    /// let pool = ThreadPool::new(2);
    /// let sum = pool.install(|| {
    ///     let (a, b) = bowline::join(|| 1 + 2, || 3 + 4);
    ///     a + b
    /// });
    /// assert_eq!(sum, 10);
    /// ```
    ///
    /// # Panics
    ///
    /// With the panic of the function.
    pub fn install<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        if self.worker_index().is_some() {
            return function();
        }
        sync_wait(self.scheduler().schedule().then(|()| function())).unwrap()
    }
}

#[cfg(not(loom))]
mod global {
    use super::*;
    use std::sync::OnceLock;

    static GLOBAL: OnceLock<ThreadPool> = OnceLock::new();

    impl ThreadPool {
        /// Returns the pool of the process. It is created lazily, with one thread for each processor available to the
        /// process, and never ends.
        ///
        /// # Panics
        ///
        /// If the system refuses even a single thread.
        pub fn global() -> &'static ThreadPool {
            match try_global() {
                Ok(pool) => pool,
                Err(error) => error.fail(),
            }
        }

        /// Makes this pool the [global](ThreadPool::global) one, before its first use.
        ///
        /// ```standalone_crate
        /// use bowline::scheduler::ThreadPool;
        ///
        /// ThreadPool::new(2).make_global().expect("the global pool is not in use yet");
        /// assert_eq!(ThreadPool::global().threads(), 2);
        /// ```
        ///
        /// # Errors
        ///
        /// Returns the pool if there is a global one already.
        pub fn make_global(self) -> Result<(), ThreadPool> {
            GLOBAL.set(self)
        }
    }

    fn try_global() -> Result<&'static ThreadPool, BuildError> {
        if let Some(pool) = GLOBAL.get() {
            return Ok(pool);
        }
        // If the system refuses that many threads, a smaller pool is better than none.
        let mut threads = super::super::builder::machine_threads();
        let pool = loop {
            match ThreadPool::builder().threads(threads).build() {
                Err(_) if threads > 1 => threads /= 2,
                built => break built?,
            }
        };
        // If two threads create one at the same time, the second pool is dropped. It has no jobs.
        Ok(GLOBAL.get_or_init(|| pool))
    }

    /// Queues an entry that an ended pool refused in the global pool. If there is none, returns the entry's job to run
    /// here.
    #[cold]
    pub(in crate::scheduler) fn forward(entry: OwnedEntry) -> Transfer {
        let Ok(pool) = try_global() else {
            return entry.into_transfer();
        };
        entry.get().set_forwarded();
        match pool.shared.push(entry, pool.generation) {
            Ok(()) => Transfer::none(),
            Err(entry) => entry.into_transfer(),
        }
    }

    /// Returns the global pool, for blocking closures without a pool of their own. `None` if the system refuses its threads.
    pub(in super::super) fn blocking_fallback() -> Option<PoolScheduler> {
        try_global().ok().map(ThreadPool::scheduler)
    }

    /// Returns the pool to which entries were forwarded, if there is one.
    pub(in super::super) fn forwarded_to() -> Option<PoolScheduler> {
        GLOBAL.get().map(ThreadPool::scheduler)
    }
}
#[cfg(not(loom))]
pub(in crate::scheduler) use global::forward;
#[cfg(not(loom))]
pub(super) use global::{blocking_fallback, forwarded_to};

/// Returns the entry's job to run here: a model has no global pool.
#[cfg(loom)]
pub(in crate::scheduler) fn forward(entry: OwnedEntry) -> Transfer {
    entry.into_transfer()
}

#[cfg(loom)]
pub(super) fn forwarded_to() -> Option<PoolScheduler> {
    None
}

#[cfg(loom)]
pub(super) fn blocking_fallback() -> Option<PoolScheduler> {
    None
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let (shared, generation) = (self.shared, self.generation);
        crate::sender::current::publish();
        match Worker::current() {
            // A blocking closure cannot wait for its own end either.
            _ if blocking::is_here(shared, generation) => return shared.idle.0.close(&shared.seats),
            // Nor can an event of the pool's own reactor.
            _ if Worker::attending().is_some_and(|worker| worker.works_for(shared, generation)) => {
                return shared.idle.0.close(&shared.seats);
            }
            // A thread cannot wait for its own end. The threads end on their own.
            Some(worker) if worker.works_for(shared, generation) => return shared.idle.0.close(&shared.seats),
            // The remaining jobs may need the other pool, so this worker's seat there is passed on meanwhile.
            Some(worker) => shared.end_and_wait(worker, generation),
            None => shared.idle.0.close(&shared.seats),
        }
        let threads = self.threads.drain(..);
        while_blocked(|| {
            for thread in threads {
                // A worker never panics: it would have aborted.
                let _ = thread.join();
            }
            // All spare threads were started before the last worker ended.
            let spares = mem::take(&mut *lock(&self.start.handles));
            for thread in spares {
                let _ = thread.join();
            }
            self.start.blocking.join();
        });
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("threads", &self.threads())
            .field("spare_threads", &self.spare_threads())
            .field("most_spare_threads", &self.start.most)
            .field("blocking_threads", &self.blocking_threads())
            .field("most_blocking_threads", &self.start.blocking.most)
            .finish_non_exhaustive()
    }
}
