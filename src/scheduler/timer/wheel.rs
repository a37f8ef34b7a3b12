//! The order of the timers: a radix wheel with intrusive lists.
//!
//! [`Wheel`] is only accessed under the lock of `pending.rs`, its caller. Inserting and removing an entry take constant
//! time. So does taking the first one, amortized: an entry moves down a level at most six times.
//!
//! # Levels and slots
//!
//! A deadline has seven digits of ten bits. An entry is on the *level* of the highest digit in which its deadline
//! differs from the cursor, in the *slot* of that digit. It is on level 0 if no digit differs. While no deadline
//! precedes the cursor, this holds:
//!
//! - Entries on a level precede all entries on higher levels. Entries in a slot precede all entries in later slots.
//! - The entries of a slot on level 0 have one deadline.
//! - A slot begins after the cursor, except on level 0, where it may be at the cursor.
//! - The cursor may advance to the beginning of the first slot without moving any entry. The entries of that slot then
//!   differ from the cursor in a lower digit. They are spread over the levels below, which are empty.
//!
//! # Why it is sound
//!
//! An entry in a list is valid and pinned, by the contract of `insert`. Its place is a function of its deadline and the
//! cursor. The cursor moves only in ways that keep every entry in its place, so `remove` finds the entry in the list
//! that `place` computes.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use crate::memory::{Beside, Linked, List};
use crate::{Job, Transfer};

/// The number of bits of a digit. The entries of a slot are spread over the level below at once, while other threads
/// wait. With ten bits, a slot spans a microsecond, a millisecond or a second. A model creates many wheels, so they are
/// smaller there.
const BITS: u32 = if cfg!(loom) { 6 } else { 10 };
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;
/// The number of digits of a `u64`.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

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
    _pinned: PhantomPinned,
}

/// The state of an entry. Changed under the lock of the timers only. The thread that makes a transition marked with `*`
/// completes the operation.
///
/// ```text
/// IDLE ──insert──▶ LINKED ──take_due──▶ DUE *    a job in the loop's queue, which completes the operation
///   │                └──────stop──────▶ GONE *   the stop callback completes it
///   └──────stop─────▶ GONE *                     the start, which finds it so, completes it
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
            _pinned: PhantomPinned,
        }
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

/// Entries in the order of their deadlines, and of their insertion for equal ones.
pub(super) struct Wheel {
    cursor: u64,
    /// The time up to which entries were taken. A new entry counts as no earlier than this, so a late one follows those
    /// that wait.
    floor: u64,
    /// A bit for each occupied level.
    levels: u16,
    /// A bit for each occupied slot.
    occupied: [[u64; WORDS]; LEVELS],
    /// A bit for each word of `occupied` that is not zero.
    words: [u16; LEVELS],
    slots: [[List<TimerEntry, Beside<TimerEntry>>; SLOTS]; LEVELS],
}

// SAFETY: the entries move between threads with the wheel. A timer operation may be completed on any thread.
unsafe impl Send for Wheel {}

impl Wheel {
    /// Creates an empty wheel. It is large, and most of its slots are never used. So it is zeroed memory, which the
    /// system commits when it is accessed.
    pub(super) fn new() -> Box<Self> {
        // SAFETY: the wheel consists of integers and lists of two pointers, all of which may be zero.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// Inserts an entry.
    ///
    /// # Safety
    ///
    /// The entry is in no list, and stays valid at its address until it is taken out.
    #[inline]
    pub(super) unsafe fn insert(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is valid, by the contract of this function.
        let this = unsafe { entry.as_ref() };
        this.set_deadline(this.deadline().max(self.floor));
        // SAFETY: the contract of this function. The deadline is at least `floor`, which is not before the cursor.
        unsafe { self.link(entry) };
    }

    /// # Safety
    ///
    /// The contract of [`Wheel::insert`]. The deadline is not before the cursor.
    #[inline]
    unsafe fn link(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is valid, by the contract of this function.
        let (level, slot) = self.place(unsafe { entry.as_ref() }.deadline());
        let list = &mut self.slots[level][slot];
        if list.is_empty() {
            self.occupied[level][slot / 64] |= 1 << (slot % 64);
            self.words[level] |= 1 << (slot / 64);
            self.levels |= 1 << level;
        }
        // SAFETY: the contract of this function.
        unsafe { list.push_back(entry) };
    }

    /// Removes an entry.
    ///
    /// # Safety
    ///
    /// The entry is in this wheel.
    pub(super) unsafe fn remove(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is in the wheel, by the contract of this function, and so valid. It is in the list of its
        // place.
        unsafe {
            let (level, slot) = self.place(entry.as_ref().deadline());
            let list = &mut self.slots[level][slot];
            list.remove(entry);
            if list.is_empty() {
                self.vacate(level, slot);
            }
        }
    }

    /// Removes and returns the first entry, if its deadline is not after `now`.
    pub(super) fn pop(&mut self, now: u64) -> Option<NonNull<TimerEntry>> {
        self.floor = self.floor.max(now);
        loop {
            let Some((level, slot)) = self.first() else {
                self.cursor = self.cursor.max(now);
                return None;
            };
            let begin = self.begin(level, slot);
            if begin > now {
                // The cursor moves closer to future deadlines, and still precedes every entry.
                self.cursor = self.cursor.max(now);
                return None;
            }
            let list = &mut self.slots[level][slot];
            let head = list.first()?;
            if list.last() == Some(head) || level == 0 {
                // SAFETY: an entry in the wheel is valid. It is the first of all, so it need not move down the levels.
                let deadline = unsafe { head.as_ref() }.deadline();
                if deadline > now {
                    return None;
                }
                // SAFETY: the entry is the first of a list of this wheel.
                unsafe { self.remove(head) };
                self.cursor = deadline;
                return Some(head);
            }
            self.cursor = begin;
            let mut list = list.take();
            self.vacate(level, slot);
            while let Some(entry) = list.pop_front() {
                // SAFETY: the entry was in the list, and so is valid. It is in no list now, and its deadline is not
                // before the slot's beginning, which is the cursor.
                unsafe { self.link(entry) };
            }
        }
    }

    /// Returns the time of the next [`Wheel::pop`]. It is not after the first deadline, and equals it if that entry is
    /// alone in its slot.
    pub(super) fn next(&self) -> Option<u64> {
        let (level, slot) = self.first()?;
        let list = &self.slots[level][slot];
        let first = list.first()?;
        Some(if list.last() == Some(first) {
            // SAFETY: an entry in the wheel is valid.
            unsafe { first.as_ref() }.deadline()
        } else {
            self.begin(level, slot)
        })
    }

    #[inline]
    fn place(&self, deadline: u64) -> (usize, usize) {
        let differs = (deadline ^ self.cursor) | 1;
        let level = (u64::BITS - 1 - differs.leading_zeros()) / BITS;
        let slot = (deadline >> (level * BITS)) as usize % SLOTS;
        (level as usize, slot)
    }

    /// Returns the level and index of the first occupied slot.
    #[inline]
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.levels.trailing_zeros() as usize;
        let word = self.words.get(level)?.trailing_zeros() as usize;
        Some((level, word * 64 + self.occupied[level][word].trailing_zeros() as usize))
    }

    /// Returns the earliest possible deadline of a slot.
    #[inline]
    fn begin(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * BITS;
        // The digits above the level are the cursor's. There are none above the highest level.
        let above = u64::MAX.checked_shl(shift + BITS).unwrap_or(0);
        (self.cursor & above) | ((slot as u64) << shift)
    }

    #[inline]
    fn vacate(&mut self, level: usize, slot: usize) {
        self.occupied[level][slot / 64] &= !(1 << (slot % 64));
        if self.occupied[level][slot / 64] == 0 {
            self.words[level] &= !(1 << (slot / 64));
            if self.words[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("cursor", &self.cursor)
            .field("next", &self.next())
            .finish_non_exhaustive()
    }
}
