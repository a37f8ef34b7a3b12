//! [`RunLoop`]: a FIFO queue of jobs that one thread at a time drives.

mod driver;
mod schedule;

use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};

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

/// A queue of work that one thread at a time drives, first in, first out.
///
/// Any thread schedules onto it; the queue is intrusive and lock-free, and scheduling neither allocates nor fails. Only
/// whoever wakes a driver that sleeps takes a lock, for a moment, to learn which thread that is.
/// [`sync_wait`](crate::sync_wait) drives one of its own.
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
/// - [`run`](RunLoop::run) drives until [`finish`](RunLoop::finish), then drains what is queued and returns.
/// - [`run_until`](RunLoop::run_until) drives until a sender has completed.
/// - [`run_ready`](RunLoop::run_ready) runs what is queued, without waiting.
///
/// [`Timer::on`](super::Timer::on) gives timers that complete here: they are queued when they are due.
///
/// While one thread drives, a second one that wants to waits for its turn; the driving thread itself may nest. A thread of
/// a [`ThreadPool`](super::ThreadPool#blocking) that sleeps here gives its place in the pool to another one.
pub struct RunLoop {
    /// What was pushed, newest first; see [`RunLoop::push`]. One of:
    ///
    /// | value | means |
    /// |---|---|
    /// | null | nothing was pushed since the driver looked |
    /// | odd | the same, and the driver sleeps; the number tells one sleep from another |
    /// | a job | the newest of a list |
    ///
    /// A producer swings null, an odd number or a job to its own job, with release. The driver takes the whole list by
    /// swinging it to null, with acquire, and swings null to an odd number before it sleeps. A producer ends the sleep,
    /// or the driver itself, when a timer is due, by swinging its number back to null. Taking all at once makes the list
    /// safe from a job that comes back while a producer looks away.
    pushed: AtomicPtr<Job>,
    /// The timers that are served here: an `Arc` that the loop holds, or null. Set once, by [`RunLoop::timers`], which
    /// then swings `pushed` to what it is, with release, so that a driver that sleeps is seen and woken, and one that
    /// goes to sleep afterwards sees the timers.
    timers: AtomicPtr<PendingTimers>,
    /// Who is woken. Written by the driver before it publishes an odd number, so whoever saw that number sees the
    /// thread; a producer that reads a later one fails to swing.
    driver_thread: Mutex<Option<thread::Thread>>,
    /// Held while a thread drives.
    driving: Mutex<()>,
    /// The thread that holds `driving`, or 0. Others only compare it with their own, which relaxed loads do. It is given
    /// up with release and taken with acquire: what one driver did happened before the next, lock or no lock.
    driver: AtomicUsize,
    /// Set by `finish`, with release, and never cleared; `finish` then swings `pushed` to what it is, as for the timers. It
    /// pairs with the acquire loads of [`RunLoop::run`], so that what was pushed before `finish` is seen after the flag.
    finishing: AtomicBool,
    /// What only the driver touches.
    own: DriverCells,
}

struct DriverCells {
    /// Taken from `pushed` and turned round: oldest first.
    ready: Cell<*mut Job>,
    /// The odd number of the last sleep.
    sleep: Cell<usize>,
}

// SAFETY: `own` is accessed by the driver alone, which holds `driving`. The rest is atomics and locks. No job in the queue
// is a part of the loop, so that a loop that nothing borrows may be moved.
unsafe impl Send for RunLoop {}
// SAFETY: as above.
unsafe impl Sync for RunLoop {}

impl RunLoop {
    const_unless_loom! {
        /// An empty loop that nobody drives.
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

    /// A handle that schedules onto this loop.
    #[inline]
    pub fn scheduler(&self) -> RunLoopScheduler<'_> {
        RunLoopScheduler { run_loop: self }
    }

    /// Drives the loop until [`finish`](RunLoop::finish) is called, then runs what is still queued, and what comes of
    /// it, and returns. After `finish` it only drains.
    pub fn run(&self) {
        self.drive(|driver| {
            while !self.finishing.load(Acquire) {
                driver.run_one(RunUntil::NextJobOrFinish);
            }
            driver.drain();
        });
    }

    /// Drives the loop until `sender` has completed, and returns what became of it. What else is queued then stays.
    ///
    /// The sender is started here, and finds this loop's scheduler in its environment. This is
    /// [`sync_wait`](crate::sync_wait) on a loop that others may schedule onto.
    pub fn run_until<S>(&self, sender: S) -> Outcome<S::Value, S::Error>
    where
        S: Sender<Value: Send, Error: Send>,
    {
        let slot = WaitSlot::new();
        self.drive(|driver| slot.wait_on(driver, sender))
    }

    /// Runs what is queued, and what comes of it, until the queue is empty; returns how many jobs that were.
    pub fn run_ready(&self) -> usize {
        self.drive(|driver| driver.drain())
    }

    /// Makes [`run`](RunLoop::run) return once everything queued before, and everything that comes of it, has run.
    /// Further calls change nothing.
    pub fn finish(&self) {
        self.finishing.store(true, Release);
        self.wake();
    }

    /// Appends a job. Once it is in, the driver may have run it, and whoever owned the loop may have returned: nothing
    /// of the loop is touched after the swing.
    ///
    /// # Safety
    ///
    /// The job stays where it is until it runs, and is in no other list.
    pub(crate) unsafe fn push(&self, job: NonNull<Job>) {
        let mut newest = self.pushed.load(Acquire);
        loop {
            let sleeping = is_sleep(newest);
            // The handle is fetched before the job is published, for after that there may be no loop to ask.
            let sleeper = if sleeping {
                lock(&self.driver_thread).clone()
            } else {
                None
            };
            // SAFETY: the job is ours until it is published.
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
            // A job of this loop drives it further: the outer call holds the lock.
            let _outer = Innermost::become_this(self);
            return body(&Driver::of(self));
        }
        let driving = try_lock(&self.driving).unwrap_or_else(|| match Worker::current() {
            // What the other driver waits for may be work of this thread's pool.
            Some(worker) => worker.while_blocked(|| lock(&self.driving)),
            None => lock(&self.driving),
        });
        let end = self.become_driver(me);
        let result = body(&Driver::of(self));
        drop(end);
        drop(driving);
        result
    }

    /// Drives as [`RunLoop::drive`] does, for a loop that no other thread can drive. `start` is run first, by the driver,
    /// but as part of the work that the calling thread is at.
    ///
    /// # Safety
    ///
    /// Nobody else drives the loop.
    pub(crate) unsafe fn drive_alone<T>(&self, start: impl FnOnce(), body: impl FnOnce(&Driver<'_>) -> T) -> T {
        let _end = self.become_driver(thread_id());
        start();
        current::publish();
        let _hidden = current::Hidden::driver();
        let _away = Worker::step_away();
        body(&Driver::of(self))
    }

    /// Notes that the calling thread is the driver, until what is returned is dropped.
    fn become_driver(&self, me: usize) -> EndOfDrive<'_> {
        self.driver.swap(me, Acquire);
        *lock(&self.driver_thread) = Some(thread::current());
        EndOfDrive {
            driver: &self.driver,
            _outer: Innermost::become_this(self),
        }
    }

    /// The timers that are served here, if there are any.
    fn served(&self) -> Option<&PendingTimers> {
        // SAFETY: the loop holds them until it goes.
        unsafe { self.timers.load(Acquire).as_ref() }
    }

    /// The timers that are served here, from now on.
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
                    // SAFETY: it was made just now, and nobody else has seen it.
                    drop(unsafe { Arc::from_raw(new) });
                }
            }
        }
        // SAFETY: the loop holds one reference, as long as it is there; this is another.
        unsafe {
            Arc::increment_strong_count(timers);
            Arc::from_raw(timers)
        }
    }

    /// Makes a driver that sleeps look again, and one that goes to sleep after this see what was done before.
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

fn is_sleep(pushed: *mut Job) -> bool {
    pushed.addr() & 1 == 1
}

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
    /// Of the loops that this thread drives, one inside a job of the other, the innermost; or null.
    static INNERMOST: Cell<*const RunLoop> = Cell::new(ptr::null());
}

/// Puts back, in the end, what was the innermost loop before.
struct Innermost(*const RunLoop);

impl Innermost {
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
            // SAFETY: the reference that `timers` put there, which nobody takes but this.
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
