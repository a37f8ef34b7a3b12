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
/// The callback is pinned first and then registered. If the stop has been requested by then, the closure runs at once.
/// It runs at most once, on the thread that requests the stop, outside any lock.
///
/// Dropping the registration withdraws it. A drop waits while the closure is running on another thread. It does not
/// wait when the closure itself drops the registration.
///
/// The panic hook reports a panic of the closure. The other callbacks still run, and `request_stop` returns.
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
/// The closure must be `'static`: a pinned value can be leaked, and the closure would then outlive its borrows.
/// [`with_callback`] takes a closure that borrows.
pub struct StopCallback<K: StopToken, F: FnOnce() + Send> {
    slot: StopSlot<K>,
    token: K,
    closure: UnsafeCell<Option<F>>,
    /// The id of the thread that runs the closure, or 0. Set with release, and cleared with relaxed ordering, by that
    /// thread. A thread compares it with its own id, so it only ever recognizes its own store.
    runner: AtomicUsize,
    /// A flag on the stack of [`StopCallback::fire`], or null. Accessed with relaxed ordering by the thread in `runner`
    /// only: `fire` stores the address, and a withdrawal inside the closure swaps it to null and sets the flag.
    gone: AtomicPtr<bool>,
    registered: bool,
    _pinned: PhantomPinned,
}

// SAFETY: the closure is `Send` and runs at most once. All other fields are a token, which is `Send`, and atomics.
unsafe impl<K: StopToken, F: FnOnce() + Send> Send for StopCallback<K, F> {}
// SAFETY: through a shared reference only the registry runs the closure, once, and the owner takes it after it left the
// list.
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
    /// `slot` is the field of a registered callback.
    unsafe fn fire(slot: NonNull<StopSlot<K>>) -> Transfer {
        // SAFETY: the slot is a field of a callback. `drop` waits for the slot's release, so the callback is valid,
        // unless the closure drops it on this thread.
        let this = unsafe { container_of!(slot, Self, slot) };
        let mut gone = false;
        // SAFETY: the callback is valid until the closure runs. The registry calls this function once, so no other
        // thread takes the closure.
        let closure = unsafe {
            let this = this.as_ref();
            this.gone.store(&raw mut gone, Relaxed);
            this.runner.store(thread_id(), Release);
            (*this.closure.get()).take()
        };
        if let Some(closure) = closure {
            drop(Panic::catch(closure));
        }
        // SAFETY: `gone` is a local variable. Volatile, because the closure may have written it through the pointer, on
        // this thread.
        if !unsafe { (&raw const gone).read_volatile() } {
            // SAFETY: the closure did not withdraw the callback, whose drop waits for the release below.
            let this = unsafe { this.as_ref() };
            this.gone.store(ptr::null_mut(), Relaxed);
            this.runner.store(0, Relaxed);
            this.slot.release();
        }
        Transfer::none()
    }

    /// # Safety
    ///
    /// The closure, and the source that the token borrows, outlive the registration even if it is leaked.
    unsafe fn register_unchecked(self: Pin<&mut Self>) {
        // SAFETY: nothing is moved.
        let this = unsafe { self.get_unchecked_mut() };
        if this.registered {
            return;
        }
        this.registered = true;
        let this = NonNull::from(this);
        // SAFETY: the slot is pinned with the callback, and `drop` leaves the list. The borrowed source outlives the
        // registration, by the contract of this function.
        let listening = unsafe {
            let slot = NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot);
            StopSlot::listen(slot, (*this.as_ptr()).token.clone())
        };
        if !listening {
            // SAFETY: the slot was not listed, so no other thread accesses the closure.
            if let Some(closure) = unsafe { (*this.as_ref().closure.get()).take() } {
                drop(Panic::catch(closure));
            }
        }
    }
}

impl<K: StopToken, F: FnOnce() + Send + 'static> StopCallback<K, F> {
    /// Creates a callback that is not registered yet.
    pub fn new(token: K, closure: F) -> Self {
        Self::unregistered(token, closure)
    }

    /// Registers the callback, or runs the closure at once if the stop has been requested. A second call does nothing.
    pub fn register(self: Pin<&mut Self>) {
        // SAFETY: the closure is `'static`. A leaked registration keeps its memory and its token, so the list stays
        // valid. A borrowed source that is dropped never walks its list again.
        unsafe { self.register_unchecked() }
    }
}

impl<K: StopToken, F: FnOnce() + Send> StopCallback<K, F> {
    /// Withdraws the registration. If the closure is running on another thread, calls `wait` with a predicate that
    /// tells whether the closure has returned. A second call does nothing.
    ///
    /// Returns the closure if the stop was requested but had not reached this callback. The caller may run it.
    pub(crate) fn withdraw(&self, wait: impl FnOnce(&dyn Fn() -> bool)) -> Option<F> {
        if !self.registered || self.withdraw_inside() {
            return None;
        }
        if self.slot.try_leave() {
            // SAFETY: `try_leave` took the entry out of the list, so this thread has exclusive access to the closure.
            return unsafe { &mut *self.closure.get() }.take_if(|_| self.token.stop_requested());
        }
        if !self.slot.is_released() {
            wait(&|| self.slot.is_released());
        }
        None
    }

    /// Withdraws the registration if the caller is the closure itself. Returns `false` otherwise.
    pub(crate) fn withdraw_inside(&self) -> bool {
        if self.runner.load(Acquire) != thread_id() {
            return false;
        }
        // Null if the closure has withdrawn the registration before.
        let gone = self.gone.swap(ptr::null_mut(), Relaxed);
        if gone.is_null() {
            return false;
        }
        // SAFETY: `gone` is a local of `fire`, which is beneath this call on the stack of this thread.
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

/// Runs `body` while `callback` is registered with `token`, and returns the result of `body`.
///
/// Both closures may borrow: the registration lives on the stack of this function. It is withdrawn before the function
/// returns, also when `body` panics. If the stop has been requested already, the callback runs before `body`.
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
    // SAFETY: the registration is a pinned local that is never exposed, so it is dropped before this function returns.
    unsafe { registration.as_mut().register_unchecked() };
    body()
}
