//! The order of the timers: a radix wheel with intrusive lists that is sorted ahead of time, in small steps.
//!
//! [`Wheel`] is only accessed under the lock of `pending.rs`, its caller. Inserting and removing an entry take constant
//! time. Taking entries out costs an *effort* of one for each entry that is taken or moved, and the caller limits the
//! effort of a call. An entry moves at most six times.
//!
//! # Levels and slots
//!
//! A deadline has seven digits of ten bits. A *slot* of level L is an interval of 2^(10 L) nanoseconds. So the slots of
//! the first four levels last for a nanosecond, a microsecond, a millisecond and a second. The slot of the next level
//! that contains a slot is its *parent*. The *current* slot of a level contains the cursor. It and the seven slots
//! after it are *open*: the level below has lists for their parts.
//!
//! A new entry goes to the lowest level that has a list for its deadline. Its slot is not open then, except on level 0.
//! When its slot has become open, the entry may move to the level below. The entries of a slot do so one by one.
//!
//! # Ahead of time
//!
//! [`Wheel::prepare`] moves the entries of a slot of a millisecond or more while the slot before is current. So a
//! million timers of one second are sorted during the second before, in pauses between due timers. An entry that is
//! alone in its slot stays, because it can be taken out from every level.
//!
//! All open slots of the level after the current one are spread together, one entry of each in turn. The next entry of
//! a list is known only when the last one is in the caches, but the processor fetches those of several lists at once.
//!
//! If the driver is late, [`Wheel::pop`] moves the entries of the slot that is due, within the same effort.
//!
//! # Invariants
//!
//! - No deadline precedes the cursor.
//! - A slot with entries begins after the cursor, except on level 0, where it may be at the cursor.
//! - The parent of a slot with entries is open. So each list of a level belongs to one slot at a time.
//! - Of two entries with equal deadlines, the one on the higher level was inserted earlier. In one list, that is the
//!   one closer to the front.
//!
//! The last one holds because new entries go to the back of a list on the lowest level possible. Entries that move down
//! leave their list at the back, and enter the next one at the front.
//!
//! # Order
//!
//! Slots of different levels either contain one another, or are disjoint. The slot that begins first therefore has the
//! first entry. If several begin at once, they contain one another, and the highest has the oldest entries. Above level
//! 0, its entries move down before any entry is taken out. One that is alone in the slot, and precedes all slots of the
//! lower levels, is taken out at once.
//!
//! A slot in the current parent precedes the slots of all higher levels, because these begin after the cursor.
//!
//! # Why it is sound
//!
//! An entry in a list is valid and pinned, by the contract of `insert`. Its list is a function of its level, which is
//! stored in the entry, and its deadline. So `remove` finds it, wherever the cursor is.

use core::fmt;
use core::ptr::NonNull;
use std::boxed::Box;

use super::entry::TimerEntry;
use crate::memory::{Beside, List};

/// The number of bits of a digit. A model creates many wheels, so they are smaller there.
const BITS: u32 = if cfg!(loom) { 6 } else { 10 };
/// The number of slots with one parent.
const SLOTS: usize = 1 << BITS;
const WORDS: usize = SLOTS / 64;
/// The number of open slots of a level, a power of two.
const OPEN: usize = if cfg!(loom) { 2 } else { 8 };
/// The number of digits of a `u64`.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// The lowest level whose slots are spread ahead of time. The entries of a slot below are due within a microsecond, and
/// take longer to complete than to move.
const LOWEST_PREPARED: usize = 2;

type EntryList = List<TimerEntry, Beside<TimerEntry>>;

/// Entries in the order of their deadlines, and of their insertion for equal ones.
pub(super) struct Wheel {
    /// Not after `floor`.
    cursor: u64,
    /// The time up to which entries were taken. A new entry counts as no earlier than this, so a late one follows those
    /// that wait.
    floor: u64,
    /// A bit for each level with entries.
    levels: u16,
    /// A bit for each word of `occupied` that is not zero. One integer for each open parent, at its number modulo their
    /// count.
    words: [[u16; OPEN]; LEVELS],
    /// A bit for each slot with entries.
    occupied: [[u64; OPEN * WORDS]; LEVELS],
    /// The entries of the slots with open parents, at the index of the slot.
    lists: [[EntryList; OPEN * SLOTS]; LEVELS],
}

// SAFETY: the entries move between threads with the wheel. A timer operation may be completed on any thread.
unsafe impl Send for Wheel {}

/// An interval of time.
#[derive(Clone, Copy)]
struct Slot {
    level: usize,
    /// The beginning divided by the length, which is a power of two.
    number: u64,
}

impl Slot {
    /// Returns the slot of a level that contains a time. Above the highest level, one slot contains all times.
    #[inline]
    fn at(level: usize, time: u64) -> Self {
        Slot {
            level,
            number: time.checked_shr(level as u32 * BITS).unwrap_or(0),
        }
    }

    #[inline]
    fn begin(self) -> u64 {
        self.number << (self.level as u32 * BITS)
    }

    /// Returns the number of its parent.
    #[inline]
    fn parent(self) -> u64 {
        self.number >> BITS
    }

    /// Returns its index in the lists of its level.
    #[inline]
    fn index(self) -> usize {
        self.number as usize % (OPEN * SLOTS)
    }
}

impl Wheel {
    /// Creates an empty wheel. It is large, and most of its slots are never used. So it is zeroed memory, which the
    /// system commits when it is accessed.
    pub(super) fn new() -> Box<Self> {
        // SAFETY: the wheel consists of integers and lists of two pointers, all of which may be zero.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// Inserts an entry. If this makes [`Wheel::next`] earlier, returns the new value, and otherwise a later time.
    ///
    /// # Safety
    ///
    /// The entry is in no list, and stays valid at its address until it is taken out.
    #[inline]
    pub(super) unsafe fn insert(&mut self, entry: NonNull<TimerEntry>) -> u64 {
        // SAFETY: the entry is valid, by the contract of this function.
        let this = unsafe { entry.as_ref() };
        let deadline = this.deadline().max(self.floor);
        this.set_deadline(deadline);
        let slot = self.lowest(deadline);
        let joins_one = has_one(self.list(slot));
        // SAFETY: the contract of this function. The slot contains the deadline, and its parent is open.
        unsafe { self.push(slot, entry, EntryList::push_back) };
        if joins_one { slot_wanted(slot) } else { deadline }
    }

    /// Removes an entry.
    ///
    /// # Safety
    ///
    /// The entry is in this wheel.
    #[inline]
    pub(super) unsafe fn remove(&mut self, entry: NonNull<TimerEntry>) {
        // SAFETY: the entry is in the wheel, by the contract of this function, and so valid. It is in the list of its
        // level and deadline.
        unsafe {
            let slot = Slot::at(entry.as_ref().level(), entry.as_ref().deadline());
            let list = self.list(slot);
            list.remove(entry);
            if list.is_empty() {
                self.vacate(slot);
            }
        }
    }

    /// Removes and returns the first entry, if its deadline is not after `now`. Subtracts the entries that were taken
    /// or moved from `effort`. With an effort of zero, returns `None` although an entry may be due.
    pub(super) fn pop(&mut self, now: u64, effort: &mut usize) -> Option<NonNull<TimerEntry>> {
        self.floor = self.floor.max(now);
        while *effort > 0 {
            let Some((slot, below)) = self.first().filter(|(slot, _)| slot.begin() <= now) else {
                // No slot begins before `now`, so the cursor may move there.
                self.cursor = self.cursor.max(now);
                return None;
            };
            let list = self.list(slot);
            let head = list.first()?;
            // SAFETY: an entry in the wheel is valid.
            let deadline = unsafe { head.as_ref() }.deadline();
            if slot.level == 0 || has_one(list) && deadline <= now && deadline < below {
                // SAFETY: the entry is the first of a list of this wheel.
                unsafe { self.remove(head) };
                self.cursor = deadline;
                *effort -= 1;
                return Some(head);
            }
            // The slot becomes open, if it is not. It begins after the cursor, and no other slot begins earlier.
            self.cursor = slot.begin() - 1;
            while *effort > 0 && !self.list(slot).is_empty() {
                self.lower_last(slot);
                *effort -= 1;
            }
        }
        None
    }

    /// Moves entries closer to the front ahead of time. Subtracts their number from `effort`.
    pub(super) fn prepare(&mut self, effort: &mut usize) {
        while *effort > 0
            && let Some(next) = self.next_crowded()
        {
            // One entry of each list in turn.
            let last = next.number + OPEN as u64 - 2;
            for number in next.number..=last {
                let slot = Slot { number, ..next };
                if *effort > 0 && is_crowded(self.list(slot)) {
                    self.lower_last(slot);
                    *effort -= 1;
                }
            }
        }
    }

    /// Returns the time of the next call of [`Wheel::pop`] and [`Wheel::prepare`]. It is not after the first deadline,
    /// and equals it if that entry is alone in its slot.
    pub(super) fn next(&mut self) -> Option<u64> {
        let mut next = None::<u64>;
        for level in bits(self.levels) {
            let slot = self.first_on(level);
            let list = self.list(slot);
            let wanted = match list.first() {
                // SAFETY: an entry in the wheel is valid.
                Some(first) if has_one(list) => unsafe { first.as_ref() }.deadline(),
                _ => slot_wanted(slot),
            };
            next = Some(next.map_or(wanted, |next| next.min(wanted)));
        }
        next
    }

    /// Returns the slot that contains a deadline on the lowest level with a list for it.
    #[inline]
    fn lowest(&self, deadline: u64) -> Slot {
        // On the level of the highest digit in which the two differ, they have one parent.
        let differs = (deadline ^ self.cursor) | 1;
        let mut level = ((u64::BITS - 1 - differs.leading_zeros()) / BITS) as usize;
        loop {
            let slot = Slot::at(level, deadline);
            let ahead = slot.number - Slot::at(level, self.cursor).number;
            if level == 0 || ahead >= OPEN as u64 {
                return slot;
            }
            level -= 1;
        }
    }

    /// Adds an entry to the list of a slot.
    ///
    /// # Safety
    ///
    /// The contract of [`Wheel::insert`]. The slot contains the deadline, and its parent is open.
    #[inline]
    unsafe fn push(
        &mut self,
        slot: Slot,
        entry: NonNull<TimerEntry>,
        push: unsafe fn(&mut EntryList, NonNull<TimerEntry>),
    ) {
        // SAFETY: the entry is valid, by the contract of this function.
        unsafe { entry.as_ref() }.set_level(slot.level);
        let list = self.list(slot);
        let was_empty = list.is_empty();
        // SAFETY: the contract of this function.
        unsafe { push(list, entry) };
        if was_empty {
            let (level, index) = (slot.level, slot.index());
            self.occupied[level][index / 64] |= 1 << (index % 64);
            self.words[level][index / SLOTS] |= 1 << (index % SLOTS / 64);
            self.levels |= 1 << level;
        }
    }

    /// Moves the last entry of an open slot above level 0 to the level below.
    #[inline]
    fn lower_last(&mut self, slot: Slot) {
        let list = self.list(slot);
        let Some(entry) = list.last() else { return };
        // SAFETY: the entry is in the list, and so valid. Then it is in no list. Its slot below contains its deadline,
        // and has an open parent.
        unsafe {
            list.remove(entry);
            if list.is_empty() {
                self.vacate(slot);
            }
            let below = Slot::at(slot.level - 1, entry.as_ref().deadline());
            self.push(below, entry, EntryList::push_front);
        }
    }

    /// Returns the slot with the first entry, and the beginning of the first slot of the levels below it.
    #[inline]
    fn first(&self) -> Option<(Slot, u64)> {
        let mut first: Option<(Slot, u64)> = None;
        for level in bits(self.levels) {
            let slot = self.first_on(level);
            let below = first.map_or(u64::MAX, |(first, _)| first.begin());
            if slot.begin() <= below {
                first = Some((slot, below));
            }
            if slot.parent() == Slot::at(level + 1, self.cursor).number {
                break;
            }
        }
        first
    }

    /// Returns the first slot with entries of a level that has one.
    #[inline]
    fn first_on(&self, level: usize) -> Slot {
        let mut parent = Slot::at(level + 1, self.cursor).number;
        while self.words[level][parent as usize % OPEN] == 0 {
            parent += 1;
        }
        let word = self.words[level][parent as usize % OPEN].trailing_zeros() as usize;
        let bit = self.occupied[level][parent as usize % OPEN * WORDS + word].trailing_zeros() as usize;
        Slot {
            level,
            number: (parent << BITS) | (word * 64 + bit) as u64,
        }
    }

    /// Returns the slot after the current one on the lowest level on which it is to be spread ahead of time.
    #[inline]
    fn next_crowded(&mut self) -> Option<Slot> {
        for level in bits(self.levels >> LOWEST_PREPARED) {
            let mut slot = Slot::at(level + LOWEST_PREPARED, self.cursor);
            slot.number += 1;
            if is_crowded(self.list(slot)) {
                return Some(slot);
            }
        }
        None
    }

    #[inline]
    fn list(&mut self, slot: Slot) -> &mut EntryList {
        &mut self.lists[slot.level][slot.index()]
    }

    /// Clears the bits of a slot that has become empty.
    #[inline]
    fn vacate(&mut self, slot: Slot) {
        let (level, index) = (slot.level, slot.index());
        self.occupied[level][index / 64] &= !(1 << (index % 64));
        if self.occupied[level][index / 64] == 0 {
            self.words[level][index / SLOTS] &= !(1 << (index % SLOTS / 64));
            if self.words[level] == [0; OPEN] {
                self.levels &= !(1 << level);
            }
        }
    }
}

/// Returns the time at which a slot with several entries is spread: ahead of time when the cursor is in the slot
/// before, or at its beginning.
#[inline]
fn slot_wanted(mut slot: Slot) -> u64 {
    if slot.level >= LOWEST_PREPARED {
        // It begins after the cursor, so it is not the first.
        slot.number -= 1;
    }
    slot.begin()
}

#[inline]
fn has_one(list: &EntryList) -> bool {
    !list.is_empty() && list.first() == list.last()
}

#[inline]
fn is_crowded(list: &EntryList) -> bool {
    list.first() != list.last()
}

/// Returns the numbers of the bits that are set, lowest first.
#[inline]
fn bits(mut word: u16) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 16).then_some(bit)
    })
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
