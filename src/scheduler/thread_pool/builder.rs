use core::fmt;
use core::mem;
use std::boxed::Box;
use std::format;
use std::io;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use super::affinity;
use super::idle::MAX_WORKERS;
use super::pool::ThreadPool;
use super::shared::{self, PoolShared};
use super::spare::{self, SpareConfig};
use super::worker::Worker;
use crate::Panic;
use crate::sync::{Condvar, Mutex, lock, thread, wait};

/// How a [`ThreadPool`] is to be. Made by [`ThreadPool::builder`].
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
    on_start: Arc<dyn Fn(usize) + Send + Sync>,
    pin_to_cores: bool,
    spare_threads: usize,
}

/// As many threads as the machine runs at once.
pub(super) fn machine_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl ThreadPoolBuilder {
    pub(super) fn new() -> Self {
        ThreadPoolBuilder {
            threads: None,
            names: Box::new(|index| format!("bowline-{index}")),
            stack_size: None,
            on_start: Arc::new(|_| ()),
            pin_to_cores: false,
            spare_threads: spare::MOST,
        }
    }

    /// How many threads. Without this, one for each processor that the system lets the process use.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// What the threads are called, by their index. Without this, `bowline-0` and so on.
    ///
    /// A [spare](ThreadPoolBuilder::spare_threads) thread has the name of the thread that it was started for, its own
    /// number added: `bowline-1-spare-0`.
    pub fn names(mut self, names: impl Fn(usize) -> String + 'static) -> Self {
        self.names = Box::new(names);
        self
    }

    /// How much stack each has, in bytes. Without this, what `std::thread` gives.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// What each thread does before its first job, with its index.
    ///
    /// If it panics, no pool is built: see [`BuildError::OnStart`].
    ///
    /// [Spare](ThreadPoolBuilder::spare_threads) threads do it too, when they are started. Their indices come after those of
    /// the others. One for which it panics works nevertheless.
    pub fn on_start(mut self, on_start: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_start = Arc::new(on_start);
        self
    }

    /// Whether each thread stays on one processor, in turn over those that the process may use.
    ///
    /// On Linux alone; elsewhere it is without effect, as it is where the system refuses. Spare threads run anywhere.
    pub fn pin_to_cores(mut self, pin: bool) -> Self {
        self.pin_to_cores = pin;
        self
    }

    /// How many spare threads there may be, which take the places of threads that [block](ThreadPool#blocking). Without this,
    /// 512.
    ///
    /// They are started one by one when they are needed, and then kept until the pool ends. With 0 a thread that blocks
    /// merely blocks.
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

    /// Starts the threads and gives the pool once all of them are ready.
    ///
    /// # Errors
    ///
    /// When there are to be no threads, or too many, when a name cannot be one, when the system does not give one of the
    /// threads, or when the function of [`on_start`](ThreadPoolBuilder::on_start) panicked. Those that were started have
    /// ended then.
    ///
    /// # Panics
    ///
    /// With the panic of the function of [`names`](ThreadPoolBuilder::names), which is called before any thread is started.
    pub fn build(self) -> Result<ThreadPool, BuildError> {
        let wanted = self.threads.unwrap_or_else(machine_threads);
        if wanted == 0 {
            return Err(BuildError::NoThreads);
        }
        if wanted > MAX_WORKERS {
            return Err(BuildError::TooMany { wanted });
        }
        // Before anything is started: the function is the user's, and may panic.
        let names: Vec<String> = (0..wanted).map(&self.names).collect();
        if let Some(index) = names.iter().position(|name| name.contains('\0')) {
            return Err(BuildError::Name { index });
        }
        let shared = shared::obtain(wanted);
        let gate = Arc::new(Gate::new());
        let mut threads = StartedThreads {
            threads: Vec::with_capacity(wanted),
            gate: gate.clone(),
            shared,
            work: false,
        };
        let mut refused = None;
        for (index, name) in names.iter().enumerate() {
            let mut builder = thread::Builder::new().name(name.clone());
            if let Some(bytes) = self.stack_size {
                builder = builder.stack_size(bytes);
            }
            let (gate, on_start, pin) = (gate.clone(), self.on_start.clone(), self.pin_to_cores);
            match builder.spawn(move || work(shared, index, &gate, on_start, pin)) {
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
        let failed = gate.wait_for(threads.threads.len());
        if let Some(error) = refused.or(failed) {
            return Err(error);
        }
        let start = Arc::new(SpareConfig {
            names,
            stack_size: self.stack_size,
            on_start: self.on_start,
            most: self.spare_threads,
            handles: Mutex::new(Vec::new()),
        });
        let generation = shared.open(Some(start.clone()));
        gate.open(GateVerdict::Work(generation));
        Ok(ThreadPool::assemble(shared, generation, threads.into_working(), start))
    }
}

/// The threads of a pool that is being built. Dropped, it sends them away and waits until they have ended: also when the
/// system's way to start a thread panics.
struct StartedThreads {
    threads: Vec<thread::JoinHandle<()>>,
    gate: Arc<Gate>,
    shared: &'static PoolShared,
    work: bool,
}

impl StartedThreads {
    /// They have gone to work.
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

/// The life of a worker's thread.
fn work(shared: &'static PoolShared, index: usize, gate: &Gate, on_start: Arc<dyn Fn(usize) + Send + Sync>, pin: bool) {
    if pin {
        affinity::pin_to(index);
    }
    let started = Panic::catch(|| on_start(index));
    drop(on_start);
    if let GateVerdict::Work(generation) =
        gate.report(started.map_err(|payload| BuildError::OnStart { index, payload }))
    {
        Worker::new(shared, generation, index).run();
        shared::part(shared, generation);
    }
}

/// Where the threads of a pool that is being built wait for each other.
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
    /// All are there: the pool begins, in this generation.
    Work(u32),
    /// There will be no pool.
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

    /// A thread is there. It learns what is to become of it.
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

    /// Waits for so many threads, and tells whether one failed.
    fn wait_for(&self, threads: usize) -> Option<BuildError> {
        self.when(|_| (), |state| (state.arrived == threads).then(|| state.failed.take()))
    }

    fn open(&self, verdict: GateVerdict) {
        self.when(|state| state.verdict = Some(verdict), |_| Some(()));
    }

    /// Changes the state, then waits until it answers.
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
            .finish_non_exhaustive()
    }
}

/// Why there is no pool.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// It was to have zero threads: nothing would ever run.
    NoThreads,
    /// It was to have more threads than a pool can count.
    TooMany {
        /// How many were wanted.
        wanted: usize,
    },
    /// A thread was to have a name with a zero byte in it, which no system takes. None was started.
    Name {
        /// Which one.
        index: usize,
    },
    /// The system did not give a thread. Those started before have ended again.
    Spawn {
        /// How many it gave.
        started: usize,
        /// How many were wanted.
        wanted: usize,
        /// What it said.
        source: io::Error,
    },
    /// The function given to [`on_start`](ThreadPoolBuilder::on_start) panicked. All threads have ended again.
    OnStart {
        /// The first worker it panicked for.
        index: usize,
        /// What it panicked with.
        payload: Panic,
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
