use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::StopToken;
use super::slot::StopSlot;
use crate::sender::stage::container_of;
use crate::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::{spin, thread_id};
use crate::{Panic, Transfer};

/// A closure that runs when a stop is requested, for as long as this registration lives.
///
/// It is pinned where it stands and then registered. A stop that was requested before runs the closure at once. It runs
/// at most once, on the thread that requests the stop, outside any lock. Dropping the registration takes it back; when
/// the closure is running on another thread, the drop waits until it has returned, and when it is the closure itself
/// that drops its registration, it does not.
///
/// A closure that panics has been reported by the panic hook; the other callbacks still run, and `request_stop`
/// returns.
///
/// ```
/// use bowline::stop::{StopCallback, StopSource};
/// use std::pin::pin;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::sync::Arc;
///
/// let source = StopSource::new();
/// let closed = Arc::new(AtomicBool::new(false));
/// let mut callback = pin!(StopCallback::new(source.token(), {
///     let closed = closed.clone();
///     move || closed.store(true, Ordering::Relaxed)
/// }));
/// callback.as_mut().register();
/// source.request_stop();
/// assert!(closed.load(Ordering::Relaxed));
/// ```
///
/// The closure must be `'static`, since a pinned value can be leaked and the closure would outlive what it borrows.
/// [`with_callback`] takes one that borrows.
pub struct StopCallback<K: StopToken, F: FnOnce() + Send> {
    slot: StopSlot<K>,
    token: K,
    closure: UnsafeCell<Option<F>>,
    /// The thread that runs the closure, 0 before and after; what the closure's own drop of the registration is told by.
    runner: AtomicUsize,
    /// Set by that thread while it runs the closure: where to note, on its stack, that the registration is gone.
    gone: AtomicPtr<bool>,
    registered: bool,
    _pinned: PhantomPinned,
}

// SAFETY: the closure is `Send` and runs at most once; the rest is a token and atomics.
unsafe impl<K: StopToken, F: FnOnce() + Send> Send for StopCallback<K, F> {}
// SAFETY: nothing is done through a shared reference but by the registry, which runs the closure once.
unsafe impl<K: StopToken, F: FnOnce() + Send> Sync for StopCallback<K, F> {}

impl<K: StopToken, F: FnOnce() + Send> StopCallback<K, F> {
    fn unregistered(token: K, closure: F) -> Self {
        StopCallback {
            slot: StopSlot::new(Self::fire),
            token,
            closure: UnsafeCell::new(Some(closure)),
            runner: AtomicUsize::new(0),
            gone: AtomicPtr::new(ptr::null_mut()),
            registered: false,
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// The slot is that of a registered callback.
    unsafe fn fire(slot: NonNull<StopSlot<K>>) -> Transfer {
        // SAFETY: the slot is a field of a callback, which is not gone before the slot is released, but by this thread.
        let this = unsafe { container_of!(slot, Self, slot) };
        let mut gone = false;
        // SAFETY: as above; the closure is taken by this one call.
        let closure = unsafe {
            let this = this.as_ref();
            this.gone.store(&raw mut gone, Relaxed);
            this.runner.store(thread_id(), Release);
            (*this.closure.get()).take()
        };
        if let Some(closure) = closure {
            crate::sender::current::hand_over();
            drop(Panic::catch(closure));
        }
        // Written by this thread alone, inside the closure.
        // SAFETY: it is a local.
        if !unsafe { (&raw const gone).read_volatile() } {
            // SAFETY: not gone: it waits for the release.
            let this = unsafe { this.as_ref() };
            this.gone.store(ptr::null_mut(), Relaxed);
            this.runner.store(0, Relaxed);
            this.slot.release();
        }
        Transfer::none()
    }

    /// # Safety
    ///
    /// The closure, and what the token borrows, outlive the registration even if it is leaked.
    unsafe fn register_unchecked(self: Pin<&mut Self>) {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.registered {
            return;
        }
        this.registered = true;
        let this = NonNull::from(this);
        // SAFETY: the slot is pinned with the callback; `drop` leaves. What the token borrows outlives the registration.
        let listening = unsafe {
            let slot = NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot);
            StopSlot::listen(slot, (*this.as_ptr()).token.clone())
        };
        if !listening {
            // SAFETY: it was not entered, so nobody else runs the closure.
            if let Some(closure) = unsafe { (*this.as_ref().closure.get()).take() } {
                drop(Panic::catch(closure));
            }
        }
    }
}

impl<K: StopToken, F: FnOnce() + Send + 'static> StopCallback<K, F> {
    /// A callback that is not registered yet.
    pub fn new(token: K, closure: F) -> Self {
        Self::unregistered(token, closure)
    }

    /// Registers it, or runs the closure at once when the stop has been requested already. A second call does nothing.
    pub fn register(self: Pin<&mut Self>) {
        // SAFETY: the closure is `'static`. A leaked registration stays in the list with its memory; the token that it
        // keeps stays with it, and a borrowed source's list is not reached through it any more.
        unsafe { self.register_unchecked() }
    }
}

impl<K: StopToken, F: FnOnce() + Send> StopCallback<K, F> {
    /// Takes the registration back. `wait` is called where the closure is running on another thread, with what says that it
    /// has returned. Called again, it does nothing.
    ///
    /// Returns the closure where the stop has been requested, but did not get to it in time: the caller may run it.
    pub(crate) fn withdraw(&self, wait: impl FnOnce(&dyn Fn() -> bool)) -> Option<F> {
        if !self.registered || self.withdraw_inside() {
            return None;
        }
        if self.slot.try_leave() {
            // SAFETY: it was in the list, and was taken out by us: nobody else has to do with the closure.
            return unsafe { &mut *self.closure.get() }.take_if(|_| self.token.stop_requested());
        }
        if !self.slot.is_released() {
            wait(&|| self.slot.is_released());
        }
        None
    }

    /// Takes the registration back, where it is the closure that does so. `false` where it is not.
    pub(crate) fn withdraw_inside(&self) -> bool {
        if self.runner.load(Acquire) != thread_id() {
            return false;
        }
        // Null where the closure has taken it back before.
        let gone = self.gone.swap(ptr::null_mut(), Relaxed);
        if gone.is_null() {
            return false;
        }
        // SAFETY: `gone` is on the stack of `fire`, beneath us on this very thread.
        unsafe { gone.write(true) };
        self.slot.release();
        true
    }
}

impl<K: StopToken, F: FnOnce() + Send> Drop for StopCallback<K, F> {
    fn drop(&mut self) {
        let unused = self.withdraw(|released| {
            let mut rounds = 0;
            while !released() {
                spin(&mut rounds);
            }
        });
        drop(unused);
    }
}

impl<K: StopToken, F: FnOnce() + Send> fmt::Debug for StopCallback<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopCallback")
            .field("registered", &self.registered)
            .finish_non_exhaustive()
    }
}

/// Runs `body` while `callback` is registered with `token`, and returns what `body` returns.
///
/// Both may borrow: the registration is on this function's stack frame and is taken back before it returns, also when
/// `body` panics. A stop that was requested before runs the callback at once, before `body`.
///
/// ```
/// use bowline::stop::{with_callback, InplaceStopSource};
///
/// // Linking one source to another's token, for the length of a call.
/// let outer = InplaceStopSource::new();
/// let inner = InplaceStopSource::new();
/// with_callback(outer.token(), || drop(inner.request_stop()), || {
///     outer.request_stop();
///     assert!(inner.stop_requested());
/// });
/// ```
pub fn with_callback<K: StopToken, T>(token: K, callback: impl FnOnce() + Send, body: impl FnOnce() -> T) -> T {
    let mut registration = core::pin::pin!(StopCallback::unregistered(token, callback));
    // SAFETY: the registration is on this stack frame and nobody else can leak it.
    unsafe { registration.as_mut().register_unchecked() };
    body()
}
