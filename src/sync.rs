//! The switch between the real synchronization primitives and `loom`'s models of them. No other file names either.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic;
#[cfg(loom)]
pub(crate) use loom::sync::atomic;

#[cfg(all(feature = "std", loom))]
pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
#[cfg(feature = "std")]
pub(crate) use std::sync::OnceLock;
#[cfg(all(feature = "std", not(loom)))]
pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

/// The threads of a model. Parking is implemented with a lock here. `loom`'s own loses an unpark that arrives while the
/// thread waits for a lock, and then treats that thread as the lock's holder.
#[cfg(all(feature = "std", loom))]
pub(crate) mod thread {
    pub(crate) use loom::thread::{Builder, JoinHandle, ThreadId, yield_now};
    use std::sync::Arc;

    use super::{Condvar, Mutex, lock, wait};

    loom::thread_local! {
        static PARKER: Arc<Parker> = Arc::new(Parker { unparked: Mutex::new(false), changed: Condvar::new() });
    }

    struct Parker {
        unparked: Mutex<bool>,
        changed: Condvar,
    }

    /// A handle to a thread of a model.
    #[derive(Clone)]
    pub(crate) struct Thread {
        parker: Arc<Parker>,
        id: ThreadId,
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            *lock(&self.parker.unparked) = true;
            self.parker.changed.notify_all();
        }

        pub(crate) fn id(&self) -> ThreadId {
            self.id
        }
    }

    pub(crate) fn current() -> Thread {
        Thread {
            parker: PARKER.with(Arc::clone),
            id: loom::thread::current().id(),
        }
    }

    pub(crate) fn park() {
        let parker = PARKER.with(Arc::clone);
        let mut unparked = lock(&parker.unparked);
        while !*unparked {
            unparked = wait(&parker.changed, &parker.unparked, unparked);
        }
        *unparked = false;
    }
}

/// Takes a lock, poisoned or not: its holders leave no invariant broken if they panic.
#[cfg(feature = "std")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // ThreadSanitizer does not see the waiting half of a `Mutex`, which is in the standard library. So it spins
    // instead.
    #[cfg(all(sanitized, not(loom)))]
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    #[cfg(not(all(sanitized, not(loom))))]
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Takes a lock, poisoned or not, unless it is held.
#[cfg(feature = "std")]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Releases a lock until `condvar` is notified, or for a moment, and takes it again.
#[cfg(feature = "std")]
pub(crate) fn wait<'a, T>(condvar: &Condvar, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    if cfg!(sanitized) {
        // ThreadSanitizer does not see the condition variable either.
        drop(guard);
        thread::yield_now();
        lock(mutex)
    } else {
        condvar.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A setting of the whole process. It is not part of any model, so its lock is always the standard library's.
#[cfg(feature = "std")]
pub(crate) struct Setting<T>(std::sync::Mutex<Option<T>>);

#[cfg(feature = "std")]
impl<T: Clone> Setting<T> {
    /// Creates a setting without a value.
    pub(crate) const fn new() -> Self {
        Setting(std::sync::Mutex::new(None))
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.lock().clone()
    }

    /// Sets the value and returns the previous one.
    pub(crate) fn replace(&self, value: Option<T>) -> Option<T> {
        core::mem::replace(&mut self.lock(), value)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<T>> {
        // Spins, so that ThreadSanitizer sees the lock. It is held for a few instructions.
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

/// Parks the thread until it is unparked, or for at most `timeout`. In a model no time passes by itself.
#[cfg(feature = "std")]
pub(crate) fn park_timeout(timeout: core::time::Duration) {
    #[cfg(not(loom))]
    thread::park_timeout(timeout);
    #[cfg(loom)]
    {
        let _ = timeout;
        thread::park();
    }
}

/// Parks the thread until it is unparked, or for at most the given time.
#[cfg(feature = "std")]
pub(crate) fn park(at_most: Option<core::time::Duration>) {
    match at_most {
        None => thread::park(),
        Some(timeout) => park_timeout(timeout),
    }
}

/// Defines a function that is `const`, except under `loom`, whose primitives cannot be created at compile time.
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block) => {
        $(#[$attribute])*
        #[cfg(not(loom))]
        $visibility const fn $name($($argument: $type),*) -> $result $body

        $(#[$attribute])*
        #[cfg(loom)]
        $visibility fn $name($($argument: $type),*) -> $result $body
    };
}
pub(crate) use const_unless_loom;

/// Defines a [`PerThread`].
#[cfg(feature = "std")]
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        $(#[$attribute])*
        const $name: $crate::sync::PerThread<$type> = {
            #[cfg(not(loom))]
            std::thread_local! {
                static VALUE: $type = const { $value };
            }
            #[cfg(loom)]
            loom::thread_local! {
                static VALUE: $type = $value;
            }
            $crate::sync::PerThread::new(&VALUE)
        };
    };
}
#[cfg(feature = "std")]
pub(crate) use per_thread;

#[cfg(all(feature = "std", not(loom)))]
type LocalKey<T> = std::thread::LocalKey<T>;
#[cfg(all(feature = "std", loom))]
type LocalKey<T> = loom::thread::LocalKey<T>;

/// A thread-local value without a destructor. An access is the computation of an address on most platforms.
///
/// Elsewhere the thread frees the value when it ends, before or after the values with destructors. If one of these accesses it
/// then, it begins anew. So no value may be needed in a destructor that was written before the destructors run.
#[cfg(feature = "std")]
pub(crate) struct PerThread<T: 'static>(&'static LocalKey<T>);

#[cfg(feature = "std")]
impl<T> PerThread<T> {
    /// Called by [`per_thread`].
    pub(crate) const fn new(key: &'static LocalKey<T>) -> Self {
        const { assert!(!core::mem::needs_drop::<T>()) };
        PerThread(key)
    }

    /// Calls `f` with the value of the calling thread.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        // `LocalKey::with` is not always inlined, and an access that is a call hides the code around it from the optimizer.
        #[cfg(not(loom))]
        {
            let Ok(value) = self.0.try_with(core::ptr::from_ref) else {
                unreachable!("a value without a destructor is never being destroyed")
            };
            // SAFETY: the thread frees the value, if at all, between destructors of its values, and so not during `f`.
            f(unsafe { &*value })
        }
        #[cfg(loom)]
        self.0.with(f)
    }
}

/// Waits for a moment, in a loop that waits for a few instructions of another thread.
#[inline]
pub(crate) fn spin(rounds: &mut u32) {
    #[cfg(loom)]
    {
        // Two waits that only yield to each other have infinitely many schedules, none of them interesting. After the
        // first round the fair schedule continues the wait, and `loom` does not vary it.
        *rounds += 1;
        if *rounds > 1 {
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    {
        *rounds = rounds.wrapping_add(1);
        #[cfg(feature = "std")]
        if *rounds > 64 {
            std::thread::yield_now();
            return;
        }
        core::hint::spin_loop();
    }
}

/// Memory with one owner at a time. In a model `loom` rejects two owners that are not ordered. Otherwise it is empty.
#[cfg(feature = "std")]
pub(crate) struct Owned(#[cfg(loom)] loom::cell::UnsafeCell<()>);

#[cfg(feature = "std")]
impl Owned {
    #[inline]
    pub(crate) fn new() -> Self {
        Owned(
            #[cfg(loom)]
            loom::cell::UnsafeCell::new(()),
        )
    }

    /// Asserts that the caller has exclusive access to the memory.
    #[inline(always)]
    pub(crate) fn claim(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }
}

/// A spin lock. It is held for a few instructions, never while other code is called.
#[cfg(feature = "alloc")]
pub struct SpinLock<T> {
    /// Set with acquire by the thread that takes the lock. Cleared with release, which pairs with that.
    locked: atomic::AtomicBool,
    value: core::cell::UnsafeCell<T>,
}

#[cfg(feature = "alloc")]
impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinLock {
            locked: atomic::AtomicBool::new(false),
            value: core::cell::UnsafeCell::new(value),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        let mut rounds = 0;
        while self
            .locked
            .compare_exchange_weak(false, true, atomic::Ordering::Acquire, atomic::Ordering::Relaxed)
            .is_err()
        {
            spin(&mut rounds);
        }
        SpinGuard { lock: self }
    }
}

#[cfg(feature = "alloc")]
crate::opaque!([T] SpinLock<T>);

/// A guard of a [`SpinLock`], which unlocks when it is dropped.
#[cfg(feature = "alloc")]
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

#[cfg(feature = "alloc")]
impl<T> core::ops::Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, and the reference borrows the guard.
        unsafe { &*self.lock.value.get() }
    }
}

#[cfg(feature = "alloc")]
impl<T> core::ops::DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, so this thread has exclusive access.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(feature = "alloc")]
impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.locked.store(false, atomic::Ordering::Release);
    }
}

/// Orders two sequentially consistent accesses of one thread, for another thread that does the opposite. The language
/// orders them already. `loom` orders only fences, so in a model this is one.
#[cfg(feature = "std")]
#[inline(always)]
pub(crate) fn sequenced() {
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// Returns a number that no other living thread has.
#[cfg(feature = "std")]
pub(crate) fn thread_id() -> usize {
    #[cfg(not(loom))]
    {
        std::thread_local!(static MARK: u8 = const { 0 });
        MARK.with(|mark| core::ptr::from_ref(mark).addr())
    }
    #[cfg(loom)]
    {
        loom::thread_local!(static MARK: std::boxed::Box<u8> = std::boxed::Box::new(0));
        MARK.with(|mark| core::ptr::from_ref::<u8>(mark).addr())
    }
}

/// Returns a number that no other call in this process returns.
#[cfg(feature = "std")]
pub(crate) fn unique() -> u64 {
    // The counter orders nothing, so it is not part of a model. A model could not have it in a `static` either.
    #[cfg(target_has_atomic = "64")]
    {
        static NEXT: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);
        NEXT.fetch_add(1, core::sync::atomic::Ordering::Relaxed)
    }
    #[cfg(not(target_has_atomic = "64"))]
    {
        static NEXT: std::sync::Mutex<u64> = std::sync::Mutex::new(1);
        let mut next = NEXT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *next += 1;
        *next - 1
    }
}
