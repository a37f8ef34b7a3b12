use core::fmt;
use core::mem;
use core::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

#[cfg(not(loom))]
use super::builder::BuildError;
use super::builder::ThreadPoolBuilder;
use super::entry::{Entry, EntryPlace};
use super::schedule::PoolScheduler;
use super::shared::PoolShared;
use super::spare::SpareConfig;
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
/// # Blocking
///
/// A job may block: in [`sync_wait`] and whatever else drives a [`RunLoop`](crate::scheduler::RunLoop), in [`join`](crate::join), at
/// the end of a [`scope`](crate::task::scope), and where it drops another pool. Its thread gives its place in the pool to a
/// *spare* thread then, if there is work to do, and goes on without a place when the wait is over. So the pool keeps
/// running as many jobs at once as it has threads, jobs that wait for each other do not deadlock, and a thread that waits
/// runs no job of others on its stack.
///
/// Spare threads are started when they are needed, used again, and end with the pool. There are at most 512 of them, or
/// as many as [`spare_threads`](ThreadPoolBuilder::spare_threads) says. When all of them block as well, or the system does
/// not give a thread, a thread that blocks keeps its place until the first one that is free takes it over. When all threads
/// of the pool wait for jobs that are queued there, they wait for ever: a job that waits for one that waits for one, as
/// deep as there are threads. That many are not needed for waits that do not nest: while sixteen threads are blocked, what
/// was queued last, as a rule what they wait for, goes first.
///
/// A thread without a place works as before. What it schedules is queued with all workers; `join` and `bulk` share their
/// work with others if there is a worker that sleeps, whose place it takes.
///
/// Blocking in other ways, on a channel say, keeps the place; what is queued there is run by the others.
///
/// # Priorities
///
/// There are five levels: see [`Priority`](crate::Priority). Work at a higher level is taken first. None starves: of each
/// level, and of its own queue, a worker takes the oldest job at least once in
/// [`FAIRNESS`](ThreadPool::FAIRNESS) picks, whatever else there is.
/// [`Operation::raise`](crate::Operation::raise) moves what is queued to a higher level.
///
/// # The end
///
/// Dropping the pool waits until everything that it has accepted, and what comes of that, has run; then its threads
/// end. Dropped by one of its own threads, which cannot wait for itself, it returns at once, and the threads do the same on
/// their own. Dropped by a worker of another pool, that one blocks. Two jobs that each drop
/// the pool of the other wait for each other for ever. Work that arrives later, by a scheduler that was kept, goes to the
/// [global](ThreadPool::global) pool.
///
/// # Panics in jobs
///
/// A panic of user code travels down the panic channel of its sender. The worker goes on. Where there is no such channel,
/// as for a destructor that panics inside a completion, the process aborts with a message.
pub struct ThreadPool {
    shared: &'static PoolShared,
    generation: u32,
    threads: Vec<thread::JoinHandle<()>>,
    start: Arc<SpareConfig>,
}

impl ThreadPool {
    /// Of each level of priority, and of its own queue, a worker takes the oldest job at least once in so many picks.
    pub const FAIRNESS: usize = super::pick::FAIRNESS as usize;

    /// A pool of so many threads.
    ///
    /// # Panics
    ///
    /// When `threads` is zero, or the system does not give them. [`ThreadPool::builder`] has errors instead.
    pub fn new(threads: usize) -> Self {
        match ThreadPool::builder().threads(threads).build() {
            Ok(pool) => pool,
            Err(error) => error.fail(),
        }
    }

    /// How a pool is to be: threads, their names and stacks, what they do first.
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

    /// A handle that schedules onto this pool.
    #[inline]
    pub fn scheduler(&self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// How many threads it has, without the spare ones: as many run jobs at once.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// How many spare threads it has started up to now, because others blocked: see
    /// [`spare_threads`](ThreadPoolBuilder::spare_threads).
    pub fn spare_threads(&self) -> usize {
        lock(&self.start.handles).len()
    }

    /// Which of the pool's threads is calling, counted from 0; `None` when it is not one of them.
    ///
    /// The number is that of a place, which a thread that [blocks](ThreadPool#blocking) gives to a spare one. Afterwards it
    /// keeps the number that it had, until it has another place; the spare thread has the same number meanwhile.
    pub fn worker_index(&self) -> Option<usize> {
        let worker = Worker::current()?;
        worker.works_for(self.shared, self.generation).then(|| worker.index())
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
                Err(error) => error.fail(),
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
            unsafe { entry.as_ref() }.set_forwarded();
            // SAFETY: as above.
            if unsafe { pool.shared.push(entry, pool.generation) }.is_ok() {
                return Transfer::none();
            }
        }
        // SAFETY: the caller's promise.
        unsafe { resume_here(entry) }
    }

    /// The pool to which entries were forwarded, if any was.
    pub(in super::super) fn forwarded_to() -> Option<PoolScheduler> {
        GLOBAL.get().map(ThreadPool::scheduler)
    }
}
#[cfg(not(loom))]
pub(super) use global::{forward, forwarded_to};

/// # Safety
///
/// The entry is in no queue, and stays where it is until it runs.
unsafe fn resume_here(entry: NonNull<Entry>) -> Transfer {
    // It may come from a queue that somebody else, who raises it, still looks for it in.
    // SAFETY: the caller's promise.
    unsafe { entry.as_ref() }.set_place(EntryPlace::Nowhere);
    // SAFETY: as above.
    unsafe { Transfer::to(entry.cast::<Job>()) }
}

/// A model has no pool but its own: what that refuses is resumed here.
///
/// # Safety
///
/// The entry is in no queue, and stays where it is until it runs.
#[cfg(loom)]
pub(super) unsafe fn forward(entry: NonNull<Entry>) -> Transfer {
    // SAFETY: the caller's promise.
    unsafe { resume_here(entry) }
}

#[cfg(loom)]
pub(super) fn forwarded_to() -> Option<PoolScheduler> {
    None
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let (shared, generation) = (self.shared, self.generation);
        crate::sender::current::publish();
        match Worker::current() {
            // It cannot wait for itself: the threads end on their own.
            Some(worker) if worker.works_for(shared, generation) => return shared.idle.0.close(&shared.seats),
            // What is left in this pool may need the other one, so that goes on meanwhile.
            Some(worker) => shared.end_and_wait(worker, generation),
            None => shared.idle.0.close(&shared.seats),
        }
        for thread in self.threads.drain(..) {
            // A worker does not panic: it would have aborted.
            let _ = thread.join();
        }
        // All of them were started before the last worker ended.
        let spares = mem::take(&mut *lock(&self.start.handles));
        for thread in spares {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("threads", &self.threads())
            .field("spare_threads", &self.spare_threads())
            .field("most_spare_threads", &self.start.most)
            .finish_non_exhaustive()
    }
}
