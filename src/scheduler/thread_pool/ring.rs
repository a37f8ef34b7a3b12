//! The queue of one worker: fixed in size, pushed by its owner, taken from by everyone.

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
/// emptied. A slot that is found empty by then was a raised item, which somebody took out of the middle with
/// [`Ring::remove`]; the claim is good for nothing and the next number is tried. The owner reuses a slot only when it is
/// empty, so one who claimed and has not yet emptied is in nobody's way.
pub(super) struct Ring {
    /// The number of the oldest item. It only grows. Whoever moves it by one, with a compare and exchange, has claimed
    /// the item.
    top: Line<AtomicUsize>,
    /// The number of the next item to be pushed. Only the owner writes it: up, after it has filled the slot, which
    /// publishes the item; down, to claim the newest. When that would be the last item, `top` decides. Sequentially
    /// consistent where a claim is made: of an owner that went down and a thief that read the bottom before, one sees
    /// the other.
    bottom: Line<AtomicUsize>,
    /// Null, or an item. Filled by the owner alone; emptied by whoever has claimed its number, or by `remove`.
    slots: [AtomicPtr<Job>; CAPACITY],
}

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

    /// Adds an item, unless the ring is full.
    ///
    /// What the caller loads after a push that is `ordered`, sequentially consistently, is loaded after the item was
    /// there to be seen.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn push(&self, item: Item, ordered: bool) -> Result<(), Item> {
        let bottom = self.bottom.0.load(Relaxed);
        let slot = &self.slots[bottom & MASK];
        // The top is looked at as well as the slot, since the slot of a removed item is empty before its turn.
        let full = bottom.wrapping_sub(self.top.0.load(Acquire)) >= CAPACITY;
        if full || !slot.load(Acquire).is_null() {
            return Err(item);
        }
        slot.store(item.into_raw(), Release);
        self.bottom
            .0
            .store(bottom.wrapping_add(1), if ordered { SeqCst } else { Release });
        Ok(())
    }

    /// Takes the newest item.
    ///
    /// The caller is the owner.
    #[inline]
    pub(super) fn pop_newest(&self) -> Option<Item> {
        loop {
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
            if !claimed {
                return None;
            }
            if let Some(item) = self.empty(newest) {
                return Some(item);
            }
        }
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

    /// Takes `item` out, which was pushed with `number`, unless it is not there any more.
    pub(super) fn remove(&self, number: usize, item: Item) -> bool {
        self.slots[number & MASK]
            .compare_exchange(item.into_raw(), ptr::null_mut(), AcqRel, Relaxed)
            .is_ok()
    }

    /// Whether anything is in. Sequentially consistent.
    pub(super) fn has_items(&self) -> bool {
        !is_empty(self.top.0.load(SeqCst), self.bottom.0.load(SeqCst))
    }

    /// Empties the slot of a claimed number.
    #[inline]
    fn empty(&self, number: usize) -> Option<Item> {
        let slot = &self.slots[number & MASK];
        let item = Item::from_raw(slot.load(Acquire))?;
        if item.is_entry() {
            // Somebody may be about to remove it.
            return Item::from_raw(slot.swap(ptr::null_mut(), AcqRel));
        }
        slot.store(ptr::null_mut(), Release);
        Some(item)
    }
}

/// The numbers wrap, and the bottom may be one below the top while the owner claims.
#[inline]
fn is_empty(top: usize, bottom: usize) -> bool {
    bottom.wrapping_sub(top).cast_signed() <= 0
}
