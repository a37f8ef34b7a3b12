//! A pool of bowline's whose workers wait for tokio's sockets and timers themselves.
//!
//! The pool owns a runtime of the flavor `current_thread`. The thread that is inside `Runtime::block_on` drives it: a worker
//! without a job, or the *reserve*, a thread that takes over while all workers are busy. tokio passes the runtime from one
//! thread in `block_on` to the next.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bowline::scheduler::{PoolScheduler, Reactor, ThreadPool, ThreadPoolBuilder};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::inside;

/// How often the reserve looks whether a worker waits for events.
const TICK: Duration = Duration::from_millis(2);

/// A pool of bowline's with a tokio runtime of its own, for whose sockets and timers the pool's idle workers wait.
///
/// A request that arrives is served by the thread that has waited for it, as on tokio's own threads. The tasks have the pool's
/// priorities and work stealing. While all workers are busy, a further thread waits for events, after some milliseconds.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tokio::IoPool;
/// use std::time::Duration;
///
/// let pool = IoPool::new(2)?;
/// let work = Task::new(async {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     tokio::spawn(async { 6 * 7 }).await.unwrap()
/// });
/// assert_eq!(sync_wait(starts_on(pool.scheduler(), work)).unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Futures of `tokio::spawn` run on the thread that waits for events, one after the other, as on every runtime of one thread. So
/// they must not block, not even for jobs of the pool.
///
/// The drop waits for the queued jobs, as that of a [`ThreadPool`], and then shuts the runtime down, on a thread of its own. So a
/// pool may be dropped anywhere: in a task of another runtime, and in its own tasks, which do not wait for their own end. A task that
/// waits for a socket or a timer of the runtime is woken by the shutdown. It continues on the global pool, where a socket returns an
/// error and a timer panics. What waits for anything else continues there later.
pub struct IoPool {
    /// `None` only during the drop.
    pool: Option<ThreadPool>,
    /// `None` only before the thread was started.
    reserve: Option<JoinHandle<()>>,
    /// `None` only during the drop.
    driver: Option<Arc<Driver>>,
    reserve_calls: Arc<ReserveCalls>,
    handle: Handle,
}

impl IoPool {
    /// Creates a pool with this number of workers.
    ///
    /// # Errors
    ///
    /// Those of [`IoPool::with`].
    pub fn new(threads: usize) -> io::Result<Self> {
        IoPool::with(ThreadPool::builder().threads(threads))
    }

    /// Creates a pool with these settings. Replaces those of [`around`](ThreadPoolBuilder::around) and
    /// [`reactor`](ThreadPoolBuilder::reactor).
    ///
    /// # Errors
    ///
    /// The system refuses the runtime or a thread, or [`ThreadPoolBuilder::build`] fails. In that case the error contains the
    /// [`BuildError`](bowline::scheduler::BuildError).
    pub fn with(builder: ThreadPoolBuilder) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let reserve_calls = Arc::new(ReserveCalls::default());
        let driver = Arc::new(Driver {
            runtime,
            worker: Call::default(),
            reserve: reserve_calls.clone(),
            turns: AtomicUsize::new(0),
            is_reserve_resting: AtomicBool::new(false),
            is_reserve_driving: AtomicBool::new(false),
            reserve_thread: Mutex::new(None),
        });
        let mut pool = IoPool {
            pool: None,
            reserve: None,
            driver: Some(driver.clone()),
            reserve_calls,
            handle: handle.clone(),
        };
        // Made first: if the system refuses the thread, its reference to the driver is dropped before that of the pool.
        let workers = inside(&handle, builder).reactor(driver.clone());
        let reserve = thread::Builder::new().name("bowline-reserve".to_owned());
        let reserve = reserve.spawn(move || driver.stand_by())?;
        if let Some(driver) = &pool.driver {
            *lock(&driver.reserve_thread) = Some(reserve.thread().clone());
        }
        pool.reserve = Some(reserve);
        let workers = workers.build();
        pool.pool = Some(workers.map_err(io::Error::other)?);
        Ok(pool)
    }

    /// Returns the pool of threads.
    ///
    /// # Panics
    ///
    /// Never: the pool exists until the drop.
    pub fn threads(&self) -> &ThreadPool {
        match &self.pool {
            Some(pool) => pool,
            None => unreachable!("the pool exists until the drop"),
        }
    }

    /// Returns the scheduler of the workers.
    pub fn scheduler(&self) -> PoolScheduler {
        self.threads().scheduler()
    }

    /// Returns a handle of the runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for IoPool {
    fn drop(&mut self) {
        // Its jobs need the runtime until they have ended.
        drop(self.pool.take());
        let Some(driver) = self.driver.take() else {
            return;
        };
        let Some(reserve) = self.reserve.take() else {
            // The system has refused the thread.
            if let Some(driver) = Arc::into_inner(driver) {
                driver.runtime.shutdown_background();
            }
            return;
        };
        // The last reference drops the runtime, which waits for its blocking tasks. That panics in an asynchronous context, which the
        // calling thread may be inside of. The reserve keeps a reference until it hears of the end, so this one is not the last.
        drop(driver);
        self.reserve_calls.has_ended.store(true, SeqCst);
        self.reserve_calls.turn.call();
        reserve.thread().unpark();
        // The last future of the runtime may drop the pool, on the reserve itself.
        if reserve.thread().id() != thread::current().id() {
            _ = reserve.join();
        }
    }
}

impl fmt::Debug for IoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoPool")
            .field("threads", &self.pool)
            .finish_non_exhaustive()
    }
}

/// The runtime, and the threads that drive it.
struct Driver {
    runtime: Runtime,
    /// Ends the turn of the worker that waits.
    worker: Call,
    reserve: Arc<ReserveCalls>,
    /// The number of turns of workers that have begun, and of those that have ended. So it is odd while a worker waits.
    /// Written by workers, one at a time. This and the flags are sequentially consistent, because workers and the reserve each
    /// write one and then read another.
    turns: AtomicUsize,
    /// Whether the reserve sleeps until a worker ends its turn. Written by the reserve; cleared by a worker, which unparks it.
    is_reserve_resting: AtomicBool,
    /// Whether the reserve drives, or is about to. Written by the reserve. A worker that reads it calls the reserve off.
    is_reserve_driving: AtomicBool,
    reserve_thread: Mutex<Option<thread::Thread>>,
}

/// What the reserve is told. Apart from the driver, so that the pool tells the reserve of the end without a reference to the runtime.
#[derive(Default)]
struct ReserveCalls {
    /// Ends the turn of the reserve.
    turn: Call,
    /// Whether the pool has ended. Set once, by the drop.
    has_ended: AtomicBool,
}

impl Reactor for Driver {
    fn wait(&self, limit: Option<Duration>) {
        let _turn = Turn::begin(self);
        let called = self.worker.called();
        self.runtime.block_on(async {
            match limit {
                None => called.await,
                // The runtime looks for events before it polls this again.
                Some(Duration::ZERO) => yield_now().await,
                Some(limit) => _ = timeout(limit, called).await,
            }
        });
    }

    fn interrupt(&self) {
        self.worker.call();
    }
}

/// The turn of a worker, which ends when this is dropped.
struct Turn<'a>(&'a Driver);

impl<'a> Turn<'a> {
    fn begin(driver: &'a Driver) -> Self {
        driver.turns.fetch_add(1, SeqCst);
        if driver.is_reserve_driving.load(SeqCst) {
            driver.reserve.turn.call();
        }
        Turn(driver)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turn(driver) = self;
        driver.turns.fetch_add(1, SeqCst);
        if driver.is_reserve_resting.load(SeqCst) && driver.is_reserve_resting.swap(false, SeqCst) {
            lock(&driver.reserve_thread)
                .as_ref()
                .inspect(|reserve| reserve.unpark());
        }
    }
}

impl Driver {
    /// Runs the reserve: drives the runtime whenever no worker has done so for a tick.
    fn stand_by(&self) {
        let mut before = self.turns.load(SeqCst);
        while !self.reserve.has_ended.load(SeqCst) {
            thread::park_timeout(TICK);
            let turns = self.turns.load(SeqCst);
            if turns != before {
                // Workers come and go.
                before = turns;
            } else if turns % 2 == 1 {
                self.rest(turns);
            } else {
                self.drive(turns);
            }
        }
    }

    /// Sleeps until the worker that has waited for some time ends its turn.
    fn rest(&self, turns: usize) {
        self.is_reserve_resting.store(true, SeqCst);
        while self.turns.load(SeqCst) == turns && !self.reserve.has_ended.load(SeqCst) {
            thread::park();
        }
        self.is_reserve_resting.store(false, SeqCst);
    }

    /// Drives the runtime until a worker begins a turn.
    fn drive(&self, turns: usize) {
        self.is_reserve_driving.store(true, SeqCst);
        if self.turns.load(SeqCst) == turns && !self.reserve.has_ended.load(SeqCst) {
            self.runtime.block_on(self.reserve.turn.called());
        }
        self.is_reserve_driving.store(false, SeqCst);
    }
}

/// A call to one thread, which is kept until the thread hears it.
#[derive(Default)]
struct Call(Mutex<CallState>);

#[derive(Default)]
struct CallState {
    was_called: bool,
    waker: Option<Waker>,
}

impl Call {
    /// Calls the thread.
    fn call(&self) {
        let waker = {
            let mut state = lock(&self.0);
            state.was_called = true;
            state.waker.take()
        };
        // On the thread that drives the runtime this is no system call.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for a call, and hears it.
    fn called(&self) -> impl Future<Output = ()> {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if mem::take(&mut state.was_called) {
                Poll::Ready(())
            } else {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
