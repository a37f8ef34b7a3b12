//! The timers of one run loop: the wheel with its lock and its clock, and the sleeping driver.
//!
//! [`PendingTimers`] is shared by the handles of a timer, its operations, and the run loop that serves them. It does
//! not know which loop that is, only which thread sleeps.
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | the wheel, the sleeper, and the cells of an entry that was handed over | the thread that holds the lock |
//! | an entry in state `Due` | the driver, which completes its operation; or the owner, if it is that of an alarm |
//! | an entry in state `Gone` | the thread that set the state, or `start` if it was `Idle` before |
//!
//! The states of an entry are at [`TimerState`].
//!
//! # How long the lock is held
//!
//! For at most [`BATCH`] entries, whatever the deadlines are. A start and a stop handle one, and the driver takes out
//! or moves that many. The wheel counts both as *effort*. Between two batches the driver releases the lock. It moves
//! entries ahead of time when none are due, and sleeps when none are left to move.
//!
//! # Why it is sound
//!
//! Exactly one transition of each entry decides which thread completes it. All transitions happen under the lock, which
//! is never held while an operation completes. `start` has a handle of its own, because the operation may be freed
//! before the lock is released.

#[cfg(sanitized)]
use core::ops::Deref;
use core::ops::DerefMut;
use core::ptr::{self, NonNull};
use core::task::Waker;
use core::time::Duration;
use std::boxed::Box;
use std::time::Instant;

use super::alarm::Alarm;
use super::entry::{TimerEntry, TimerState};
use super::wheel::Wheel;
use crate::memory::prefetch;
#[cfg(loom)]
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
#[cfg(sanitized)]
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock, park, park_timeout, thread};
use crate::{Job, Panic};

/// The deadline that is always in the past.
pub(super) const NOW: u64 = 0;

/// The deadline that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// The largest number of timers that are taken out or moved in the wheel under one lock. A stop no longer finds an
/// entry that was taken out, and other threads wait for the lock meanwhile.
const BATCH: usize = 64;

/// The shortest time between two wake-ups of the driver for its own deadlines, in nanoseconds. Dense timers share a
/// wake-up, which costs more than all of them.
const PACE: u64 = 250_000;

/// The timers of one run loop.
pub(crate) struct PendingTimers {
    clock: Clock,
    /// Held for the insertion or removal of one timer, or for at most [`BATCH`] timers that are taken out or moved in
    /// the wheel. Never held while a timer completes.
    inner: Mutex<TimerQueue>,
    /// Accessed by the thread that holds the lock. ThreadSanitizer does not see the waiting half of a `Mutex`, which is
    /// in the standard library.
    #[cfg(sanitized)]
    seen: AtomicUsize,
}

struct TimerQueue {
    wheel: Box<Wheel>,
    /// The sleeping driver, from the time it found nothing due until it looks again or is woken. A thread that inserts
    /// an earlier deadline takes it and wakes it. A driver that has left or does not sleep is woken in vain at most
    /// once.
    sleeper: Option<Sleeper>,
    /// Deadlines other than [`NOW`] do not wake the driver before this time.
    paced: u64,
}

struct Sleeper {
    thread: thread::Thread,
    /// The time at which the driver looks again by itself.
    until: u64,
}

/// What was due.
pub(crate) enum Taken {
    Nothing,
    /// Only alarms, whose wakers were woken.
    Woken,
    Jobs(Due),
}

/// A list of due jobs, in order.
pub(crate) struct Due {
    pub(crate) head: *mut Job,
    tail: NonNull<Job>,
}

/// The wakers of due alarms, which are woken without the lock.
#[derive(Default)]
struct Woken {
    wakers: [Option<Waker>; Woken::MOST],
    number: usize,
}

impl Woken {
    /// How many alarms are taken out under one lock.
    const MOST: usize = 32;

    fn is_full(&self) -> bool {
        self.number == Woken::MOST
    }

    fn push(&mut self, waker: Waker) {
        // The task that is about to be queued.
        prefetch::<1>(waker.data());
        self.wakers[self.number] = Some(waker);
        self.number += 1;
    }

    /// Wakes all, in order. Returns whether there were any.
    fn wake(self) -> bool {
        for waker in self.wakers.into_iter().take(self.number).flatten() {
            // A panic of a waker went through the panic hook, and no caller can receive it.
            _ = Panic::catch(|| waker.wake()).map_err(Panic::discard);
        }
        self.number != 0
    }
}

impl Due {
    /// Appends a list of jobs.
    pub(crate) fn append(&self, jobs: *mut Job) {
        // SAFETY: the tail is a due job in this list, and so valid until it runs.
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

    /// Calls `body`, which is short, with the lock held.
    pub(super) fn with_lock<T>(&self, body: impl FnOnce() -> T) -> T {
        let _inner = self.lock();
        body()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Inserts a timer. Returns `false` if the stop came first: the caller then completes the operation.
    ///
    /// The operation may be freed even before this returns `true`.
    ///
    /// # Safety
    ///
    /// - The entry is inserted once. It stays valid at its address until its job has run, or [`PendingTimers::remove`]
    ///   returned `true`.
    /// - The caller keeps `self` valid until this returns.
    pub(super) unsafe fn insert(&self, entry: NonNull<TimerEntry>) -> bool {
        let mut inner = self.lock();
        // SAFETY: the entry is valid, by the contract of this function, and the lock protects its cells.
        let wake_at = unsafe {
            if entry.as_ref().state() != TimerState::Idle {
                return false;
            }
            let deadline = entry.as_ref().deadline();
            let wanted = inner.wheel.insert(entry);
            entry.as_ref().set_state(TimerState::Linked);
            if deadline == NOW {
                inner.paced = NOW;
            }
            wanted.max(inner.paced)
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

    /// Removes a timer whose stop was requested. Returns `true` if the caller completes the operation, to which it then
    /// has exclusive access.
    ///
    /// # Safety
    ///
    /// The entry and `self` are valid until this returns.
    pub(super) unsafe fn remove(&self, entry: NonNull<TimerEntry>) -> bool {
        let mut inner = self.lock();
        // SAFETY: the entry is valid, and the lock protects its cells. In state `Linked` it is in the wheel.
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

    /// Takes out due timers, up to [`BATCH`], in order, and wakes the wakers of the alarms among them.
    pub(crate) fn take_due(&self) -> Taken {
        loop {
            let mut effort = BATCH;
            let mut woken = Woken::default();
            let now = self.clock.now();
            let mut inner = self.lock();
            let due = inner.take(now, &mut effort, &mut woken);
            let is_idle = due.is_none() && woken.number == 0 && effort > 0;
            if is_idle {
                inner.wheel.prepare(&mut effort);
            }
            drop(inner);
            match (due, woken.wake()) {
                (Some(due), _) => return Taken::Jobs(due),
                (None, true) => return Taken::Woken,
                (None, false) if is_idle => return Taken::Nothing,
                (None, false) => {}
            }
        }
    }

    /// Takes out due timers, like `take_due`. If there are none, sorts some of the later ones. If these are sorted,
    /// parks until the next deadline or an unpark. Inserting an earlier deadline unparks the thread.
    pub(crate) fn take_due_or_park(&self) -> Option<Due> {
        let mut effort = BATCH;
        let mut woken = Woken::default();
        let now = self.clock.now();
        let mut inner = self.lock();
        let due = if now < inner.paced {
            inner.sleeper = None;
            None
        } else {
            inner.take(now, &mut effort, &mut woken)
        };
        inner.wheel.prepare(&mut effort);
        if due.is_some() || woken.number != 0 {
            inner.paced = now.saturating_add(PACE);
            drop(inner);
            woken.wake();
            return due;
        }
        if effort == 0 {
            // The caller looks again. Other threads get the lock meanwhile.
            return None;
        }
        let until = inner.wheel.next().unwrap_or(NEVER).max(inner.paced);
        inner.sleeper = Some(Sleeper {
            thread: thread::current(),
            until,
        });
        drop(inner);
        // Read again, because taking the lock may have taken long.
        let now = self.clock.now();
        if until == NEVER {
            park(None);
        } else if until > now {
            park_timeout(Duration::from_nanos(until - now));
        }
        None
    }
}

impl TimerQueue {
    /// Takes out due timers, with an effort of one for each timer that is taken out or moved in the wheel. The caller wakes the wakers
    /// once it has released the lock.
    fn take(&mut self, now: u64, effort: &mut usize, woken: &mut Woken) -> Option<Due> {
        // The calling driver is awake.
        self.sleeper = None;
        let mut due: Option<Due> = None;
        while !woken.is_full()
            && let Some(entry) = self.wheel.pop(now, effort)
        {
            // SAFETY: an entry in the wheel is valid, and the lock protects its cells.
            let this = unsafe { entry.as_ref() };
            this.set_state(TimerState::Due);
            if this.is_alarm() {
                // SAFETY: the entry was taken out under the lock, and is not used after the mark.
                woken.push(unsafe { Alarm::take_waker(entry) });
                this.set_fired();
                continue;
            }
            this.job().set_next(ptr::null_mut());
            // The rest of the operation, for the completion.
            prefetch::<4>(entry.as_ptr());
            // The job is the first field of the entry.
            let job = entry.cast::<Job>();
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

/// The clock of the timers, in nanoseconds since its creation. It never reads [`NEVER`].
///
/// In a model the clock stands still until the model advances it.
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

    /// Converts an instant. One before the clock's creation is [`NOW`], and one that is too far away is [`NEVER`].
    #[inline]
    pub(super) fn at(&self, instant: Instant) -> u64 {
        nanoseconds(instant.saturating_duration_since(self.base))
    }
}

/// Converts a duration to nanoseconds, or to [`NEVER`] if it is too long.
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
    /// Advances the clock of a model, and wakes a driver whose time has come.
    pub(super) fn advance_to(&self, now: u64) {
        self.clock.now.store(now, SeqCst);
        if let Some(sleeper) = &self.lock().sleeper
            && sleeper.until <= now
        {
            sleeper.thread.unpark();
        }
    }
}
