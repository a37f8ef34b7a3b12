//! The slot of a seat: the newest entry that its occupant pushed.
//!
//! A worker that runs a task which hops, or two tasks that wake each other, fills and empties its slot once a job. So the
//! item is under a [`Biased`] lock, like the children of the seat: the occupant uses plain loads and stores. Another
//! thread takes the item only if it raises its entry, or has found the occupant busy for a while.
//!
//! # Who may access what
//!
//! | data | accessed by |
//! |---|---|
//! | `item` | written with the lock held; read by all threads, as a hint |
//! | the entry of the item | the thread that took it out of the slot |
//!
//! Only the occupant fills the slot. So a slot that it has emptied stays empty until it fills it again.

use core::ptr;

use super::biased::Biased;
use super::entry::Item;
use crate::Job;
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Relaxed, SeqCst},
};

/// A place for one item, with an owner.
pub(super) struct Slot {
    lock: Biased<()>,
    /// The item, or null. Written with the lock held, relaxed: the lock passes the entry on. For threads without the lock
    /// it is a hint, of which they may read only the bits. Their loads are sequentially consistent where they follow a
    /// change of the idle state: see `idle/mod.rs`.
    item: AtomicPtr<Job>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Slot {
            lock: Biased::new(()),
            item: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Sets whether the lock is biased towards the occupant of the seat, which does not use the slot yet.
    pub(super) fn open(&self, biased: bool) {
        self.lock.open(biased);
    }

    /// Returns the item, which another thread may take at any time. So only its bits may be read.
    #[inline]
    pub(super) fn peek(&self) -> Option<Item> {
        Item::from_raw(self.item.load(Relaxed))
    }

    /// Returns whether there is an item. The load is sequentially consistent.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.item.load(SeqCst).is_null()
    }

    /// Puts an item into the slot, or none, and returns the one that was there.
    ///
    /// # Safety
    ///
    /// The caller is the occupant of the seat.
    #[inline]
    pub(super) unsafe fn replace(&self, item: Option<Item>) -> Option<Item> {
        // SAFETY: the contract of this function.
        let _guard = unsafe { self.lock.as_owner() };
        let before = self.item.load(Relaxed);
        self.item.store(item.map_or(ptr::null_mut(), Item::into_raw), Relaxed);
        Item::from_raw(before)
    }

    /// Takes `item` out of the slot. Returns `false` if it is not there. Any thread but the occupant may call this.
    pub(super) fn take(&self, item: Item) -> bool {
        // The heavy barrier of the lock, and the bias, are saved if the item has gone.
        if self.peek() != Some(item) {
            return false;
        }
        let _guard = self.lock.as_other();
        let is_here = self.peek() == Some(item);
        if is_here {
            self.item.store(ptr::null_mut(), Relaxed);
        }
        is_here
    }
}
