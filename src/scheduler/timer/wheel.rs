//! The order of the timers: a radix wheel with intrusive lists.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use crate::memory::{Beside, Linked, List};
use crate::{Job, Transfer};

/// So many bits of a deadline choose a slot. The entries of a slot are spread over the level below all at once, and others
/// wait meanwhile; with ten bits that is a slot of a microsecond, of a millisecond, of a second. A model makes many wheels,
/// so that they are smaller there.
const BITS: u32 = if cfg!(loom) { 6 } else { 10 };
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;
/// Enough digits for every `u64`.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;

/// A timer's place among the others: the part of an operation that is linked.
#[repr(C)]
pub(super) struct TimerEntry {
    /// First, so that a job's address is its entry's. Its link is the forward link of the list that the entry is in: a
    /// slot of the wheel, or what is due.
    job: Job,
    previous: Cell<*mut TimerEntry>,
    /// In nanoseconds of the timer's clock.
    deadline: Cell<u64>,
    /// See [`TimerState`]. All of the cells belong to the lock of the timers, from the first time that the entry is handed to
    /// them.
    state: Cell<TimerState>,
    _pinned: PhantomPinned,
}

/// Where an entry is. Changed under the lock of the timers only; whoever makes one of the changes that are marked
/// completes the operation.
///
/// ```text
/// IDLE ──insert──▶ LINKED ──take_due──▶ DUE *    a job in the loop's queue, which completes the operation
///   │                └──────stop──────▶ GONE *   the stop callback completes it
///   └──────stop─────▶ GONE *                     the start, which finds it so, completes it
/// ```
///
/// A stop that finds an entry `DUE` leaves it to its job, which sees the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerState {
    Idle,
    Linked,
    Due,
    Gone,
}

impl TimerEntry {
    /// An entry that is nowhere. `run` is called when it is due.
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

// SAFETY: each getter reads what its setter wrote. The job is in no other list while the entry is in the wheel.
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

/// Timers in order of their deadlines, those of one deadline in order of insertion. Inserting and removing take constant
/// time; so does taking the first, over time: an entry moves down a level at most six times in its life.
///
/// A deadline is seven digits of ten bits. An entry is at the *level* of the highest digit in which its deadline differs
/// from the cursor, in the *slot* of that digit; at level 0 where it does not differ. So, as long as no deadline is before
/// the cursor:
///
/// - what is on a level is earlier than everything on the levels above, and what is in a slot earlier than what is in the
///   slots after it;
/// - the entries of a slot of level 0 have one deadline;
/// - a slot begins after the cursor, but on level 0, where it may be the cursor itself;
/// - the cursor may move up to where the first slot begins, and every entry stays where it is. When it is there, the
///   slot's entries differ from it in a lower digit, and are spread over the levels below, which are empty.
pub(super) struct Wheel {
    cursor: u64,
    /// What is inserted counts as no earlier than this, the time up to which entries were asked for: who is late goes
    /// after those that wait.
    floor: u64,
    /// One bit per level that has an entry.
    levels: u16,
    /// One bit per slot that has an entry.
    occupied: [[u64; WORDS]; LEVELS],
    /// One bit per word of those that is not zero.
    words: [u16; LEVELS],
    slots: [[List<TimerEntry, Beside<TimerEntry>>; SLOTS]; LEVELS],
}

// SAFETY: the wheel's owner hands its entries from thread to thread with it; an entry's operation is made for that.
unsafe impl Send for Wheel {}

impl Wheel {
    /// An empty wheel. It is large, and most of its slots are never used: memory that the system has zeroed, and gives
    /// when it is touched, is right for it.
    pub(super) fn new() -> Box<Self> {
        // SAFETY: numbers, and lists that are two pointers, which may all be zero.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// Puts an entry in.
    ///
    /// # Safety
    ///
    /// The entry is in no list, and stays where it is, and alive, until it was taken out.
    #[inline]
    pub(super) unsafe fn insert(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is alive, by the caller's promise.
        let deadline = unsafe { entry.as_ref() }.deadline().max(self.floor);
        // SAFETY: as above.
        unsafe { entry.as_ref() }.set_deadline(deadline);
        // SAFETY: by the caller's promise.
        unsafe { self.link(entry) };
    }

    /// # Safety
    ///
    /// As for [`Wheel::insert`]; the deadline is not before the cursor.
    #[inline]
    unsafe fn link(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is alive, by the caller's promise.
        let (level, slot) = self.place(unsafe { entry.as_ref() }.deadline());
        let list = &mut self.slots[level][slot];
        if list.is_empty() {
            self.occupied[level][slot / 64] |= 1 << (slot % 64);
            self.words[level] |= 1 << (slot / 64);
            self.levels |= 1 << level;
        }
        // SAFETY: by the caller's promise.
        unsafe { list.push_back(entry) };
    }

    /// Takes an entry out.
    ///
    /// # Safety
    ///
    /// The entry is in this wheel.
    pub(super) unsafe fn remove(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is in the wheel, by the caller's promise, and so valid; it is in the list of its place.
        unsafe {
            let (level, slot) = self.place(entry.as_ref().deadline());
            let list = &mut self.slots[level][slot];
            list.remove(entry);
            if list.is_empty() {
                self.vacate(level, slot);
            }
        }
    }

    /// Takes the first entry out, if its deadline is not after `now`.
    pub(super) fn pop(&mut self, now: u64) -> Option<NonNull<TimerEntry>> {
        self.floor = self.floor.max(now);
        loop {
            let Some((level, slot)) = self.first() else {
                self.cursor = self.cursor.max(now);
                return None;
            };
            let begin = self.begin(level, slot);
            if begin > now {
                // Nearer to what will be inserted, and still before every entry.
                self.cursor = self.cursor.max(now);
                return None;
            }
            let list = &mut self.slots[level][slot];
            let head = list.first()?;
            if list.last() == Some(head) || level == 0 {
                // The first of all: it need not go down the levels.
                // SAFETY: an entry in the wheel is valid.
                let deadline = unsafe { head.as_ref() }.deadline();
                if deadline > now {
                    return None;
                }
                // SAFETY: it is in the wheel.
                unsafe { self.remove(head) };
                self.cursor = deadline;
                return Some(head);
            }
            self.cursor = begin;
            let mut list = list.take();
            self.vacate(level, slot);
            while let Some(entry) = list.pop_front() {
                // SAFETY: it was in the list, and so is valid; it is in none now, and its deadline is in the slot.
                unsafe { self.link(entry) };
            }
        }
    }

    /// When to call [`Wheel::pop`] next: not after the first deadline, and that exactly where it is the only one of its
    /// slot.
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

    /// The first slot that is occupied.
    #[inline]
    fn first(&self) -> Option<(usize, usize)> {
        let level = self.levels.trailing_zeros() as usize;
        let word = self.words.get(level)?.trailing_zeros() as usize;
        Some((level, word * 64 + self.occupied[level][word].trailing_zeros() as usize))
    }

    /// The earliest deadline of a slot.
    #[inline]
    fn begin(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * BITS;
        // The digits above the level's are the cursor's; above the highest there are none.
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
