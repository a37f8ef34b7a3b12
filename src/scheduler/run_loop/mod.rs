//! [`RunLoop`]: a FIFO queue of jobs that one thread at a time drives.
//!
//! The queue has two parts. `pushed` is a lock-free stack of jobs, newest first, which any thread pushes. `own.ready`
//! is a list of jobs, oldest first, which only the driver accesses. When `ready` is empty, the driver takes all of
//! `pushed` and reverses it. `driver.rs` has the driver, and `schedule.rs` the scheduler.
//!
//! # States of `pushed`
//!
//! | value | meaning |
//! |---|---|
//! | null | empty, and the driver is awake or absent |
//! | odd | empty, and the driver sleeps; the number identifies the sleep |
//! | a job | the newest of a list |
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | `pushed`, `timers`, `finishing` | every thread |
//! | `own` | the driver: the thread that holds `driving`, or the only thread that can drive the loop |
//! | `driver_thread` | lock-protected: the driver writes its handle before it sleeps |
//!
//! # Why it is sound
//!
//! A producer publishes a job with a compare-and-exchange, and accesses nothing of the loop after it. So the loop's
//! owner may return, and free the loop, as soon as the job has run. A producer that finds an odd number gets the
//! sleeper's handle first, and unparks it after the exchange. The number makes an exchange fail whose handle belongs to
//! an earlier sleep. The driver takes the whole list at once, so a job that is pushed again cannot be confused with its
//! earlier push.
//!
//! # Callers
//!
//! `sync_wait`, `block_on` and `prepare` drive a loop of their own, and the thread of a timer drives one until its last
//! handle is dropped.

mod driver;
mod schedule;

use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};

use super::hosted::while_blocked;
use super::thread_pool::Worker;
use super::timer::PendingTimers;
use crate::consumers::WaitSlot;
use crate::sender::current;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{Arc, Mutex, const_unless_loom, lock, per_thread, thread, thread_id, try_lock};
use crate::{Job, Outcome, Sender};

pub(crate) use driver::{Driver, RunUntil};
pub use schedule::{RunLoopSchedule, RunLoopScheduler};

/// A FIFO queue of work that one thread at a time drives.
///
/// Any thread may schedule onto it. The queue is intrusive and lock-free, and scheduling neither allocates nor fails.
/// Only a thread that wakes a sleeping driver takes a lock, for a moment, to get its handle.
/// [`sync_wait`](crate::sync_wait) drives a loop of its own.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::RunLoop;
/// use std::thread;
///
/// let run_loop = RunLoop::new();
/// thread::scope(|scope| {
///     scope.spawn(|| run_loop.run());
///     let work = starts_on(run_loop.scheduler(), just_from(|| 6 * 7));
///     assert_eq!(sync_wait(work).unwrap(), 42);
///     run_loop.finish();
/// });
/// ```
///
/// - [`run`](RunLoop::run) drives until [`finish`](RunLoop::finish), then drains the queue and returns.
/// - [`run_until`](RunLoop::run_until) drives until a sender has completed.
/// - [`run_ready`](RunLoop::run_ready) runs the queued jobs, without waiting.
///
/// [`Timer::on`](super::Timer::on) creates a timer that completes on the loop.
///
/// While one thread drives, another one that wants to drive waits. The driving thread itself may nest. A thread of a
/// [`ThreadPool`](super::ThreadPool#blocking) that sleeps here passes its place in the pool to another thread.
pub struct RunLoop {
    /// The pushed jobs, newest first; the values are in the module's documentation.
    ///
    /// - A producer exchanges the value for its job, with release.
    /// - The driver swaps a list for null, with acquire, which pairs with that.
    /// - The driver exchanges null for an odd number before it sleeps, with acquire and release.
    /// - After a sleep that no producer ended, the driver exchanges its number for null.
    /// - `wake` exchanges the value for itself, with acquire and release, so that stores before it are visible to a
    ///   driver that sleeps later.
    pushed: AtomicPtr<Job>,
    /// The timers that the driver serves: an `Arc` that the loop owns, or null. [`RunLoop::timers`] sets it once, with
    /// release, and then calls `wake`. Pairs with the acquire loads of the driver.
    timers: AtomicPtr<PendingTimers>,
    /// The handle of the driver. Written by the driver before it publishes an odd number, so a producer that saw that
    /// number gets this handle or a later one. With a later handle, its exchange fails.
    driver_thread: Mutex<Option<thread::Thread>>,
    /// Held while a thread drives.
    driving: Mutex<()>,
    /// The id of the thread that holds `driving`, or 0. Other threads only compare it with their own id, relaxed.
    /// Cleared with release and set with acquire, so one driver's work happens before the next one's, even without the
    /// lock.
    driver: AtomicUsize,
    /// Set once by `finish`, with release, which then calls `wake`. Pairs with the acquire loads of [`RunLoop::run`],
    /// so jobs that were pushed before `finish` are seen after the flag.
    finishing: AtomicBool,
    /// The fields that only the driver accesses.
    own: DriverCells,
}

/// The driver's part of a loop.
struct DriverCells {
    /// The jobs taken from `pushed`, oldest first.
    ready: Cell<*mut Job>,
    /// The odd number of the last sleep.
    sleep: Cell<usize>,
}

// SAFETY: only the driver accesses `own`, and there is one at a time. The rest is atomics and locks. No queued job is
// part of the loop, so a loop without borrows may be moved.
unsafe impl Send for RunLoop {}
// SAFETY: see `Send`.
unsafe impl Sync for RunLoop {}

impl RunLoop {
    const_unless_loom! {
        /// Creates an empty loop without a driver.
        pub fn new() -> Self {
            RunLoop {
                pushed: AtomicPtr::new(ptr::null_mut()),
                timers: AtomicPtr::new(ptr::null_mut()),
                driver_thread: Mutex::new(None),
                driving: Mutex::new(()),
                driver: AtomicUsize::new(0),
                finishing: AtomicBool::new(false),
                own: DriverCells {
                    ready: Cell::new(ptr::null_mut()),
                    sleep: Cell::new(1),
                },
            }
        }
    }

    /// Returns a handle that schedules onto this loop.
    #[inline]
    pub fn scheduler(&self) -> RunLoopScheduler<'_> {
        RunLoopScheduler { run_loop: self }
    }

    /// Drives the loop until [`finish`](RunLoop::finish) is called. Then runs the queued jobs, and the jobs that follow
    /// from them, and returns. After `finish` it only drains the queue.
    pub fn run(&self) {
        self.drive(|driver| {
            while !self.finishing.load(Acquire) {
                driver.run_one(RunUntil::NextJobOrFinish);
            }
            driver.drain();
        });
    }

    /// Drives the loop until `sender` has completed, and returns its outcome. Other jobs may stay queued.
    ///
    /// The sender is started on this thread, with the loop's scheduler in its environment. This is
    /// [`sync_wait`](crate::sync_wait) on a loop that other threads may schedule onto.
    pub fn run_until<S>(&self, sender: S) -> Outcome<S::Value, S::Error>
    where
        S: Sender<Value: Send, Error: Send>,
    {
        let slot = WaitSlot::new();
        self.drive(|driver| slot.wait_on(driver, sender))
    }

    /// Runs jobs until the queue is empty, and returns their number.
    pub fn run_ready(&self) -> usize {
        self.drive(|driver| driver.drain())
    }

    /// Makes [`run`](RunLoop::run) return when all jobs queued before, and those that follow from them, have run.
    /// Further calls have no effect.
    pub fn finish(&self) {
        self.finishing.store(true, Release);
        self.wake();
    }

    /// Appends a job. The job may run as soon as it is published, and the loop's owner may then free the loop. So
    /// nothing of the loop is accessed after the exchange.
    ///
    /// # Safety
    ///
    /// The job is in no list, and stays valid at its address until it runs.
    pub(crate) unsafe fn push(&self, job: NonNull<Job>) {
        let mut newest = self.pushed.load(Acquire);
        loop {
            let sleeping = is_sleep(newest);
            // The handle is cloned before the job is published, because the loop may be freed after that.
            let sleeper = if sleeping {
                lock(&self.driver_thread).clone()
            } else {
                None
            };
            // SAFETY: the job is valid, and owned by the caller until it is published.
            unsafe { job.as_ref() }.set_next(if sleeping { ptr::null_mut() } else { newest });
            match self
                .pushed
                .compare_exchange_weak(newest, job.as_ptr(), Release, Acquire)
            {
                Ok(_) => {
                    if let Some(thread) = sleeper {
                        thread.unpark();
                    }
                    return;
                }
                Err(now) => newest = now,
            }
        }
    }

    /// Runs `body` as the driver.
    fn drive<T>(&self, body: impl FnOnce(&Driver<'_>) -> T) -> T {
        current::publish();
        let _hidden = current::Hidden::driver();
        let _away = Worker::step_away();
        let me = thread_id();
        if self.driver.load(Relaxed) == me {
            // A job of this loop drives it further. The outer call holds the lock.
            let _outer = Innermost::become_this(self);
            return body(&Driver::of(self));
        }
        let driving = try_lock(&self.driving).unwrap_or_else(|| match Worker::current() {
            // The other driver may wait for work of this thread's pool, so this worker's seat is passed on.
            Some(worker) => worker.while_blocked(|| lock(&self.driving)),
            None => while_blocked(|| lock(&self.driving)),
        });
        let end = self.become_driver(me);
        let result = body(&Driver::of(self));
        drop(end);
        drop(driving);
        result
    }

    /// Drives a loop that no other thread can drive. The driver runs `start` first, as part of the work that the
    /// calling thread is doing.
    ///
    /// # Safety
    ///
    /// No other thread drives the loop.
    pub(crate) unsafe fn drive_alone<T>(&self, start: impl FnOnce(), body: impl FnOnce(&Driver<'_>) -> T) -> T {
        let _end = self.become_driver(thread_id());
        start();
        current::publish();
        let _hidden = current::Hidden::driver();
        let _away = Worker::step_away();
        body(&Driver::of(self))
    }

    /// Registers the calling thread as the driver, until the result is dropped.
    fn become_driver(&self, me: usize) -> EndOfDrive<'_> {
        self.driver.swap(me, Acquire);
        *lock(&self.driver_thread) = Some(thread::current());
        EndOfDrive {
            driver: &self.driver,
            _outer: Innermost::become_this(self),
        }
    }

    /// Returns the timers that the driver serves, if there are any.
    fn served(&self) -> Option<&PendingTimers> {
        // SAFETY: the loop owns a reference to the timers until it is dropped.
        unsafe { self.timers.load(Acquire).as_ref() }
    }

    /// Returns the timers that the driver serves. Creates them lazily.
    pub(super) fn timers(&self) -> Arc<PendingTimers> {
        let mut timers = self.timers.load(Acquire);
        if timers.is_null() {
            let new = Arc::into_raw(Arc::new(PendingTimers::new())).cast_mut();
            match self.timers.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
                Ok(_) => {
                    timers = new;
                    self.wake();
                }
                Err(other) => {
                    timers = other;
                    // SAFETY: the pointer comes from `into_raw` above, and was not published.
                    drop(unsafe { Arc::from_raw(new) });
                }
            }
        }
        // SAFETY: the loop owns a reference, so the count is not zero. The new one belongs to the result.
        unsafe {
            Arc::increment_strong_count(timers);
            Arc::from_raw(timers)
        }
    }

    /// Wakes a sleeping driver, and makes the caller's earlier stores visible to one that sleeps later.
    fn wake(&self) {
        let mut pushed = self.pushed.load(Relaxed);
        while let Err(now) = self.pushed.compare_exchange_weak(pushed, pushed, AcqRel, Relaxed) {
            pushed = now;
        }
        if is_sleep(pushed)
            && let Some(thread) = &*lock(&self.driver_thread)
        {
            thread.unpark();
        }
    }
}

/// Returns whether a value of `pushed` says that the driver sleeps.
fn is_sleep(pushed: *mut Job) -> bool {
    pushed.addr() & 1 == 1
}

/// Unregisters the driver when it is dropped.
struct EndOfDrive<'a> {
    driver: &'a AtomicUsize,
    _outer: Innermost,
}

impl Drop for EndOfDrive<'_> {
    fn drop(&mut self) {
        self.driver.store(0, Release);
    }
}

per_thread! {
    /// The innermost loop that this thread drives, or null. A job of a loop may drive another loop.
    static INNERMOST: Cell<*const RunLoop> = Cell::new(ptr::null());
}

/// Restores the previous innermost loop when it is dropped.
pub(super) struct Innermost(*const RunLoop);

impl Innermost {
    /// Records that the thread drives no loop, but something on top of its loops.
    pub(super) fn become_none() -> Self {
        Innermost(INNERMOST.with(|innermost| innermost.replace(ptr::null())))
    }

    /// Returns whether the innermost driver of this thread is that of a loop.
    #[inline]
    pub(super) fn is_loop() -> bool {
        !INNERMOST.with(Cell::get).is_null()
    }

    fn become_this(run_loop: &RunLoop) -> Self {
        Innermost(INNERMOST.with(|innermost| innermost.replace(run_loop)))
    }
}

impl Drop for Innermost {
    fn drop(&mut self) {
        INNERMOST.with(|innermost| innermost.set(self.0));
    }
}

impl Drop for RunLoop {
    #[inline]
    fn drop(&mut self) {
        let timers = self.timers.load(Relaxed);
        if !timers.is_null() {
            // SAFETY: `timers` stored a reference from `into_raw`, and only this drop takes it.
            drop(unsafe { Arc::from_raw(timers) });
        }
    }
}

impl Default for RunLoop {
    fn default() -> Self {
        RunLoop::new()
    }
}

impl fmt::Debug for RunLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLoop")
            .field("driven", &(self.driver.load(Relaxed) != 0))
            .field("finishing", &self.finishing.load(Relaxed))
            .finish_non_exhaustive()
    }
}
