//! The queues that all workers of a pool share: one for each level of priority.

use core::ptr::NonNull;

use super::entry::{Entry, EntryPlace};
use crate::Priority;
use crate::memory::{Beside, List};
use crate::sync::Mutex;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::lock;

/// A set of levels: bit `n` is the level of number `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels(usize);

impl Levels {
    pub(super) const ALL: Levels = Levels(0b11111);
    /// What goes before the queues of the workers.
    pub(super) const URGENT: Levels = Levels(0b11000);
    pub(super) const DEFAULT: Levels = Levels(0b00100);

    pub(super) const fn of(level: Priority) -> Levels {
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

/// Five intrusive lists, first in, first out, under one lock.
///
/// A lock, because an entry is taken out of the middle when it is raised. It is held for a few instructions, and nothing
/// but links is touched under it.
pub(super) struct Injector {
    /// The levels that have entries: what the lists say, for those who do not have the lock. Written under it,
    /// sequentially consistently: whoever pushes, and then looks whether anybody is awake, is seen by a worker that says
    /// it sleeps and then looks here. An entry that moves from one level to another is in one of them at any time.
    occupied: AtomicUsize,
    lists: Mutex<Lists>,
}

struct Lists {
    lists: [List<Entry, Beside<Entry>>; 5],
    /// The levels that have entries.
    occupied: Levels,
    /// Which life of the pool's memory this is; see `PoolShared`. A push for another one is refused.
    generation: u32,
    /// No worker will look any more.
    closed: bool,
    /// The stamp of the next entry.
    stamp: u32,
}

// SAFETY: the entries of a list are reached under its lock alone, and may be run on any thread.
unsafe impl Send for Lists {}

/// The pool is gone, so the entry is still the caller's.
#[derive(Debug)]
pub(super) struct InjectorClosed;

impl Injector {
    /// One that refuses everything until it is opened.
    pub(super) fn new() -> Self {
        Injector {
            occupied: AtomicUsize::new(0),
            lists: Mutex::new(Lists {
                lists: [const { List::new() }; 5],
                occupied: Levels(0),
                generation: 0,
                closed: true,
                stamp: 0,
            }),
        }
    }

    /// Begins a new life, and returns its number.
    pub(super) fn open(&self) -> u32 {
        let mut lists = lock(&self.lists);
        lists.closed = false;
        lists.generation = lists.generation.wrapping_add(1);
        lists.generation
    }

    /// Refuses what comes from now on, unless there is still something to run.
    pub(super) fn close(&self) -> bool {
        let mut lists = lock(&self.lists);
        lists.closed = lists.occupied.is_empty();
        lists.closed
    }

    /// The levels that have entries.
    #[inline]
    pub(super) fn occupied(&self) -> Levels {
        Levels(self.occupied.load(SeqCst))
    }

    /// Appends an entry to the list of its level.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs.
    pub(super) unsafe fn push(&self, entry: NonNull<Entry>, generation: u32) -> Result<(), InjectorClosed> {
        let mut lists = lock(&self.lists);
        if lists.closed || lists.generation != generation {
            return Err(InjectorClosed);
        }
        let before = lists.occupied;
        // SAFETY: the caller's promise.
        unsafe { lists.link(entry) };
        self.publish(before, lists.occupied);
        Ok(())
    }

    /// Takes the oldest entry of the highest of `levels` that has one.
    pub(super) fn pop(&self, levels: Levels) -> Option<NonNull<Entry>> {
        let mut lists = lock(&self.lists);
        let level = lists.occupied.and(levels).highest()?;
        let entry = lists.lists[level].first()?;
        // SAFETY: it is in that list.
        unsafe { self.take_out(&mut lists, entry, level) };
        Some(entry)
    }

    /// Takes the entry that came last, at whatever level.
    #[cold]
    pub(super) fn pop_newest(&self) -> Option<NonNull<Entry>> {
        let mut lists = lock(&self.lists);
        let mut newest: Option<(NonNull<Entry>, u32, usize)> = None;
        for (level, list) in lists.lists.iter().enumerate() {
            let Some(entry) = list.last() else { continue };
            // SAFETY: an entry in a list is alive.
            let stamp = unsafe { entry.as_ref() }.stamp.load(Relaxed);
            // The stamps wrap.
            if newest.is_none_or(|(_, other, _)| stamp.wrapping_sub(other).cast_signed() > 0) {
                newest = Some((entry, stamp, level));
            }
        }
        let (entry, _, level) = newest?;
        // SAFETY: it is in that list.
        unsafe { self.take_out(&mut lists, entry, level) };
        Some(entry)
    }

    /// Takes an entry out of its list, to be run.
    ///
    /// # Safety
    ///
    /// The entry is in the list of `level`.
    unsafe fn take_out(&self, lists: &mut Lists, entry: NonNull<Entry>, level: usize) {
        let before = lists.occupied;
        // SAFETY: the caller's promise.
        unsafe {
            lists.unlink(entry, level);
            entry.as_ref().set_place(EntryPlace::Nowhere);
        }
        self.publish(before, lists.occupied);
    }

    /// Moves an entry that waits here to the list of its level, which it was raised to. `false` when it does not wait
    /// here.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    pub(super) unsafe fn raise(&self, entry: NonNull<Entry>) -> bool {
        let mut lists = lock(&self.lists);
        // SAFETY: the caller's promise.
        let this = unsafe { entry.as_ref() };
        let EntryPlace::Injector(level) = this.place() else {
            return false;
        };
        // Somebody who raised it higher may have moved it before us; it keeps its turn then.
        if level != this.level() {
            let before = lists.occupied;
            // Between the two its place stays as it was: who raises it further at this moment must not read that it
            // waits no more, but come here and wait for the lock.
            // SAFETY: under the lock, its place is the truth.
            unsafe {
                lists.unlink(entry, level as usize);
                lists.link(entry);
            }
            self.publish(before, lists.occupied);
        }
        true
    }

    /// Says which levels have entries, under the lock. Where nothing has changed, the lock orders what was said before.
    fn publish(&self, before: Levels, now: Levels) {
        if before != now {
            self.occupied.store(now.0, SeqCst);
        }
    }
}

impl Lists {
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs.
    unsafe fn link(&mut self, entry: NonNull<Entry>) {
        // SAFETY: the caller's promise.
        let this = unsafe { entry.as_ref() };
        let level = this.level();
        this.stamp.store(self.stamp, Relaxed);
        self.stamp = self.stamp.wrapping_add(1);
        this.set_place(EntryPlace::Injector(level));
        // SAFETY: the caller's promise.
        unsafe { self.lists[level as usize].push_back(entry) };
        self.occupied.0 |= 1 << level as usize;
    }

    /// Takes an entry out of its list. Its place is for the caller to change.
    ///
    /// # Safety
    ///
    /// The entry is in the list of `level`.
    unsafe fn unlink(&mut self, entry: NonNull<Entry>, level: usize) {
        let list = &mut self.lists[level];
        // SAFETY: the caller's promise.
        unsafe { list.remove(entry) };
        if list.is_empty() {
            self.occupied.0 &= !(1 << level);
        }
    }
}
