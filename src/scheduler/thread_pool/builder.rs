use core::fmt;
use core::mem;
use core::time::Duration;
use std::boxed::Box;
use std::format;
use std::io;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use super::affinity;
use super::barrier;
use super::blocking::{self, BlockingConfig};
use super::idle::MAX_WORKERS;
use super::pool::ThreadPool;
use super::reactor::Reactor;
use super::shared::{self, PoolShared};
use super::spare::{self, SpareConfig};
use super::worker::Worker;
use crate::Panic;
use crate::sync::{Condvar, Mutex, lock, thread, wait};

/// A builder of a [`ThreadPool`]. Created by [`ThreadPool::builder`].
///
/// ```
/// use bowline::scheduler::ThreadPool;
///
/// let pool = ThreadPool::builder()
///     .threads(2)
///     .names(|index| format!("baker-{index}"))
///     .stack_size(256 * 1024)
///     .on_start(|index| println!("worker {index} is here"))
///     .build()?;
/// assert_eq!(pool.threads(), 2);
/// # Ok::<(), bowline::scheduler::BuildError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct ThreadPoolBuilder {
    threads: Option<usize>,
    names: Box<dyn Fn(usize) -> String>,
    stack_size: Option<usize>,
    hooks: ThreadHooks,
    pin_to_cores: bool,
    spare_threads: usize,
    blocking_threads: usize,
    blocking_keep_alive: Duration,
    membarrier: bool,
}

/// The user's functions for each thread of a pool, and what a thread waits in.
#[derive(Clone)]
pub(super) struct ThreadHooks {
    on_start: Arc<dyn Fn(usize) + Send + Sync>,
    around: Arc<Around>,
    pub(super) reactor: Option<Arc<dyn Reactor>>,
}

/// A function that calls its second argument, the run of a thread.
type Around = dyn Fn(usize, &mut dyn FnMut()) + Send + Sync;

impl ThreadHooks {
    /// Calls the function of [`on_start`](ThreadPoolBuilder::on_start).
    pub(super) fn start(&self, index: usize) -> Result<(), Panic> {
        Panic::catch(|| (self.on_start)(index))
    }

    /// Runs a thread inside the function of [`around`](ThreadPoolBuilder::around). Returns whether `run` was called, or the
    /// panic of that function. `run` does not unwind.
    pub(super) fn wrap(&self, index: usize, run: impl FnOnce()) -> (bool, Result<(), Panic>) {
        let mut run = Some(run);
        let mut once = || {
            if let Some(run) = run.take() {
                run();
            }
        };
        let wrapped = Panic::catch(|| (self.around)(index, &mut once));
        (run.is_none(), wrapped)
    }
}

/// Returns the number of threads that the machine runs at once.
pub(super) fn machine_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl ThreadPoolBuilder {
    pub(super) fn new() -> Self {
        ThreadPoolBuilder {
            threads: None,
            names: Box::new(|index| format!("bowline-{index}")),
            stack_size: None,
            hooks: ThreadHooks {
                on_start: Arc::new(|_| ()),
                around: Arc::new(|_, run| run()),
                reactor: None,
            },
            pin_to_cores: false,
            spare_threads: spare::MOST,
            blocking_threads: blocking::MOST,
            blocking_keep_alive: blocking::KEEP_ALIVE,
            membarrier: true,
        }
    }

    /// Sets the number of threads. The default is one for each processor available to the process.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the names of the threads, by index. The default is `bowline-0` and so on.
    ///
    /// A [spare](ThreadPoolBuilder::spare_threads) thread has the name of the thread that it was started for, followed
    /// by its own number: `bowline-1-spare-0`.
    pub fn names(mut self, names: impl Fn(usize) -> String + 'static) -> Self {
        self.names = Box::new(names);
        self
    }

    /// Sets the stack size of each thread, in bytes. The default is the one of `std::thread`.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets a function that each thread calls with its index, before its first job.
    ///
    /// If the function panics, no pool is built: see [`BuildError::OnStart`].
    ///
    /// [Spare](ThreadPoolBuilder::spare_threads) threads call it too, when they are started, with indices beyond the
    /// workers' own. A spare thread for which it panics works nevertheless.
    pub fn on_start(mut self, on_start: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.hooks.on_start = Arc::new(on_start);
        self
    }

    /// Sets a function that each thread runs inside of, from its start to its end. The function is called with the thread's
    /// index, and calls the second argument, which returns when the pool ends.
    ///
    /// So each thread can have something on its stack that its jobs need: a guard, the context of a runtime, a span.
    ///
    /// ```
    /// use bowline::scheduler::ThreadPool;
    /// use std::cell::Cell;
    ///
    /// thread_local!(static OVEN: Cell<Option<usize>> = const { Cell::new(None) });
    ///
    /// let pool = ThreadPool::builder()
    ///     .threads(1)
    ///     .around(|index, run| {
    ///         OVEN.set(Some(index));
    ///         run();
    ///         OVEN.set(None);
    ///     })
    ///     .build()?;
    /// assert_eq!(pool.install(|| OVEN.get()), Some(0));
    /// # Ok::<(), bowline::scheduler::BuildError>(())
    /// ```
    ///
    /// If the function panics before the call, or makes no call, no pool is built: see [`BuildError::OnStart`] and
    /// [`BuildError::NotRun`]. A second call returns at once. The drop of the pool waits until the function has returned.
    ///
    /// [Spare](ThreadPoolBuilder::spare_threads) threads run inside of it too, with indices beyond the workers' own. A spare
    /// thread for which it panics, or makes no call, works nevertheless.
    pub fn around(mut self, around: impl Fn(usize, &mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.hooks.around = Arc::new(around);
        self
    }

    /// Sets a source of events, which an idle worker waits for. The default is none: idle workers sleep.
    ///
    /// One worker at a time waits there, and runs the jobs that its events have made ready. See [`Reactor`].
    pub fn reactor(mut self, reactor: impl Reactor) -> Self {
        self.hooks.reactor = Some(Arc::new(reactor));
        self
    }

    /// Sets whether each thread is pinned to one processor, in turn over those available to the process.
    ///
    /// Works on Linux only. Elsewhere, and where the system refuses, it has no effect. Spare threads are not pinned.
    pub fn pin_to_cores(mut self, pin: bool) -> Self {
        self.pin_to_cores = pin;
        self
    }

    /// Sets the largest number of spare threads, which take the places of threads that [block](ThreadPool#blocking).
    /// The default is 512.
    ///
    /// They are started one by one, on demand, and kept until the pool ends. With 0, a thread that blocks keeps its
    /// place.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::ThreadPool;
    ///
    /// let pool = ThreadPool::builder().threads(1).spare_threads(4).build()?;
    /// // The one thread waits for a job, which needs a thread.
    /// let six = pool.install(|| sync_wait(pool.scheduler().schedule().then(|()| 6)).unwrap());
    /// assert_eq!(six, 6);
    /// assert_eq!(pool.spare_threads(), 1);
    /// # Ok::<(), bowline::scheduler::BuildError>(())
    /// ```
    pub fn spare_threads(mut self, most: usize) -> Self {
        self.spare_threads = most;
        self
    }

    /// Sets the largest number of threads that run the closures of [`spawn_blocking`](crate::task::spawn_blocking) at once.
    /// Further closures wait, in order. The default is 512. Zero counts as one.
    ///
    /// These threads are started one by one, on demand, and reused. A thread ends when it has had no closure for the time of
    /// [`blocking_keep_alive`](ThreadPoolBuilder::blocking_keep_alive), or with the pool. They are no workers, and no
    /// [spare](ThreadPoolBuilder::spare_threads) threads either: a closure never takes the place of a job.
    ///
    /// A thread has the name of the first worker, followed by its own number: `bowline-0-blocking-0`. The functions of
    /// [`on_start`](ThreadPoolBuilder::on_start) and [`around`](ThreadPoolBuilder::around) are called as for a spare thread, with
    /// indices beyond those of the spare threads.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::ThreadPool;
    ///
    /// let pool = ThreadPool::builder().threads(1).blocking_threads(4).build()?;
    /// let name = pool.scheduler().spawn_blocking(|_| std::thread::current().name().map(str::to_owned));
    /// assert_eq!(sync_wait(name).unwrap().as_deref(), Some("bowline-0-blocking-0"));
    /// # Ok::<(), bowline::scheduler::BuildError>(())
    /// ```
    pub fn blocking_threads(mut self, most: usize) -> Self {
        self.blocking_threads = most;
        self
    }

    /// Sets how long a thread of [`blocking_threads`](ThreadPoolBuilder::blocking_threads) waits for another closure before it
    /// ends. The default is ten seconds. A duration beyond what the clock can represent keeps all threads until the pool ends.
    pub fn blocking_keep_alive(mut self, keep_alive: Duration) -> Self {
        self.blocking_keep_alive = keep_alive;
        self
    }

    /// Sets whether the pool uses Linux's system call `membarrier`. The default is `true`.
    ///
    /// With it, a worker queues and runs its newest job, children of tasks, and the forks of `join`, without atomic
    /// read-modify-writes, as long as no other worker takes them. So does a task with the lists of its children. A thread
    /// that goes to sleep, or takes or changes what another one keeps for itself, interrupts the other threads of the
    /// process for a moment. Where the system does not have the call, or refuses it, the pool does without.
    pub fn membarrier(mut self, membarrier: bool) -> Self {
        self.membarrier = membarrier;
        self
    }

    /// Starts the threads and returns the pool when all of them are ready.
    ///
    /// # Errors
    ///
    /// - The number of threads is zero or too large, or a name is invalid.
    /// - The system refuses a thread, or the function of [`on_start`](ThreadPoolBuilder::on_start) panics. Threads that
    ///   were started have ended by then.
    ///
    /// # Panics
    ///
    /// With the panic of the function of [`names`](ThreadPoolBuilder::names), which is called before any thread is
    /// started.
    pub fn build(self) -> Result<ThreadPool, BuildError> {
        let wanted = self.threads.unwrap_or_else(machine_threads);
        if wanted == 0 {
            return Err(BuildError::NoThreads);
        }
        if wanted > MAX_WORKERS {
            return Err(BuildError::TooMany { wanted });
        }
        // Before any thread is started: the function is user code, and may panic.
        let names: Vec<String> = (0..wanted).map(&self.names).collect();
        if let Some(index) = names.iter().position(|name| name.contains('\0')) {
            return Err(BuildError::Name { index });
        }
        // Started threads wait at the gate. If this function returns early or unwinds, `threads` sends them away.
        let shared = shared::obtain(wanted);
        let gate = Arc::new(Gate::new());
        let mut threads = StartedThreads {
            threads: Vec::with_capacity(wanted),
            gate: gate.clone(),
            shared,
            work: false,
        };
        // Start all threads. A refusal ends the loop, and is reported after the started ones have arrived.
        let mut refused = None;
        for (index, name) in names.iter().enumerate() {
            let mut builder = thread::Builder::new().name(name.clone());
            if let Some(bytes) = self.stack_size {
                builder = builder.stack_size(bytes);
            }
            let (gate, hooks, pin) = (gate.clone(), self.hooks.clone(), self.pin_to_cores);
            match builder.spawn(move || work(shared, index, &gate, &hooks, pin)) {
                Ok(thread) => threads.threads.push(thread),
                Err(source) => {
                    refused = Some(BuildError::Spawn {
                        started: index,
                        wanted,
                        source,
                    });
                    break;
                }
            }
        }
        // A failure of `on_start` is known once all started threads have arrived.
        let failed = gate.wait_for(threads.threads.len());
        if let Some(error) = refused.or(failed) {
            return Err(error);
        }
        let start = Arc::new(SpareConfig {
            names,
            stack_size: self.stack_size,
            hooks: self.hooks,
            most: self.spare_threads,
            blocking: BlockingConfig::new(self.blocking_threads, self.blocking_keep_alive),
            handles: Mutex::new(Vec::new()),
        });
        // Only now the pool accepts work. The verdict tells the threads its generation.
        let light = self.membarrier && barrier::is_available();
        let generation = shared.open(Some(start.clone()), light);
        gate.open(GateVerdict::Work(generation));
        Ok(ThreadPool::assemble(shared, generation, threads.into_working(), start))
    }
}

/// The threads of a pool that is being built. If it is dropped, it sends them away and joins them. That happens also if
/// starting a thread panics.
struct StartedThreads {
    threads: Vec<thread::JoinHandle<()>>,
    gate: Arc<Gate>,
    shared: &'static PoolShared,
    work: bool,
}

impl StartedThreads {
    /// Returns the threads, which have gone to work.
    fn into_working(mut self) -> Vec<thread::JoinHandle<()>> {
        self.work = true;
        mem::take(&mut self.threads)
    }
}

impl Drop for StartedThreads {
    fn drop(&mut self) {
        if self.work {
            return;
        }
        self.gate.open(GateVerdict::Leave);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        shared::retire(self.shared);
    }
}

/// Runs the thread of a worker until the pool ends.
fn work(shared: &'static PoolShared, index: usize, gate: &Gate, hooks: &ThreadHooks, pin: bool) {
    if pin {
        affinity::pin_to(index);
    }
    let on_start = |payload| BuildError::OnStart { index, payload };
    let (ran, wrapped) = hooks.wrap(index, || {
        if let GateVerdict::Work(generation) = gate.report(hooks.start(index).map_err(on_start)) {
            Worker::new(shared, generation, index, hooks.reactor.clone()).run();
            shared::part(shared, generation);
        }
    });
    match wrapped {
        // The pool is being built, and this thread has not reported yet.
        Err(payload) if !ran => _ = gate.report(Err(on_start(payload))),
        Ok(()) if !ran => _ = gate.report(Err(BuildError::NotRun { index })),
        // The panic hook has reported a panic after the end of the pool.
        Err(payload) => payload.discard(),
        Ok(()) => {}
    }
}

/// A barrier for the threads of a pool that is being built.
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    arrived: usize,
    failed: Option<BuildError>,
    verdict: Option<GateVerdict>,
}

#[derive(Clone, Copy)]
enum GateVerdict {
    /// All threads are ready: the pool begins, in this generation.
    Work(u32),
    /// The build failed: the threads leave.
    Leave,
}

impl Gate {
    fn new() -> Self {
        Gate {
            state: Mutex::new(GateState {
                arrived: 0,
                failed: None,
                verdict: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Reports that a thread has started, and waits for the verdict.
    fn report(&self, started: Result<(), BuildError>) -> GateVerdict {
        self.when(
            |state| {
                state.arrived += 1;
                if let Err(error) = started {
                    state.failed.get_or_insert(error);
                }
            },
            |state| state.verdict,
        )
    }

    /// Waits for this many threads, and returns the first failure.
    fn wait_for(&self, threads: usize) -> Option<BuildError> {
        self.when(|_| (), |state| (state.arrived == threads).then(|| state.failed.take()))
    }

    fn open(&self, verdict: GateVerdict) {
        self.when(|state| state.verdict = Some(verdict), |_| Some(()));
    }

    /// Changes the state, then waits until `answer` returns a value.
    fn when<T>(&self, change: impl FnOnce(&mut GateState), answer: impl Fn(&mut GateState) -> Option<T>) -> T {
        let mut state = lock(&self.state);
        change(&mut state);
        self.changed.notify_all();
        loop {
            if let Some(answer) = answer(&mut state) {
                return answer;
            }
            state = wait(&self.changed, &self.state, state);
        }
    }
}

impl fmt::Debug for ThreadPoolBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPoolBuilder")
            .field("threads", &self.threads)
            .field("stack_size", &self.stack_size)
            .field("pin_to_cores", &self.pin_to_cores)
            .field("spare_threads", &self.spare_threads)
            .field("blocking_threads", &self.blocking_threads)
            .field("blocking_keep_alive", &self.blocking_keep_alive)
            .finish_non_exhaustive()
    }
}

/// The error of [`ThreadPoolBuilder::build`].
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// Zero threads were requested.
    NoThreads,
    /// More threads were requested than a pool can have.
    TooMany {
        /// The requested number.
        wanted: usize,
    },
    /// The name of a thread contains a zero byte. No thread was started.
    Name {
        /// The index of the thread.
        index: usize,
    },
    /// The system refused to start a thread. The threads that were started have ended.
    Spawn {
        /// The number of threads that were started.
        started: usize,
        /// The requested number.
        wanted: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// The function of [`on_start`](ThreadPoolBuilder::on_start) or of [`around`](ThreadPoolBuilder::around) panicked. All threads
    /// have ended.
    OnStart {
        /// The index of the first worker for which it panicked.
        index: usize,
        /// The payload of the panic.
        payload: Panic,
    },
    /// The function of [`around`](ThreadPoolBuilder::around) has returned without running the thread. All threads have ended.
    NotRun {
        /// The index of the first worker for which it returned.
        index: usize,
    },
}

impl BuildError {
    /// Panics with the error and its source.
    pub(super) fn fail(&self) -> ! {
        match std::error::Error::source(self) {
            Some(source) => panic!("{self}: {source}"),
            None => panic!("{self}"),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoThreads => f.write_str("thread pool needs at least one thread"),
            BuildError::TooMany { wanted } => {
                write!(f, "thread pool has at most {MAX_WORKERS} threads, not {wanted}")
            }
            BuildError::Name { index } => write!(f, "name of worker {index} contains a zero byte"),
            BuildError::Spawn { started, wanted, .. } => {
                write!(f, "failed to spawn a worker: only {started} of {wanted} started")
            }
            BuildError::OnStart { index, payload } => {
                let message = payload.message().unwrap_or("(no message)");
                write!(f, "`on_start` panicked for worker {index}: {message}")
            }
            BuildError::NotRun { index } => write!(f, "`around` returned without running worker {index}"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Spawn { source, .. } => Some(source),
            _ => None,
        }
    }
}
