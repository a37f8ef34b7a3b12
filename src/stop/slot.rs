use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::NonNull;

use super::StopToken;
use super::registry::StopEntry;
use super::token::private::RawEntry;
use crate::Transfer;

/// An operation's place in a stop source's list: how a hand-written operation listens to its receiver's stop token.
///
/// The slot is a field of the operation. [`listen`](StopSlot::listen) puts it into the list; from then on the callback
/// may run at any moment, on any thread, at most once. Before the operation completes for another reason it calls
/// [`leave`](StopSlot::leave). For a [`NeverStop`](super::NeverStop) token the slot has no size and does nothing.
///
/// The callback is a plain function that gets the slot's address. It decides which side completes the operation (the
/// callback, or the work that was under way) by an atomic of the operation's own. Then it calls
/// [`release`](StopSlot::release), then completes. After `release` the operation may be gone.
///
/// The slot owns the token it listens to, and keeps the memory of a [`StopSource`](super::StopSource) alive until the
/// slot is dropped. So an environment may make a new token each time it is asked.
///
/// For closures, and for code that is not an operation, there is [`StopCallback`](super::StopCallback).
#[repr(C)]
pub struct StopSlot<K: StopToken> {
    /// First, so that the entry's address is the slot's.
    entry: K::Entry,
    /// The reference to the registry that the entry points at. Written by `listen`, before the entry is listed, and then
    /// untouched until the slot is dropped: `leave` may still use the registry after the callback's `release`.
    kept: K::Keep,
    _pinned: PhantomPinned,
}

impl<K: StopToken> StopSlot<K> {
    /// A slot that will call `callback` with its own address.
    pub fn new(callback: unsafe fn(NonNull<StopSlot<K>>) -> Transfer) -> Self {
        // SAFETY: both take one thin pointer, and the entry is the first field of the `repr(C)` slot, so what the
        // registry passes is the slot's address.
        let fire = unsafe {
            mem::transmute::<unsafe fn(NonNull<StopSlot<K>>) -> Transfer, unsafe fn(NonNull<StopEntry>) -> Transfer>(
                callback,
            )
        };
        StopSlot {
            entry: K::Entry::new(fire),
            kept: K::Keep::default(),
            _pinned: PhantomPinned,
        }
    }

    /// Enters the list of the token's source. Returns `false` when the stop has been requested already: the callback is
    /// not called then, and the operation completes by itself.
    ///
    /// # Safety
    ///
    /// The slot is pinned and listens for the first time. Before the slot is dropped, either
    /// [`leave`](StopSlot::leave) has returned or the callback has called [`release`](StopSlot::release). Only the
    /// callback calls `release` while the slot is listed, and it does not call the slot's `leave`.
    ///
    /// A source that is borrowed, by an [`InplaceStopToken`](super::InplaceStopToken), is valid until then.
    #[inline]
    pub unsafe fn listen(this: NonNull<Self>, token: K) -> bool {
        let Some(registry) = token.registry().map(NonNull::from) else {
            return true;
        };
        // SAFETY: the slot is alive and not listed, so no other thread uses it. The entry is pinned, idle and withdrawn in
        // time, by the caller's promise. A token with a registry has an `StopEntry`, at the address of the slot. What
        // `keep` made keeps the registry valid, by the contract of `Raw`.
        unsafe {
            (*this.as_ptr()).kept = token.keep();
            StopEntry::enter(this.cast(), registry)
        }
    }

    /// Leaves the list. Returns `true` when the callback has not run and never will. Returns `false` when it has run; a
    /// callback that is running on another thread is waited for, up to its `release`.
    ///
    /// Not to be called from inside the callback, which calls [`release`](StopSlot::release) instead.
    #[inline]
    pub fn leave(&self) -> bool {
        match self.entry.get() {
            Some(entry) => entry.withdraw(),
            None => true,
        }
    }

    /// Leaves the list without waiting. Returns `false` when the callback has run, or is running.
    #[cfg(feature = "std")]
    pub(crate) fn try_leave(&self) -> bool {
        match self.entry.get() {
            Some(entry) => entry.try_withdraw(),
            None => true,
        }
    }

    /// Returns whether the callback has released the slot, or the slot has left.
    #[cfg(feature = "std")]
    pub(crate) fn is_released(&self) -> bool {
        self.entry.get().is_none_or(StopEntry::is_released)
    }

    /// Returns whether the source's stop has reached this slot: its callback is running, or has run.
    ///
    /// Asked by the operation where it has not left.
    #[cfg(feature = "alloc")]
    pub(crate) fn has_fired(&self) -> bool {
        self.entry.get().is_some_and(StopEntry::has_fired)
    }

    /// Called by the callback, once: the callback does not use the operation any more.
    #[inline]
    pub fn release(&self) {
        if let Some(entry) = self.entry.get() {
            entry.release();
        }
    }
}

impl<K: StopToken> fmt::Debug for StopSlot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StopSlot").field(&self.entry.get()).finish()
    }
}
