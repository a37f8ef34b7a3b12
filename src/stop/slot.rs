use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::NonNull;

use super::StopToken;
use super::registry::StopEntry;
use super::token::private::RawEntry;
use crate::Transfer;

/// An operation's entry in a stop source's list. A hand-written operation listens to its receiver's stop token with it.
///
/// The slot is a field of the operation. [`listen`](StopSlot::listen) adds it to the list. From then on the callback
/// may run at any moment, on any thread, at most once. Before the operation completes for another reason it calls
/// [`leave`](StopSlot::leave). For a [`NeverStop`](super::NeverStop) token the slot has no size and does nothing.
///
/// The callback is a plain function that gets the slot's address. It proceeds in this order:
///
/// 1. It decides which side completes the operation, the callback or the work in progress, by an atomic of the
///    operation.
/// 2. It calls [`release`](StopSlot::release). After that the operation may be freed.
/// 3. It completes the receiver, if it won.
///
/// The slot owns the token it listens to, which keeps the memory of a [`StopSource`](super::StopSource) alive. So an
/// environment may create a new token for each request.
///
/// [`StopCallback`](super::StopCallback) registers a closure, for code that is not an operation.
#[repr(C)]
pub struct StopSlot<K: StopToken> {
    /// The first field, so that the entry's address is the slot's.
    entry: K::Entry,
    /// Keeps the registry of `entry` valid. Written by `listen`, before the entry is listed, and dropped with the slot:
    /// `leave` may use the registry even after the callback's `release`.
    kept: K::Keep,
    _pinned: PhantomPinned,
}

impl<K: StopToken> StopSlot<K> {
    /// Creates a slot that calls `callback` with its own address.
    pub fn new(callback: unsafe fn(NonNull<StopSlot<K>>) -> Transfer) -> Self {
        // SAFETY: both function types take one thin pointer. The entry is the first field of the `repr(C)` slot, so the
        // registry passes the slot's address.
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

    /// Adds the slot to the list of the token's source. Returns `false` if the stop has been requested already. The
    /// callback is not called then, and the operation completes by itself.
    ///
    /// # Safety
    ///
    /// - The slot is pinned, and this is its first call.
    /// - Before the slot is dropped, [`leave`](StopSlot::leave) has returned or the callback has called
    ///   [`release`](StopSlot::release).
    /// - While the slot is listed, only the callback calls `release`, and the callback does not call `leave`.
    ///
    /// - A source that an [`InplaceStopToken`](super::InplaceStopToken) borrows is valid until then.
    #[inline]
    pub unsafe fn listen(this: NonNull<Self>, token: K) -> bool {
        // SAFETY: the slot is valid and not listed, so this thread has exclusive access. The entry is pinned, idle and
        // withdrawn in time, by the contract of this function. It is at the address of the slot.
        unsafe { token.listen(this.cast(), &raw mut (*this.as_ptr()).kept) }
    }

    /// Leaves the list. Returns `true` if the callback has not run and never will. Returns `false` if it has run, and
    /// waits first for the `release` of a callback on another thread.
    ///
    /// The callback itself must not call this; it calls [`release`](StopSlot::release).
    #[inline]
    pub fn leave(&self) -> bool {
        match self.entry.get() {
            Some(entry) => entry.withdraw(),
            None => true,
        }
    }

    /// Leaves the list without waiting. Returns `false` if the callback has run or is running.
    #[cfg(feature = "std")]
    pub(crate) fn try_leave(&self) -> bool {
        match self.entry.get() {
            Some(entry) => entry.try_withdraw(),
            None => true,
        }
    }

    /// Returns whether the callback has released the slot, or the slot has left the list.
    #[cfg(feature = "std")]
    pub(crate) fn is_released(&self) -> bool {
        self.entry.get().is_none_or(StopEntry::is_released)
    }

    /// Returns whether the stop has reached this slot: its callback is running or has run.
    ///
    /// The operation calls this only before it leaves.
    #[cfg(feature = "alloc")]
    pub(crate) fn has_fired(&self) -> bool {
        self.entry.get().is_some_and(StopEntry::has_fired)
    }

    /// Returns the reason of the stop that has reached this slot. Only the callback calls this, before its release.
    #[cfg(feature = "std")]
    pub(super) fn why(&self) -> Option<super::Why> {
        self.entry.get().and_then(StopEntry::why)
    }

    /// Ends the callback's access to the operation. The callback calls this once.
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
