//! The queue that all workers of a pool share, with one list for each priority.
//!
//! [`Injector`] receives the jobs of other threads, of other priorities than the default, and those that do not fit
//! into a ring. It is five intrusive FIFO lists under one lock, because a raised entry is removed from the middle. The
//! lock is held for a few instructions, in which only links change.
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | the lists, and the links and stamps of their entries | the thread that holds the lock |
//! | `occupied` | read by every thread; written under the lock |
//!
//! An entry in a list is valid: the pusher keeps it valid until it runs, and only the thread that took it out runs it.
//! An entry that moves to a higher level keeps its place word in between. So a second raise waits for the lock, and
//! finds the entry in its new list.

use core::ptr::NonNull;

use super::entry::{Entry, EntryPlace, OwnedEntry};
use crate::Priority;
use crate::memory::{Beside, List};
use crate::sync::Mutex;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::lock;

/// A set of priority levels: bit `n` is the level with number `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) struct Levels(usize);

impl Levels {
    pub(in crate::scheduler) const ALL: Levels = Levels(0b11111);
    /// The levels that precede the queues of the workers.
    pub(super) const URGENT: Levels = Levels(0b11000);
    pub(super) const DEFAULT: Levels = Levels(0b00100);

    pub(in crate::scheduler) const fn of(level: Priority) -> Levels {
        Levels(1 << level as usize)
    }

    #[inline]
    pub(super) const fn and(self, other: Levels) -> Levels {
        Levels(self.0 & other.0)
    }

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn highest(self) -> Option<usize> {
        self.0.checked_ilog2().map(|level| level as usize)
    }
}

/// Five intrusive FIFO lists under one lock, one for each priority.
pub(super) struct Injector {
    /// The occupied levels, for threads without the lock. Written under the lock, sequentially consistent. So a pusher
    /// that then reads the idle state, and a worker that announces its sleep and then reads this, cannot miss each
    /// other. An entry that moves between levels is in one of them at any time.
    occupied: AtomicUsize,
    lists: Mutex<Lists>,
}

/// Five intrusive FIFO lists, one for each priority. Their owner has a lock for them.
pub(in crate::scheduler) struct Lists {
    lists: [List<Entry, Beside<Entry>>; 5],
    /// The occupied levels.
    occupied: Levels,
    /// The generation of the pool's memory; see `PoolShared`. A push of another generation is refused.
    generation: u32,
    /// Whether the workers have left, so that pushes are refused.
    closed: bool,
    /// The stamp of the next entry, which orders entries of different levels.
    stamp: u32,
}

// SAFETY: the entries of the lists are accessed under the lock only, and may run on any thread.
unsafe impl Send for Lists {}

impl Injector {
    /// Creates an injector that refuses all pushes until it is opened.
    pub(super) fn new() -> Self {
        Injector {
            occupied: AtomicUsize::new(0),
            lists: Mutex::new(Lists::new()),
        }
    }

    /// Begins a new generation, and returns its number.
    pub(super) fn open(&self) -> u32 {
        lock(&self.lists).open()
    }

    /// Refuses pushes from now on, unless entries are queued. Returns whether it does.
    pub(super) fn close(&self) -> bool {
        let mut lists = lock(&self.lists);
        lists.closed = lists.occupied.is_empty();
        lists.closed
    }

    /// Returns the occupied levels.
    #[inline]
    pub(super) fn occupied(&self) -> Levels {
        Levels(self.occupied.load(SeqCst))
    }

    /// Appends an entry to the list of its level. Returns it if the pool has ended.
    pub(super) fn push(&self, entry: OwnedEntry, generation: u32) -> Result<(), OwnedEntry> {
        let mut lists = lock(&self.lists);
        let before = lists.occupied;
        lists.push(entry, generation)?;
        self.publish(before, lists.occupied);
        Ok(())
    }

    /// Takes the oldest entry of the highest occupied level in `levels`.
    pub(super) fn pop(&self, levels: Levels) -> Option<OwnedEntry> {
        let mut lists = lock(&self.lists);
        let before = lists.occupied;
        let entry = lists.pop(levels)?;
        self.publish(before, lists.occupied);
        Some(entry)
    }

    /// Takes the newest entry of all levels.
    #[cold]
    pub(super) fn pop_newest(&self) -> Option<OwnedEntry> {
        let mut lists = lock(&self.lists);
        let mut newest: Option<(NonNull<Entry>, u32, usize)> = None;
        for (level, list) in lists.lists.iter().enumerate() {
            let Some(entry) = list.last() else { continue };
            // SAFETY: an entry in a list is valid until it is taken out.
            let stamp = unsafe { entry.as_ref() }.stamp.load(Relaxed);
            // Stamps wrap.
            if newest.is_none_or(|(_, other, _)| stamp.wrapping_sub(other).cast_signed() > 0) {
                newest = Some((entry, stamp, level));
            }
        }
        let (entry, _, level) = newest?;
        // SAFETY: the entry was found in the list of this level.
        Some(unsafe { self.take_out(&mut lists, entry, level) })
    }

    /// Takes an entry out of its list, to run it.
    ///
    /// # Safety
    ///
    /// The entry is in the list of `level`.
    unsafe fn take_out(&self, lists: &mut Lists, entry: NonNull<Entry>, level: usize) -> OwnedEntry {
        let before = lists.occupied;
        // SAFETY: the contract of this function.
        let entry = unsafe { lists.take_out(entry, level) };
        self.publish(before, lists.occupied);
        entry
    }

    /// Moves a raised entry to the list of its level. Returns `false` if the entry is not in the injector.
    ///
    /// # Safety
    ///
    /// The entry is valid.
    pub(super) unsafe fn raise(&self, entry: NonNull<Entry>) -> bool {
        let mut lists = lock(&self.lists);
        let before = lists.occupied;
        // SAFETY: the contract of this function.
        let found = unsafe { lists.raise(entry) };
        self.publish(before, lists.occupied);
        found
    }

    /// Publishes the occupied levels. The caller holds the lock. If they did not change, the lock orders the previous
    /// store.
    fn publish(&self, before: Levels, now: Levels) {
        if before != now {
            self.occupied.store(now.0, SeqCst);
        }
    }
}

impl Lists {
    /// Creates empty lists that refuse all pushes until they are opened.
    pub(in crate::scheduler) fn new() -> Self {
        Lists {
            lists: [const { List::new() }; 5],
            occupied: Levels(0),
            generation: 0,
            closed: true,
            stamp: 0,
        }
    }

    /// Begins a new generation, and returns its number.
    pub(in crate::scheduler) fn open(&mut self) -> u32 {
        self.closed = false;
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Refuses pushes from now on.
    pub(in crate::scheduler) fn close(&mut self) {
        self.closed = true;
    }

    pub(in crate::scheduler) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether pushes of this generation are accepted.
    pub(in crate::scheduler) fn accepts(&self, generation: u32) -> bool {
        !self.closed && self.generation == generation
    }

    /// Appends an entry to the list of its level. Returns it if pushes of its generation are refused.
    pub(in crate::scheduler) fn push(&mut self, entry: OwnedEntry, generation: u32) -> Result<(), OwnedEntry> {
        if !self.accepts(generation) {
            return Err(entry);
        }
        self.link(entry);
        Ok(())
    }

    /// Takes the oldest entry of the highest occupied level in `levels`, to run it.
    pub(in crate::scheduler) fn pop(&mut self, levels: Levels) -> Option<OwnedEntry> {
        let level = self.occupied.and(levels).highest()?;
        let entry = self.lists[level].first()?;
        // SAFETY: the entry was found in the list of this level.
        Some(unsafe { self.take_out(entry, level) })
    }

    /// Takes an entry, to queue it in the global pool. A thread that raises it meanwhile waits until it is queued there.
    pub(in crate::scheduler) fn pop_to_forward(&mut self) -> Option<OwnedEntry> {
        let level = self.occupied.highest()?;
        let entry = self.lists[level].first()?;
        // SAFETY: the entry was found in the list of this level.
        let entry = unsafe { self.unlink(entry, level) };
        // The mark comes first: a thread that reads the new place then reads the mark, too.
        entry.get().set_forwarded();
        entry.get().set_coming();
        Some(entry)
    }

    /// Moves a raised entry to the list of its level. Returns `false` if the entry is not in these lists.
    ///
    /// # Safety
    ///
    /// The entry is valid. If its place is an injector and it is not forwarded, it is in these lists.
    pub(in crate::scheduler) unsafe fn raise(&mut self, entry: NonNull<Entry>) -> bool {
        // SAFETY: the entry is valid, by the contract of this function.
        let this = unsafe { entry.as_ref() };
        let EntryPlace::Injector(level) = this.place() else {
            return false;
        };
        // If another thread raised it higher and has moved it, the entry keeps its position.
        if level != this.level() {
            // Its place does not change in between, so a thread that raises it further waits for the lock.
            // SAFETY: under the lock, the place is exact, so the entry is in the list of `level`.
            let entry = unsafe { self.unlink(entry, level as usize) };
            self.link(entry);
        }
        true
    }

    /// Takes an entry out of its list, to run it.
    ///
    /// # Safety
    ///
    /// The entry is in the list of `level`.
    unsafe fn take_out(&mut self, entry: NonNull<Entry>, level: usize) -> OwnedEntry {
        // SAFETY: the contract of this function.
        let entry = unsafe { self.unlink(entry, level) };
        entry.get().set_place(EntryPlace::Nowhere);
        entry
    }

    /// Appends an entry to the list of its level.
    fn link(&mut self, entry: OwnedEntry) {
        let level = entry.get().level();
        entry.get().stamp.store(self.stamp, Relaxed);
        self.stamp = self.stamp.wrapping_add(1);
        entry.get().set_place(EntryPlace::Injector(level));
        // SAFETY: an owned entry is in no queue. It stays valid until it runs, which is after it was taken out.
        unsafe { self.lists[level as usize].push_back(entry.into_raw()) };
        self.occupied.0 |= 1 << level as usize;
    }

    /// Takes an entry out of its list. The caller changes its place.
    ///
    /// # Safety
    ///
    /// The entry is in the list of `level`.
    unsafe fn unlink(&mut self, entry: NonNull<Entry>, level: usize) -> OwnedEntry {
        let list = &mut self.lists[level];
        // SAFETY: the entry is in the list, by the contract of this function. It is in no queue after the removal.
        let entry = unsafe {
            list.remove(entry);
            OwnedEntry::new(entry)
        };
        if list.is_empty() {
            self.occupied.0 &= !(1 << level);
        }
        entry
    }
}
