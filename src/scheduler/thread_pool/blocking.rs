//! The closures of [`spawn_blocking`](crate::task::spawn_blocking): their queue, and the threads that run them.
//!
//! [`Blocking`] is a part of a pool's memory. It has one FIFO queue of [`BlockingEntry`]s, each a field of an operation. Its
//! threads are no workers: they have no seat, search for no jobs, and a closure may block there by any means. A thread is
//! started when a closure is queued and no thread is parked, up to a limit. A thread without a closure parks, and leaves when
//! it has parked for the keep-alive time. All threads leave when the pool ends.
//!
//! # Life of an entry
//!
//! [`BlockingPlace::admit`] counts a closure as *pending*. The pool does not end while a closure is pending. The count tells
//! the operation which pool has its entry, before a stop may look for the entry there. Then [`BlockingPlace::insert`] queues
//! the entry. The states are at [`BlockingState`].
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | the queue, and the links and the state of an entry that was inserted or may be stopped | the thread that holds the lock |
//! | an entry in state `Begun` | the thread that took it out, which completes its operation |
//! | an entry in state `Gone` | the thread that set the state, or `start` if it was `Idle` before |
//!
//! The lock is never held while a closure runs or an operation completes. It precedes the lock of [`Idle`](super::idle::Idle).
//!
//! # Why no closure is missed
//!
//! A thread looks at the queue and adds itself to the parked threads in one critical section. So does a thread that gives up
//! parking and leaves. So an insertion finds a parked thread, or a thread that has not looked at the queue since.

use core::cell::Cell;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::format;
use std::sync::Arc;
use std::time::Instant;
use std::vec::Vec;

use super::reactor::without_interrupts;
use super::schedule::PoolScheduler;
use super::shared::{self, PoolShared};
use super::spare::{SpareConfig, run_inside};
use crate::memory::{Beside, Links, List, links};
use crate::sync::{Mutex, lock, park, per_thread, thread};
use crate::{Job, Panic, Transfer};

/// The default of the largest number of threads.
pub(super) const MOST: usize = 512;

/// The default of the time for which a thread without a closure is kept.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The part of an operation that is linked into the queue.
#[repr(C)]
pub(crate) struct BlockingEntry {
    /// The first field, so that both have the same address.
    job: Job,
    links: Links<BlockingEntry>,
    /// Lock-protected, from the time the operation listens for a stop or is inserted.
    state: Cell<BlockingState>,
    _pinned: PhantomPinned,
}

links!(BlockingEntry, links);

/// The state of an entry. Changed under the lock of its pool only. The thread that makes a transition marked with `*`
/// completes the operation.
///
/// ```text
/// IDLE ──insert──▶ QUEUED ──take──▶ BEGUN *   a thread of the pool runs the job, which calls the closure
///   │                └────stop────▶ GONE *    the stop callback completes it
///   ├──────stop─────▶ GONE *                  the start, which finds it so, completes it
///   └─────insert────▶ BEGUN *                 there is no thread: the driver of the start runs the job
/// ```
///
/// A stop that finds an entry `BEGUN` is passed on to the token of the closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockingState {
    Idle,
    Queued,
    Begun,
    Gone,
}

impl BlockingEntry {
    /// Creates an idle entry. `run` is called by the thread that takes it.
    pub(crate) fn new(run: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        BlockingEntry {
            job: Job::new(run),
            links: Links::new(),
            state: Cell::new(BlockingState::Idle),
            _pinned: PhantomPinned,
        }
    }
}

/// The result of [`BlockingPlace::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// A thread of the pool runs the job. The operation may have been freed.
    Queued,
    /// The pool has no thread, and the system refuses one. The caller runs the job.
    Begun,
    /// The stop came first. The caller completes the operation.
    Stopped,
}

/// The result of [`BlockingPlace::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopResult {
    /// The entry was taken out of the queue. The caller completes the operation, to which it has exclusive access.
    Removed,
    /// The entry was not inserted yet. The start completes the operation.
    Early,
    /// The closure has begun, or is about to.
    Begun,
}

/// The pool that has counted a closure as pending.
#[derive(Clone, Copy)]
pub(crate) struct BlockingPlace {
    shared: &'static PoolShared,
    generation: u32,
}

impl BlockingPlace {
    /// Counts a closure of the pool as pending. If that pool has ended, of the global one. Returns `None` if there is none.
    pub(crate) fn admit(pool: Option<PoolScheduler>) -> Option<Self> {
        let own = pool.and_then(Self::admit_to);
        own.or_else(|| super::pool::blocking_fallback().and_then(Self::admit_to))
    }

    fn admit_to(pool: PoolScheduler) -> Option<Self> {
        let (shared, generation) = (pool.shared, pool.generation);
        shared
            .blocking
            .admit(shared, generation)
            .then_some(BlockingPlace { shared, generation })
    }

    /// Ends a closure that was admitted, and not inserted.
    pub(crate) fn withdraw(self) {
        self.shared.blocking.has_ended(self.shared);
    }

    /// Queues an entry, once. If the result is not [`Inserted::Queued`], the closure is not pending any more.
    ///
    /// # Safety
    ///
    /// The entry is pinned. It stays valid until its job has run, or [`stop`](BlockingPlace::stop) has returned
    /// [`StopResult::Removed`].
    pub(crate) unsafe fn insert(self, entry: NonNull<BlockingEntry>) -> Inserted {
        // SAFETY: the contract of this function.
        without_interrupts(|| unsafe { self.shared.blocking.insert(self.shared, self.generation, entry) })
    }

    /// Takes the entry out of the queue for a stop, if its closure has not begun.
    ///
    /// # Safety
    ///
    /// The entry is valid until this returns.
    pub(crate) unsafe fn stop(self, entry: NonNull<BlockingEntry>) -> StopResult {
        // SAFETY: the contract of this function.
        without_interrupts(|| unsafe { self.shared.blocking.stop(self.shared, entry) })
    }
}

/// The closures of a pool that block, and their threads.
pub(super) struct Blocking {
    inner: Mutex<BlockingQueue>,
}

struct BlockingQueue {
    queue: List<BlockingEntry, Beside<BlockingEntry>>,
    /// The number of closures that were admitted and have not ended. [`Idle`](super::idle::Idle) knows whether it is zero.
    pending: usize,
    /// The number of threads that have not left.
    threads: usize,
    /// The parked threads. The last to park is unparked first, so that the others can leave.
    parked: Vec<Parked>,
    /// The numbers of threads that have left. Together with those of the present threads they are consecutive.
    free: Vec<usize>,
    /// The generation of the pool's memory that is open, if one is.
    open: Option<u32>,
    /// `None` if there is no pool, and in a model, which starts its threads itself.
    config: Option<Arc<SpareConfig>>,
}

// SAFETY: the entries of the queue are accessed under the lock only, and may run on any thread.
unsafe impl Send for BlockingQueue {}

struct Parked {
    number: usize,
    thread: thread::Thread,
}

/// The configuration of the threads, and their join handles.
pub(super) struct BlockingConfig {
    /// The largest number of threads, at least one.
    pub(super) most: usize,
    pub(super) keep_alive: Duration,
    handles: Mutex<Handles>,
}

/// The join handles of the started threads. The drop of the pool joins them.
struct Handles {
    present: Vec<(usize, thread::JoinHandle<()>)>,
    /// The last thread that has left by itself. The next one to leave joins it.
    left: Option<thread::JoinHandle<()>>,
}

impl BlockingConfig {
    pub(super) fn new(most: usize, keep_alive: Duration) -> Self {
        BlockingConfig {
            most: most.max(1),
            keep_alive,
            handles: Mutex::new(Handles {
                present: Vec::new(),
                left: None,
            }),
        }
    }

    /// Waits for all threads, which leave.
    pub(super) fn join(&self) {
        let handles = {
            let mut handles = lock(&self.handles);
            let present = mem::take(&mut handles.present);
            present.into_iter().map(|(_, thread)| thread).chain(handles.left.take())
        };
        for thread in handles {
            // A thread never panics: it would have aborted.
            let _ = thread.join();
        }
    }

    /// Joins the thread that has left by itself before, and leaves the handle of this one to the next. The threads of a pool
    /// that is never dropped are not joined.
    fn leave(&self, number: usize, is_dropped: bool) {
        let mut handles = lock(&self.handles);
        let own = handles.present.iter().position(|(present, _)| *present == number);
        // There is none if the pool is being dropped, and joins this thread.
        let own = own.map(|at| handles.present.swap_remove(at).1);
        let before = match own {
            Some(thread) if is_dropped => handles.left.replace(thread),
            _ => None,
        };
        drop(handles);
        if let Some(before) = before {
            let _ = before.join();
        }
    }
}

impl Blocking {
    pub(super) fn new() -> Self {
        Blocking {
            inner: Mutex::new(BlockingQueue {
                queue: List::new(),
                pending: 0,
                threads: 0,
                parked: Vec::new(),
                free: Vec::new(),
                open: None,
                config: None,
            }),
        }
    }

    /// Begins a new generation without threads.
    pub(super) fn open(&self, generation: u32, config: Option<Arc<SpareConfig>>) {
        let mut inner = lock(&self.inner);
        inner.pending = 0;
        inner.threads = 0;
        inner.parked.clear();
        inner.free.clear();
        inner.open = Some(generation);
        inner.config = config;
    }

    /// Returns the number of threads that have not left.
    pub(super) fn threads(&self) -> usize {
        lock(&self.inner).threads
    }

    /// Ends the generation: no closure is pending, none is admitted any more, and all threads leave. The caller drops the
    /// result, which contains user code, when it holds no lock.
    pub(super) fn close(&self) -> Option<Arc<SpareConfig>> {
        let mut inner = lock(&self.inner);
        inner.open = None;
        for parked in inner.parked.drain(..) {
            parked.thread.unpark();
        }
        inner.config.take()
    }

    /// Counts a closure as pending. Returns `false` if the generation has ended.
    fn admit(&self, shared: &PoolShared, generation: u32) -> bool {
        let mut inner = lock(&self.inner);
        // The first pending closure keeps the pool open. `Idle` refuses it if the pool has just ended.
        if inner.open != Some(generation) || inner.pending == 0 && !shared.idle.0.blocking_begins() {
            return false;
        }
        inner.pending += 1;
        true
    }

    /// Ends a pending closure.
    fn has_ended(&self, shared: &PoolShared) {
        without_interrupts(|| lock(&self.inner).end_one(shared));
    }

    /// # Safety
    ///
    /// The contract of [`BlockingPlace::insert`].
    unsafe fn insert(
        &'static self,
        shared: &'static PoolShared,
        generation: u32,
        entry: NonNull<BlockingEntry>,
    ) -> Inserted {
        let mut inner = lock(&self.inner);
        // SAFETY: the entry is valid, by the contract of this function, and the lock protects its state.
        let state = unsafe { &entry.as_ref().state };
        if state.get() != BlockingState::Idle {
            inner.end_one(shared);
            return Inserted::Stopped;
        }
        let woken = inner.parked.pop();
        if woken.is_none() {
            inner.start_thread(shared, generation);
            if inner.threads == 0 {
                state.set(BlockingState::Begun);
                inner.end_one(shared);
                return Inserted::Begun;
            }
        }
        state.set(BlockingState::Queued);
        // SAFETY: the entry is in no queue, and stays valid until it is taken out, by the contract of this function.
        unsafe { inner.queue.push_back(entry) };
        drop(inner);
        if let Some(parked) = woken {
            parked.thread.unpark();
        }
        Inserted::Queued
    }

    /// # Safety
    ///
    /// The contract of [`BlockingPlace::stop`].
    unsafe fn stop(&self, shared: &PoolShared, entry: NonNull<BlockingEntry>) -> StopResult {
        let mut inner = lock(&self.inner);
        // SAFETY: the entry is valid, by the contract of this function, and the lock protects its state.
        let state = unsafe { &entry.as_ref().state };
        match state.get() {
            BlockingState::Queued => {
                state.set(BlockingState::Gone);
                // SAFETY: a queued entry is in the queue of the pool that admitted it, which is this one.
                unsafe { inner.queue.remove(entry) };
                inner.end_one(shared);
                StopResult::Removed
            }
            BlockingState::Idle => {
                state.set(BlockingState::Gone);
                StopResult::Early
            }
            BlockingState::Begun | BlockingState::Gone => StopResult::Begun,
        }
    }

    /// Takes the oldest closure. Parks until there is one. Returns `None` if the thread leaves: it is not counted any more.
    fn next(&self, number: usize) -> Option<NonNull<Job>> {
        let mut inner = lock(&self.inner);
        let keep_alive = inner.config.as_ref().map(|config| config.blocking.keep_alive);
        // The time at which the thread leaves. `None` never comes.
        let until = keep_alive.and_then(|keep_alive| Instant::now().checked_add(keep_alive));
        loop {
            if let Some(entry) = inner.queue.pop_front() {
                // SAFETY: an entry in the queue is valid, and the lock protects its state.
                unsafe { entry.as_ref() }.state.set(BlockingState::Begun);
                // The job is the first field of the entry.
                return Some(entry.cast());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if inner.open.is_none() || left.is_some_and(|left| left.is_zero()) {
                inner.threads -= 1;
                inner.free.push(number);
                return None;
            }
            inner.parked.push(Parked {
                number,
                thread: thread::current(),
            });
            drop(inner);
            // User code may have left an unpark, so the thread may return at any time.
            park(left);
            inner = lock(&self.inner);
            inner.parked.retain(|parked| parked.number != number);
        }
    }
}

impl BlockingQueue {
    /// Ends a pending closure. After the last one, the pool may end.
    fn end_one(&mut self, shared: &PoolShared) {
        self.pending -= 1;
        if self.pending == 0 {
            shared.idle.0.blocking_is_over(&shared.seats);
        }
    }

    /// Starts a thread, unless their number is at its limit or the system refuses. A closure is pending, so the pool cannot
    /// end meanwhile.
    fn start_thread(&mut self, shared: &'static PoolShared, generation: u32) {
        let Some(config) = &self.config else { return };
        if self.threads >= config.blocking.most {
            return;
        }
        let number = self.free.pop().unwrap_or(self.threads);
        // The lists of a thread that parks or leaves have room for it, so that it does not allocate then.
        let threads = self.threads + 1;
        self.parked.reserve(threads.saturating_sub(self.parked.len()));
        self.free.reserve(threads + 1);
        let mut builder = thread::Builder::new();
        if let Some(name) = config.names.first() {
            builder = builder.name(format!("{name}-blocking-{number}"));
        }
        if let Some(bytes) = config.stack_size {
            builder = builder.stack_size(bytes);
        }
        let hooks = config.hooks.clone();
        // The indices of the spare threads come before.
        let index = shared.seats.len().saturating_add(config.most).saturating_add(number);
        shared.arrive();
        // The caller must not unwind, since other threads know its operation. So a panic counts as a refusal of the system.
        let spawned =
            Panic::catch(|| builder.spawn(move || run_inside(&hooks, index, || serve(shared, generation, number))));
        match spawned {
            Ok(Ok(handle)) => {
                self.threads += 1;
                lock(&config.blocking.handles).present.push((number, handle));
            }
            refused => {
                self.free.push(number);
                // This is not the last thread to leave: the workers are counted until the pool ends.
                shared.leave(generation);
                _ = Panic::catch(|| drop(refused)).map_err(Panic::discard);
            }
        }
    }
}

/// Runs closures until the thread leaves.
fn serve(shared: &'static PoolShared, generation: u32, number: usize) {
    let here = Here(ptr::from_ref(shared), generation);
    let config = lock(&shared.blocking.inner).config.clone();
    HERE.with(|current| current.set(Some(here)));
    while let Some(job) = shared.blocking.next(number) {
        // SAFETY: the job was taken out of the queue, and runs once.
        unsafe { Job::run(job) }.run();
        // After the jobs that follow from the closure, so that the pool waits for them, too.
        shared.blocking.has_ended(shared);
    }
    if let Some(config) = config {
        let global = super::pool::forwarded_to().map(|pool| Here(ptr::from_ref(pool.shared), pool.generation));
        config.blocking.leave(number, global != Some(here));
        // Contains user code, whose destructor may panic.
        _ = Panic::catch(|| drop(config)).map_err(Panic::discard);
    }
    shared::part(shared, generation);
}

/// A pool, as a thread knows that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Here(*const PoolShared, u32);

per_thread! {
    /// The pool whose blocking closures this thread runs. Still set when the thread-local values of closures are dropped, which may own the
    /// pool. No thread changes its pool.
    static HERE: Cell<Option<Here>> = Cell::new(None);
}

/// Returns whether the calling thread runs the blocking closures of this pool.
pub(super) fn is_here(shared: &'static PoolShared, generation: u32) -> bool {
    HERE.with(Cell::get) == Some(Here(ptr::from_ref(shared), generation))
}

/// Access for models.
#[cfg(loom)]
impl PoolShared {
    /// Counts a thread that the model starts for blocking closures, and returns its number.
    pub(super) fn expect_blocking_thread(&self) -> usize {
        self.arrive();
        let mut inner = lock(&self.blocking.inner);
        inner.threads += 1;
        inner.threads - 1
    }

    /// Runs blocking closures until the pool ends, on a thread that was expected.
    pub(super) fn serve_blocking(&'static self, generation: u32, number: usize) {
        serve(self, generation, number);
    }
}
