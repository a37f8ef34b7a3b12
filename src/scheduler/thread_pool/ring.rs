//! The queue of one seat: a work-stealing deque of fixed size, after Chase and Lev.
//!
//! [`Ring`] is pushed by its owner, and every thread may take from it. The owner is the occupant of the seat: see
//! `seat.rs`. A seat passes from one thread to another under a lock, which orders the owners.
//!
//! # Claiming and emptying
//!
//! The owner pushes at the bottom. It pops the newest item from there, as fork-join needs. Like other threads, it may
//! also take the oldest from the top. Items have numbers: `top..bottom` are in the ring, each in the slot of its number
//! modulo the capacity.
//!
//! An item is taken in two steps. First the thread claims its *number*, by moving `top` or `bottom` over it. Then it
//! empties the slot. The owner reuses a slot only when it is empty. So a thread that has claimed a number, and not yet
//! emptied the slot, blocks no other thread.
//!
//! # Removal from the middle
//!
//! [`Ring::remove`] takes out an entry that is raised. It also takes out a fork whose pusher has lost the seat, or has
//! pushed other items since. It cannot claim the number, so it leaves a *gap* in the slot. The thread that claims the
//! number later finds the gap, clears it, and tries the next number. If the slot were empty at once, the owner could
//! refill it before a thread that claimed the old number looks at it.
//!
//! # Forks
//!
//! Any thread may claim the number of a fork from the top. From the bottom only its pusher does, with
//! [`Ring::take_back_fork`]. So while the top has not passed a fork's number, that number belongs to the fork.
//!
//! Nearly all forks are taken back, so that costs the owner no atomic read-modify-write where the ring is *light*: see
//! `barrier.rs`. The owner has the light barrier between its store of `bottom` and its load of `top`. A thief that finds
//! a fork at the top has the heavy one between its load of `top` and its load of `bottom`. So of the two, one sees the
//! other. The numbers of entries are never claimed in that way. So a thief that finds an entry needs no barrier: while
//! the top does not move, that number stays the entry's, unless the owner claims it with a read-modify-write.

use core::ptr;

use super::barrier;
use super::entry::Item;
use crate::Job;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use crate::sync::sequenced;

/// The capacity. Small under `loom`, so that a model can fill the ring.
pub(super) const CAPACITY: usize = if cfg!(loom) { 2 } else { 256 };
const MASK: usize = CAPACITY - 1;

/// A work-stealing deque of fixed size. If it is full, the pusher queues the item elsewhere.
pub(super) struct Ring {
    /// The number of the oldest item. It only grows. The thread that increments it, by a compare-and-exchange, has
    /// claimed the item.
    top: Line<AtomicUsize>,
    /// The number of the next push, on the line of its owner.
    bottom: Line<Bottom>,
    /// | from | to | by |
    /// |---|---|---|
    /// | null | an item | the owner, for the number in `bottom`; release, published by `bottom` |
    /// | an item | [`GAP`] | `remove`: a compare and exchange, acquire and release |
    /// | an item, [`GAP`] | null | the thread that has claimed the number, once: a swap, acquire and release |
    /// | a fork | null | its pusher, which claimed it from the bottom and alone may `remove` it; release |
    ///
    /// So a slot is null exactly if its number is free. The owner loads it with acquire before it fills it again, which
    /// pairs with the swap to null.
    slots: [AtomicPtr<Job>; CAPACITY],
}

/// The end of a ring that its owner uses.
struct Bottom {
    /// The number of the next push. Only the owner writes it. It increments it after it filled the slot, with release
    /// or stronger, which publishes the item. It decrements it to claim the newest item; for the last item `top`
    /// decides. Claims are sequentially consistent, or have the light barrier: of an owner that decrements and a thief
    /// that loaded `bottom` before, one sees the other.
    number: AtomicUsize,
    /// Whether forks are taken back with the light barrier. Written with relaxed ordering before the ring has an owner.
    light: AtomicBool,
}

/// The value of a slot whose item was removed from the middle. It has the bits of a plain entry.
const GAP: *mut Job = ptr::without_provenance_mut(1);

/// A value on a cache line of its own. Two lines, because processors fetch them in pairs.
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

impl Ring {
    pub(super) fn new() -> Self {
        Ring {
            top: Line(AtomicUsize::new(0)),
            bottom: Line(Bottom {
                number: AtomicUsize::new(0),
                light: AtomicBool::new(false),
            }),
            slots: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Sets whether the ring is light, which requires that `barrier::is_available`. The ring has no owner yet.
    pub(super) fn open(&self, light: bool) {
        self.bottom.0.light.store(light, Relaxed);
    }

    #[inline]
    fn is_light(&self) -> bool {
        self.bottom.0.light.load(Relaxed)
    }

    /// Returns the number that the next push will use.
    ///
    /// The caller is the owner.
    pub(super) fn next_number(&self) -> usize {
        self.bottom.0.number.load(Relaxed)
    }

    /// Pushes an item and returns its number, unless the ring is full.
    ///
    /// If `ordered`, the push precedes the caller's later sequentially consistent loads.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn push(&self, item: Item, ordered: bool) -> Option<usize> {
        let bottom = self.bottom.0.number.load(Relaxed);
        let slot = &self.slots[bottom & MASK];
        if !slot.load(Acquire).is_null() {
            return None;
        }
        slot.store(item.into_raw(), Release);
        (self.bottom.0.number).store(bottom.wrapping_add(1), if ordered { SeqCst } else { Release });
        Some(bottom)
    }

    /// Takes the newest item if it is an entry and `wanted` accepts its bits.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn pop_newest_if(&self, wanted: impl Fn(Item) -> bool) -> Option<Item> {
        loop {
            let newest = self.bottom.0.number.load(Relaxed).wrapping_sub(1);
            // The item is not claimed yet, so only its bits may be read.
            let item = Item::from_raw(self.slots[newest & MASK].load(Relaxed))?;
            if !(item.is_entry() && wanted(item)) {
                return None;
            }
            // If the claimed item was removed meanwhile, there is a gap, and the next newest is tried.
            let newest = self.claim_newest(false)?;
            if let Some(item) = self.empty(newest) {
                return Some(item);
            }
        }
    }

    /// Takes the newest entry, also from below newer forks.
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
            // A gap has the bits of an entry.
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

    /// Takes back a fork that the caller pushed with `number`. Returns `false` if another thread has it.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn take_back_fork(&self, number: usize, fork: Item) -> bool {
        if self.next_number().wrapping_sub(1) != number {
            // A newer item is still in the ring, so the number cannot be claimed from the bottom.
            return self.remove(number, fork);
        }
        let Some(claimed) = self.claim_newest(self.is_light()) else {
            return false;
        };
        debug_assert_eq!(claimed, number);
        // Only the pusher removes a fork, so it is still in its slot.
        self.slots[number & MASK].store(ptr::null_mut(), Release);
        true
    }

    /// Claims the newest number, if there is one. With `light` it is that of a fork, and the ring is light.
    ///
    /// The caller is the owner.
    #[inline]
    fn claim_newest(&self, light: bool) -> Option<usize> {
        let bottom = self.bottom.0.number.load(Relaxed);
        if is_empty(self.top.0.load(Relaxed), bottom) {
            // The top only grows, so a stale value cannot make the ring look empty.
            return None;
        }
        let newest = bottom.wrapping_sub(1);
        if light {
            // Pairs with the heavy barrier of a thief that has found a fork.
            self.bottom.0.number.store(newest, Release);
            barrier::light();
        } else {
            // A swap is faster than a store and a fence.
            self.bottom.0.number.swap(newest, SeqCst);
            sequenced();
        }
        let top = self.top.0.load(SeqCst);
        let claimed = if top == newest {
            // For the last item, the owner competes with thieves for `top`. Either way the ring is empty afterwards.
            let claimed = self
                .top
                .0
                .compare_exchange(top, top.wrapping_add(1), SeqCst, Relaxed)
                .is_ok();
            self.bottom.0.number.store(bottom, Release);
            claimed
        } else if is_empty(top, newest) {
            self.bottom.0.number.store(bottom, Release);
            false
        } else {
            true
        };
        claimed.then_some(newest)
    }

    /// Takes the oldest item. Any thread may call this.
    #[inline]
    pub(super) fn pop_oldest(&self) -> Option<Item> {
        let mut top = self.top.0.load(SeqCst);
        loop {
            sequenced();
            if is_empty(top, self.bottom.0.number.load(SeqCst)) {
                return None;
            }
            if self.is_light() && !self.may_claim(top) {
                // The owner has taken a fork back, or another thread has claimed the number.
                match self.top.0.load(SeqCst) {
                    now if now == top => return None,
                    now => top = now,
                }
                continue;
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

    /// Takes the oldest item if it is a fork with a number of `since` or later, and `wanted` is true after the fork was
    /// seen. Any thread may call this.
    pub(super) fn pop_fork_since(&self, since: usize, wanted: impl Fn() -> bool) -> Option<Item> {
        loop {
            let top = self.top.0.load(SeqCst);
            sequenced();
            if is_empty(top, self.bottom.0.number.load(SeqCst)) || is_before(top, since) {
                return None;
            }
            // While the top has not moved, the slot contains the item of that number, or its gap.
            let oldest = Item::from_raw(self.slots[top & MASK].load(Acquire))?;
            if oldest.is_entry() || self.is_light() && !self.may_claim(top) || !wanted() {
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

    /// Returns whether the caller may claim the number at the top of a light ring, which it has loaded, and found below
    /// the bottom after that. If the number is a fork's, the owner sees from here on that the caller has loaded `top`.
    #[inline]
    fn may_claim(&self, top: usize) -> bool {
        match Item::from_raw(self.slots[top & MASK].load(Acquire)) {
            None => false,
            Some(item) if item.is_entry() => true,
            Some(_) => {
                // Pairs with the light barrier of an owner that claims the number.
                barrier::heavy();
                !is_empty(top, self.bottom.0.number.load(SeqCst))
            }
        }
    }

    /// Removes `item`, which was pushed with `number`. Returns `false` if it is not in the ring. Only its pusher
    /// removes a fork.
    pub(super) fn remove(&self, number: usize, item: Item) -> bool {
        self.slots[number & MASK]
            .compare_exchange(item.into_raw(), GAP, AcqRel, Relaxed)
            .is_ok()
    }

    /// Removes an item like [`Ring::remove`], and closes the gap if the item was the newest.
    ///
    /// The caller is the owner.
    pub(super) fn take_back(&self, number: usize, item: Item) -> bool {
        let removed = self.remove(number, item);
        if removed
            && self.next_number() == number.wrapping_add(1)
            && let Some(newest) = self.claim_newest(false)
        {
            let nothing = self.empty(newest);
            debug_assert!(nothing.is_none(), "it was removed");
        }
        removed
    }

    /// Returns whether the ring has items. The loads are sequentially consistent.
    pub(super) fn has_items(&self) -> bool {
        !is_empty(self.top.0.load(SeqCst), self.bottom.0.number.load(SeqCst))
    }

    /// Empties the slot of a claimed number. Returns `None` for a gap.
    #[inline]
    fn empty(&self, number: usize) -> Option<Item> {
        // A swap, because another thread may remove the item at the same time.
        let raw = self.slots[number & MASK].swap(ptr::null_mut(), AcqRel);
        if ptr::eq(raw, GAP) { None } else { Item::from_raw(raw) }
    }
}

/// Returns whether there is no number between the two. Numbers wrap, and `bottom` may be one below `top` while the
/// owner claims.
#[inline]
fn is_empty(top: usize, bottom: usize) -> bool {
    bottom.wrapping_sub(top).cast_signed() <= 0
}

/// Returns whether a number precedes another. Numbers wrap.
fn is_before(number: usize, other: usize) -> bool {
    number.wrapping_sub(other).cast_signed() < 0
}
