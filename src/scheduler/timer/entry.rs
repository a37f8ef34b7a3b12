use core::cell::Cell;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};

use super::schedule::When;
use crate::memory::Linked;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use crate::{Job, Transfer};

/// The part of a timer operation that is linked into the wheel.
#[repr(C)]
pub(super) struct TimerEntry {
    /// The first field, so that both have the same address. Its link is the forward link of the entry's list: a slot of
    /// the wheel, or the due jobs.
    job: Job,
    previous: Cell<*mut TimerEntry>,
    /// In nanoseconds of the timer's clock.
    deadline: Cell<u64>,
    /// See [`TimerState`]. All cells are protected by the lock of the timers, from the first time the entry is handed
    /// to them.
    state: Cell<TimerState>,
    /// The level of the wheel that the entry is on.
    level: Cell<u8>,
    /// Whether the entry is that of a [`Alarm`](super::Alarm).
    is_alarm: bool,
    /// Whether an alarm has fired. Set by the driver with release, under the lock, when it does not use the entry any longer. Pairs
    /// with the acquire loads of the owner of the alarm.
    has_fired: AtomicBool,
    _pinned: PhantomPinned,
}

/// The state of an entry. Changed under the lock of the timers only. The thread that makes a transition marked with `*`
/// completes the operation.
///
/// ```text
/// IDLE ──insert──▶ LINKED ──take_due──▶ DUE *    a job in the loop's queue, which completes the operation
///   │                └──────stop──────▶ GONE *   the stop callback completes it
///   └──────stop─────▶ GONE *                     the start, which finds it so, completes it
///
/// of an alarm:
///
/// IDLE ──insert──▶ LINKED ──take_due──▶ DUE      fired: the driver wakes the waker
///                    └──────end───────▶ GONE     the owner drops the waker
/// ```
///
/// A stop that finds an entry `DUE` leaves the completion to its job, which sees the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerState {
    Idle,
    Linked,
    Due,
    Gone,
}

impl TimerEntry {
    /// Creates an idle entry. `run` is called when it is due.
    pub(super) fn new(deadline: u64, run: unsafe fn(NonNull<Job>) -> Transfer) -> Self {
        TimerEntry {
            job: Job::new(run),
            previous: Cell::new(ptr::null_mut()),
            deadline: Cell::new(deadline),
            state: Cell::new(TimerState::Idle),
            level: Cell::new(0),
            is_alarm: false,
            has_fired: AtomicBool::new(false),
            _pinned: PhantomPinned,
        }
    }

    /// Creates an idle entry of a [`Alarm`](super::Alarm). Its deadline is a [`When`] until the begin. Its job is never queued.
    pub(super) fn of_alarm(when: When) -> Self {
        TimerEntry {
            is_alarm: true,
            ..TimerEntry::new(when.as_number(), |_| Transfer::none())
        }
    }

    #[inline]
    pub(super) fn is_alarm(&self) -> bool {
        self.is_alarm
    }

    #[inline]
    pub(super) fn has_fired(&self) -> bool {
        self.has_fired.load(Acquire)
    }

    /// Notes that the alarm has fired. It may be freed at once.
    #[inline]
    pub(super) fn set_fired(&self) {
        self.has_fired.store(true, Release);
    }

    #[inline]
    pub(super) fn job(&self) -> &Job {
        &self.job
    }

    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.deadline.get()
    }

    #[inline]
    pub(super) fn set_deadline(&self, deadline: u64) {
        self.deadline.set(deadline);
    }

    #[inline]
    pub(super) fn state(&self) -> TimerState {
        self.state.get()
    }

    #[inline]
    pub(super) fn set_state(&self, state: TimerState) {
        self.state.set(state);
    }

    #[inline]
    pub(super) fn level(&self) -> usize {
        usize::from(self.level.get())
    }

    #[inline]
    pub(super) fn set_level(&self, level: usize) {
        // A level is less than 64.
        self.level.set(level as u8);
    }
}

// SAFETY: each getter reads the value of its setter. While the entry is in the wheel, its job is in no other list.
unsafe impl Linked for TimerEntry {
    #[inline]
    fn next(&self) -> *mut TimerEntry {
        self.job.next().cast()
    }

    #[inline]
    fn set_next(&self, next: *mut TimerEntry) {
        self.job.set_next(next.cast());
    }

    #[inline]
    fn previous(&self) -> *mut TimerEntry {
        self.previous.get()
    }

    #[inline]
    fn set_previous(&self, previous: *mut TimerEntry) {
        self.previous.set(previous);
    }
}
