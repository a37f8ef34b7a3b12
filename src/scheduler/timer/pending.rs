//! The timers of one run loop: the wheel, its lock, its clock, and who sleeps.

use core::fmt;
#[cfg(sanitized)]
use core::ops::Deref;
use core::ops::DerefMut;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::boxed::Box;
use std::time::Instant;

use super::wheel::{TimerEntry, TimerState, Wheel};
use crate::Job;
#[cfg(loom)]
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
#[cfg(sanitized)]
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock, park, park_timeout, thread};

/// A deadline that is always past.
pub(super) const NOW: u64 = 0;

/// A deadline that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// How many timers are taken out under one lock. What is taken out is not found by a stop any more, and whoever starts or
/// stops a timer meanwhile waits for the lock.
const BATCH: usize = 64;

/// The driver does not wake itself more often than this, in nanoseconds: where timers are that dense, several share a
/// wake-up, which costs more than all of them.
const PACE: u64 = 250_000;

/// Timers that somebody serves. Nothing here knows who that is: it is enough to know which thread sleeps.
pub(crate) struct PendingTimers {
    clock: Clock,
    /// Held for the insertion or the removal of one timer, or the removal of a batch; never while one completes.
    inner: Mutex<TimerQueue>,
    /// Touched by whoever holds the lock: the half of a `Mutex` that waits is in the standard library, where
    /// ThreadSanitizer does not see it.
    #[cfg(sanitized)]
    seen: AtomicUsize,
}

struct TimerQueue {
    wheel: Box<Wheel>,
    /// The driver, from when it found nothing due until it looks again, or is woken. Whoever inserts an earlier deadline
    /// takes it and wakes it; nobody else has to. A thread that is gone, or does not sleep, is woken in vain at most
    /// once, which harms nobody.
    sleeper: Option<Sleeper>,
    /// A deadline does not wake the driver before this, but [`NOW`].
    paced: u64,
}

struct Sleeper {
    thread: thread::Thread,
    /// When it looks again by itself.
    until: u64,
}

/// Jobs that are due, in order.
pub(crate) struct Due {
    pub(crate) head: *mut Job,
    tail: NonNull<Job>,
}

impl Due {
    /// Adds what follows.
    pub(crate) fn append(&self, jobs: *mut Job) {
        // SAFETY: a job that is due is alive until it runs, and in this list.
        unsafe { self.tail.as_ref() }.set_next(jobs);
    }
}

impl PendingTimers {
    pub(crate) fn new() -> Self {
        PendingTimers {
            clock: Clock::new(),
            inner: Mutex::new(TimerQueue {
                wheel: Wheel::new(),
                sleeper: None,
                paced: 0,
            }),
            #[cfg(sanitized)]
            seen: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> impl DerefMut<Target = TimerQueue> + '_ {
        let inner = lock(&self.inner);
        #[cfg(sanitized)]
        let inner = Seen::new(inner, &self.seen);
        inner
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Puts a timer in. `false` when the stop came before: then the caller completes it.
    ///
    /// When this has returned `true`, or is about to, the operation may be gone.
    ///
    /// # Safety
    ///
    /// The entry is inserted once, and stays where it is until its job has run or [`PendingTimers::remove`] gave it back. The
    /// caller keeps the timers alive until this has returned.
    pub(super) unsafe fn insert(&self, entry: NonNull<TimerEntry>) -> bool {
        let mut inner = self.lock();
        // SAFETY: the entry is alive, and its cells are ours under the lock.
        let wake_at = unsafe {
            if entry.as_ref().state() != TimerState::Idle {
                return false;
            }
            let deadline = entry.as_ref().deadline();
            inner.wheel.insert(entry);
            entry.as_ref().set_state(TimerState::Linked);
            if deadline == NOW {
                NOW
            } else {
                deadline.max(inner.paced)
            }
        };
        let woken = match &inner.sleeper {
            Some(sleeper) if wake_at < sleeper.until => inner.sleeper.take(),
            _ => None,
        };
        drop(inner);
        if let Some(sleeper) = woken {
            sleeper.thread.unpark();
        }
        true
    }

    /// The stop was requested. `true` when the caller completes the timer, which is nobody else's now.
    ///
    /// # Safety
    ///
    /// The entry is alive, and so are the timers, until this has returned.
    pub(super) unsafe fn remove(&self, entry: NonNull<TimerEntry>) -> bool {
        let mut inner = self.lock();
        // SAFETY: the entry is alive, and its cells are ours under the lock; it is in the wheel while it is linked.
        unsafe {
            match entry.as_ref().state() {
                TimerState::Linked => {
                    inner.wheel.remove(entry);
                    entry.as_ref().set_state(TimerState::Gone);
                    true
                }
                TimerState::Idle => {
                    entry.as_ref().set_state(TimerState::Gone);
                    false
                }
                TimerState::Due | TimerState::Gone => false,
            }
        }
    }

    /// Takes out what is due, or some of it, in order.
    pub(crate) fn take_due(&self) -> Option<Due> {
        let now = self.clock.now();
        self.take(&mut self.lock(), now)
    }

    /// The same; where nothing is due it sleeps until the next deadline may have come, or another is inserted, or the
    /// thread is unparked.
    pub(crate) fn take_due_or_park(&self) -> Option<Due> {
        let now = self.clock.now();
        let mut inner = self.lock();
        let due = self.take(&mut inner, now);
        if due.is_some() {
            inner.paced = now.saturating_add(PACE);
            return due;
        }
        let until = inner.wheel.next().unwrap_or(NEVER).max(inner.paced);
        inner.sleeper = Some(Sleeper {
            thread: thread::current(),
            until,
        });
        drop(inner);
        // Asked again, for the lock may have taken its time.
        let now = self.clock.now();
        if until == NEVER {
            park(None);
        } else if until > now {
            park_timeout(Duration::from_nanos(until - now));
        }
        None
    }

    fn take(&self, inner: &mut TimerQueue, now: u64) -> Option<Due> {
        // Whoever calls this is awake.
        inner.sleeper = None;
        let mut due: Option<Due> = None;
        for _ in 0..BATCH {
            let Some(entry) = inner.wheel.pop(now) else { break };
            // SAFETY: it was in the wheel, so it is alive.
            unsafe { entry.as_ref() }.set_state(TimerState::Due);
            let job = entry.cast::<Job>();
            // SAFETY: as above; an entry begins with its job.
            unsafe { job.as_ref() }.set_next(ptr::null_mut());
            match &mut due {
                Some(due) => {
                    due.append(job.as_ptr());
                    due.tail = job;
                }
                None => {
                    due = Some(Due {
                        head: job.as_ptr(),
                        tail: job,
                    });
                }
            }
        }
        due
    }
}

impl fmt::Debug for PendingTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingTimers").finish_non_exhaustive()
    }
}

/// A guard whose lock ThreadSanitizer sees.
#[cfg(sanitized)]
struct Seen<'a, G> {
    guard: G,
    seen: &'a AtomicUsize,
}

#[cfg(sanitized)]
impl<'a, G> Seen<'a, G> {
    fn new(guard: G, seen: &'a AtomicUsize) -> Self {
        seen.load(Ordering::Acquire);
        Seen { guard, seen }
    }
}

#[cfg(sanitized)]
impl<G: DerefMut> Deref for Seen<'_, G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

#[cfg(sanitized)]
impl<G: DerefMut> DerefMut for Seen<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

#[cfg(sanitized)]
impl<G> Drop for Seen<'_, G> {
    fn drop(&mut self) {
        self.seen.fetch_add(1, Ordering::Release);
    }
}

/// Nanoseconds since the timers were made. [`NEVER`] is not among them.
///
/// In a model the clock stands still until the model moves it.
pub(super) struct Clock {
    base: Instant,
    #[cfg(loom)]
    now: AtomicU64,
}

impl Clock {
    fn new() -> Self {
        Clock {
            base: Instant::now(),
            #[cfg(loom)]
            now: AtomicU64::new(0),
        }
    }

    #[cfg(not(loom))]
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.at(Instant::now()).min(NEVER - 1)
    }

    #[cfg(loom)]
    pub(super) fn now(&self) -> u64 {
        self.now.load(SeqCst)
    }

    /// When that is. What is before the clock's beginning is now, and what is too far away is never.
    #[inline]
    pub(super) fn at(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.base))
    }
}

/// The whole of it, or [`NEVER`] when it is too long.
#[inline]
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .checked_mul(1_000_000_000)
        .and_then(|seconds| seconds.checked_add(u64::from(duration.subsec_nanos())))
        .unwrap_or(NEVER)
}

#[cfg(loom)]
impl PendingTimers {
    /// Moves the clock of a model, and ends a sleep that is over by then, as the system would.
    pub(super) fn advance_to(&self, now: u64) {
        self.clock.now.store(now, SeqCst);
        if let Some(sleeper) = &self.lock().sleeper
            && sleeper.until <= now
        {
            sleeper.thread.unpark();
        }
    }
}
