//! The queue of one seat: fixed in size, pushed by its owner, taken from by everyone.
//!
//! The owner is the thread that has the seat: see `seat.rs`. A seat passes from one thread to another under a lock, so that
//! what one owner did happened before what the next one does.

use core::ptr;

use super::entry::Item;
use crate::Job;
use crate::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use crate::sync::sequenced;

/// How many items fit. Under `loom` few, so that a model can fill it.
pub(super) const CAPACITY: usize = if cfg!(loom) { 2 } else { 256 };
const MASK: usize = CAPACITY - 1;

/// A work-stealing deque after Chase and Lev, without growth: who finds it full takes the work elsewhere.
///
/// The owner pushes at the bottom. It takes the newest item back from there, which a fork-join wants, or the oldest from
/// the top, as everyone else does. Items have numbers: `top..bottom` are in, each in the slot of its number modulo the
/// capacity.
///
/// An item is taken in two steps. First its *number* is claimed, by moving `top` or `bottom` over it; then its slot is
/// emptied. The owner reuses a slot only when it is empty, so one who claimed and has not yet emptied is in nobody's way.
///
/// A raised entry is taken out of the middle, with [`Ring::remove`], and so is a fork whose pusher is not the owner any
/// more, or has pushed something else since. The number cannot be claimed from there, so a *gap* is left, which the
/// thread that claims the number finds, clears, and tries the next. Were the slot empty at once, the owner could fill it
/// again before a thread that has claimed the old number comes to look.
///
/// The number of a fork is claimed from the top, by any thread, or from the bottom by its pusher alone
/// ([`Ring::take_back_fork`]). So while the top has not passed a fork's number, that number is the fork's.
pub(super) struct Ring {
    /// The number of the oldest item. It only grows. Whoever moves it by one, with a compare and exchange, has claimed
    /// the item.
    top: Line<AtomicUsize>,
    /// The number of the next item to be pushed. Only the owner writes it: up, after it has filled the slot, which
    /// publishes the item; down, to claim the newest. When that would be the last item, `top` decides. Sequentially
    /// consistent where a claim is made: of an owner that went down and a thief that read the bottom before, one sees
    /// the other.
    bottom: Line<AtomicUsize>,
    /// | from | to | by |
    /// |---|---|---|
    /// | null | an item | the owner, when the number is that of `bottom`; release, published by `bottom` |
    /// | an item | [`GAP`] | `remove`: a compare and exchange, acquire and release |
    /// | an item, [`GAP`] | null | the thread that has claimed the number, once: a swap, acquire and release |
    /// | a fork | null | its pusher, which claimed it from the bottom, and is the only one to `remove` it; release |
    ///
    /// So a slot is null exactly when its number is free. The owner loads it with acquire before it fills it again.
    slots: [AtomicPtr<Job>; CAPACITY],
}

/// In the slot of an item that was taken out of the middle. It looks like a plain entry.
const GAP: *mut Job = ptr::without_provenance_mut(1);

/// A cache line (two, as they are fetched in pairs) of its own.
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

impl Ring {
    pub(super) fn new() -> Self {
        Ring {
            top: Line(AtomicUsize::new(0)),
            bottom: Line(AtomicUsize::new(0)),
            slots: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// The number that the next push will use.
    ///
    /// The caller is the owner.
    pub(super) fn next_number(&self) -> usize {
        self.bottom.0.load(Relaxed)
    }

    /// Adds an item and returns its number, unless the ring is full.
    ///
    /// What the caller loads after a push that is `ordered`, sequentially consistently, is loaded after the item was
    /// there to be seen.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn push(&self, item: Item, ordered: bool) -> Option<usize> {
        let bottom = self.bottom.0.load(Relaxed);
        let slot = &self.slots[bottom & MASK];
        if !slot.load(Acquire).is_null() {
            return None;
        }
        slot.store(item.into_raw(), Release);
        self.bottom
            .0
            .store(bottom.wrapping_add(1), if ordered { SeqCst } else { Release });
        Some(bottom)
    }

    /// Takes the newest item, if it is an entry, and `wanted` by what its bits say.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn pop_newest_if(&self, wanted: impl Fn(Item) -> bool) -> Option<Item> {
        loop {
            let newest = self.bottom.0.load(Relaxed).wrapping_sub(1);
            // It is not the caller's yet, so no more is looked at than its bits.
            let item = Item::from_raw(self.slots[newest & MASK].load(Relaxed))?;
            if !(item.is_entry() && wanted(item)) {
                return None;
            }
            // A removed one has left a gap; then the one before is looked at.
            let newest = self.claim_newest()?;
            if let Some(item) = self.empty(newest) {
                return Some(item);
            }
        }
    }

    /// Takes the newest entry, also from among forks that are newer.
    ///
    /// The caller is the owner.
    #[cold]
    pub(super) fn take_newest_entry(&self) -> Option<Item> {
        let newest = self.pop_newest_if(|_| true);
        if newest.is_some() {
            return newest;
        }
        let top = self.top.0.load(Relaxed);
        let mut number = self.next_number();
        while !is_empty(top, number) {
            number = number.wrapping_sub(1);
            let raw = self.slots[number & MASK].load(Relaxed);
            // What was removed is none.
            if let Some(item) = Item::from_raw(raw)
                && item.is_entry()
                && !ptr::eq(raw, GAP)
                && self.remove(number, item)
            {
                return Some(item);
            }
        }
        None
    }

    /// Takes back a fork which the caller pushed with `number`. `false`: another thread has it.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn take_back_fork(&self, number: usize, fork: Item) -> bool {
        if self.next_number().wrapping_sub(1) != number {
            // Something was pushed since, and is still there.
            return self.remove(number, fork);
        }
        let Some(claimed) = self.claim_newest() else {
            return false;
        };
        debug_assert_eq!(claimed, number);
        // The caller alone would remove it, so it is in its slot.
        self.slots[number & MASK].store(ptr::null_mut(), Release);
        true
    }

    /// Claims the newest number, if there is one.
    ///
    /// The caller is the owner.
    #[inline]
    fn claim_newest(&self) -> Option<usize> {
        let bottom = self.bottom.0.load(Relaxed);
        if is_empty(self.top.0.load(Relaxed), bottom) {
            // The top only grows, so this is no stale news.
            return None;
        }
        let newest = bottom.wrapping_sub(1);
        // A swap, where a store and a fence would be slower.
        self.bottom.0.swap(newest, SeqCst);
        sequenced();
        let top = self.top.0.load(SeqCst);
        let claimed = if top == newest {
            // The last one: a thief may be at it. Either way the ring is empty afterwards.
            let claimed = self
                .top
                .0
                .compare_exchange(top, top.wrapping_add(1), SeqCst, Relaxed)
                .is_ok();
            self.bottom.0.store(bottom, Release);
            claimed
        } else if is_empty(top, newest) {
            self.bottom.0.store(bottom, Release);
            false
        } else {
            true
        };
        claimed.then_some(newest)
    }

    /// Takes the oldest item. Anybody may.
    #[inline]
    pub(super) fn pop_oldest(&self) -> Option<Item> {
        let mut top = self.top.0.load(SeqCst);
        loop {
            sequenced();
            if is_empty(top, self.bottom.0.load(SeqCst)) {
                return None;
            }
            match self.top.0.compare_exchange(top, top.wrapping_add(1), SeqCst, SeqCst) {
                Err(now) => top = now,
                Ok(_) => match self.empty(top) {
                    Some(item) => return Some(item),
                    None => top = top.wrapping_add(1),
                },
            }
        }
    }

    /// Takes the oldest item, if it is a fork with a number of `since` or later, and `wanted` after it was seen. Any
    /// thread may call this.
    pub(super) fn pop_fork_since(&self, since: usize, wanted: impl Fn() -> bool) -> Option<Item> {
        loop {
            let top = self.top.0.load(SeqCst);
            sequenced();
            if is_empty(top, self.bottom.0.load(SeqCst)) || is_before(top, since) {
                return None;
            }
            // While the top has not moved, this is the item of that number, or the gap that it has left.
            let oldest = Item::from_raw(self.slots[top & MASK].load(Acquire))?;
            if oldest.is_entry() || !wanted() {
                return None;
            }
            if (self.top.0)
                .compare_exchange(top, top.wrapping_add(1), SeqCst, SeqCst)
                .is_ok()
                && let Some(item) = self.empty(top)
            {
                return Some(item);
            }
        }
    }

    /// Takes `item` out, which was pushed with `number`, unless it is not there any more. A fork is removed by its pusher
    /// alone.
    pub(super) fn remove(&self, number: usize, item: Item) -> bool {
        self.slots[number & MASK]
            .compare_exchange(item.into_raw(), GAP, AcqRel, Relaxed)
            .is_ok()
    }

    /// As [`Ring::remove`], and closes the gap if that was the newest: nobody has to look at it.
    ///
    /// The caller is the owner.
    pub(super) fn take_back(&self, number: usize, item: Item) -> bool {
        let removed = self.remove(number, item);
        if removed
            && self.next_number() == number.wrapping_add(1)
            && let Some(newest) = self.claim_newest()
        {
            let nothing = self.empty(newest);
            debug_assert!(nothing.is_none(), "it was removed");
        }
        removed
    }

    /// Whether anything is in. Sequentially consistent.
    pub(super) fn has_items(&self) -> bool {
        !is_empty(self.top.0.load(SeqCst), self.bottom.0.load(SeqCst))
    }

    /// Empties the slot of a claimed number. `None` where a gap was.
    #[inline]
    fn empty(&self, number: usize) -> Option<Item> {
        // A swap: the item may be removed at this moment.
        let raw = self.slots[number & MASK].swap(ptr::null_mut(), AcqRel);
        if ptr::eq(raw, GAP) { None } else { Item::from_raw(raw) }
    }
}

/// The numbers wrap, and the bottom may be one below the top while the owner claims.
#[inline]
fn is_empty(top: usize, bottom: usize) -> bool {
    bottom.wrapping_sub(top).cast_signed() <= 0
}

/// The numbers wrap.
fn is_before(number: usize, other: usize) -> bool {
    number.wrapping_sub(other).cast_signed() < 0
}
