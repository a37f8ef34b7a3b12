use core::fmt;
use core::ptr::NonNull;
use std::vec::Vec;

use super::builder::{BuildError, ThreadPoolBuilder};
use super::entry::Entry;
use super::schedule::PoolScheduler;
use super::shared::Shared;
use super::worker::Worker;
use crate::sync::{lock, thread};
use crate::{Job, Scheduler, Sender, Transfer, sync_wait};

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
/// [`scheduler`](ThreadPool::scheduler) gives a handle. Scheduling never fails and never allocates, from the pool's own
/// threads and from others: the operation is the queue's node. What a worker makes ready it keeps, the newest
/// first in line and the rest in order, and others steal from it when they have nothing to do.
///
/// A worker that blocks in [`sync_wait`], in [`join`](crate::join) or at the end of a [`scope`](crate::task::scope) runs
/// other work of its pool meanwhile. That work then sits on top of the wait on the same stack; a worker takes the newest
/// first then, which is as a rule what it waits for. Blocking in other ways, on a channel say, takes the thread away from the
/// pool.
///
/// # Priorities
///
/// There are five levels: see [`Priority`](crate::Priority). Work at a higher level is taken first. None starves: of each
/// level, and of its own queue, a worker takes the oldest job at least once in
/// [`FAIRNESS`](ThreadPool::FAIRNESS) picks, whatever else there is. [`Operation::raise`](crate::Operation::raise) moves
/// what is queued to a higher level.
///
/// # The end
///
/// Dropping the pool waits until everything that it has accepted, and what comes of that, has run; then its threads
/// end. Dropped by one of its own workers, which cannot wait for itself, it returns at once, and the threads do the same on
/// their own. Work that arrives later, by a scheduler that was kept, goes to the [global](ThreadPool::global) pool.
///
/// # Panics in jobs
///
/// A panic of user code travels down the panic channel of its sender. The worker goes on.
pub struct ThreadPool {
    shared: &'static Shared,
    generation: u32,
    threads: Vec<thread::JoinHandle<()>>,
}

impl ThreadPool {
    /// Of each level of priority, and of its own queue, a worker takes the oldest job at least once in so many picks.
    pub const FAIRNESS: usize = super::worker::FAIRNESS as usize;

    /// A pool of so many threads.
    ///
    /// # Panics
    ///
    /// When `threads` is zero, or the system does not give them. [`ThreadPool::builder`] has errors instead.
    pub fn new(threads: usize) -> Self {
        match ThreadPool::builder().threads(threads).build() {
            Ok(pool) => pool,
            Err(error) => panic!("{error}"),
        }
    }

    /// How a pool is to be: threads, their names and stacks, what they do first.
    pub fn builder() -> ThreadPoolBuilder {
        ThreadPoolBuilder::new()
    }

    pub(super) fn assemble(shared: &'static Shared, generation: u32, threads: Vec<thread::JoinHandle<()>>) -> Self {
        ThreadPool {
            shared,
            generation,
            threads,
        }
    }

    /// A handle that schedules onto this pool.
    #[inline]
    pub fn scheduler(&self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Which of the pool's threads is calling, counted from 0; `None` when it is not one of them.
    pub fn worker_index(&self) -> Option<usize> {
        let worker = Worker::current()?;
        worker.works_for(self.shared).then(|| worker.index())
    }

    /// Runs a function on the pool and waits for its result: at once when the caller is one of its threads.
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
        /// The pool of the process, made when it is first asked for, with one thread for each processor the system lets
        /// the process use. It never ends.
        ///
        /// # Panics
        ///
        /// When the system does not give a single thread.
        pub fn global() -> &'static ThreadPool {
            match try_global() {
                Ok(pool) => pool,
                Err(error) => panic!("the global pool: {error}"),
            }
        }

        /// Makes this the [global](ThreadPool::global) pool, once, before anybody has asked for that.
        ///
        /// ```standalone_crate
        /// use bowline::scheduler::ThreadPool;
        ///
        /// ThreadPool::new(2).make_global().expect("nobody has used the global pool yet");
        /// assert_eq!(ThreadPool::global().threads(), 2);
        /// ```
        ///
        /// # Errors
        ///
        /// The pool is given back when there is a global one already.
        pub fn make_global(self) -> Result<(), ThreadPool> {
            GLOBAL.set(self)
        }
    }

    fn try_global() -> Result<&'static ThreadPool, BuildError> {
        if let Some(pool) = GLOBAL.get() {
            return Ok(pool);
        }
        // A machine that does not give all threads still gives a pool.
        let mut threads = super::super::builder::machine_threads();
        let pool = loop {
            match ThreadPool::builder().threads(threads).build() {
                Err(_) if threads > 1 => threads /= 2,
                built => break built?,
            }
        };
        // Of two that are made at once, one is dropped again: it has nothing to do.
        Ok(GLOBAL.get_or_init(|| pool))
    }

    /// Queues an entry that a pool which has ended refused. Without any pool at all, it is to be resumed here.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs. It may have run when this returns.
    #[cold]
    pub(in super::super) unsafe fn forward(entry: NonNull<Entry>) -> Transfer {
        if let Ok(pool) = try_global() {
            // SAFETY: the caller's promise.
            if unsafe { pool.shared.push(entry, pool.generation) }.is_ok() {
                return Transfer::none();
            }
        }
        // SAFETY: it is in no queue, and stays until it runs.
        unsafe { Transfer::to(entry.cast::<Job>()) }
    }
}
#[cfg(not(loom))]
pub(super) use global::forward;

/// A model has no pool but its own: what that refuses is resumed here.
///
/// # Safety
///
/// The entry is in no queue, and stays where it is until it runs.
#[cfg(loom)]
pub(super) unsafe fn forward(entry: NonNull<Entry>) -> Transfer {
    // SAFETY: the caller's promise.
    unsafe { Transfer::to(entry.cast::<Job>()) }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.idle.0.close(&self.shared.seats);
        match Worker::current() {
            // It cannot wait for itself: the threads end on their own.
            Some(worker) if worker.works_for(self.shared) => return,
            Some(worker) => {
                // What is left in this pool may need the other one, so that goes on meanwhile.
                *lock(&self.shared.awaited_by) = Some(thread::current());
                worker.help_until(|| self.shared.is_deserted());
            }
            None => {}
        }
        for thread in self.threads.drain(..) {
            // A worker does not panic: it would have aborted.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}
