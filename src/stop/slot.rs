use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::NonNull;

use super::StopToken;
use super::registry::Entry;
use super::token::private::RawEntry;
use crate::Transfer;

/// An operation's place in a stop source's list: how a hand-written operation listens to its receiver's stop token.
///
/// The slot is a field of the operation. [`listen`](StopSlot::listen) puts it into the list; from then on the callback
/// may run at any moment, on any thread, at most once. Before the operation completes for another reason it calls
/// [`leave`](StopSlot::leave). For a [`NeverStop`](super::NeverStop) token the slot has no size and does nothing.
///
/// The callback is a plain function that gets the slot's address. It decides who completes the operation (it or the
/// work that was under way, by an atomic of the operation's own), then calls [`release`](StopSlot::release), then
/// completes. After `release` the operation may be gone.
///
/// For closures, and for code that is not an operation, there is [`StopCallback`](super::StopCallback).
#[repr(C)]
pub struct StopSlot<K: StopToken> {
    /// First, so that the entry's address is the slot's.
    entry: K::Entry,
    _pinned: PhantomPinned,
}

impl<K: StopToken> StopSlot<K> {
    /// A slot that will call `callback` with its own address.
    pub fn new(callback: unsafe fn(NonNull<StopSlot<K>>) -> Transfer) -> Self {
        // SAFETY: both take one thin pointer, and the entry is the first field of the `repr(C)` slot, so what the
        // registry passes is the slot's address.
        let fire = unsafe {
            mem::transmute::<unsafe fn(NonNull<StopSlot<K>>) -> Transfer, unsafe fn(NonNull<Entry>) -> Transfer>(
                callback,
            )
        };
        StopSlot {
            entry: K::Entry::new(fire),
            _pinned: PhantomPinned,
        }
    }

    /// Enters the list of the token's source. `false` when the stop has been requested already: the callback is not
    /// called then, the operation sees to itself.
    ///
    /// # Safety
    ///
    /// The slot is pinned and listens for the first time. Before it, or the token's source, is gone, either
    /// [`leave`](StopSlot::leave) has returned or the callback has called [`release`](StopSlot::release).
    #[inline]
    pub unsafe fn listen(this: NonNull<Self>, token: &K) -> bool {
        match token.registry() {
            // SAFETY: pinned, idle and withdrawn in time, by the caller's promise. A token that has a registry has
            // an `Entry`, at the address of the slot.
            Some(registry) => unsafe { Entry::enter(this.cast(), registry) },
            None => true,
        }
    }

    /// Leaves the list. `true` when the callback has not run and never will. `false` when it has, after it was waited
    /// for, up to its `release`, where it is running on another thread.
    ///
    /// Not to be called from inside the callback, which calls [`release`](StopSlot::release) instead.
    #[inline]
    pub fn leave(&self) -> bool {
        match self.entry.get() {
            Some(entry) => entry.withdraw(),
            None => true,
        }
    }

    /// Leaves the list, without the wait: `false` when the callback has run, or is running.
    #[cfg(feature = "std")]
    pub(crate) fn try_leave(&self) -> bool {
        match self.entry.get() {
            Some(entry) => entry.try_withdraw(),
            None => true,
        }
    }

    /// Whether the callback, which has run or is running, needs the operation no more.
    #[cfg(feature = "std")]
    pub(crate) fn is_released(&self) -> bool {
        self.entry.get().is_none_or(Entry::is_released)
    }

    /// Called by the callback, once: it needs the operation no more.
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
