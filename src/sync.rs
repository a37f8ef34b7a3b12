//! The one file that chooses between the real primitives and `loom`'s models of them.

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

/// Threads of a model. Parking is made of a lock here: that of `loom` forgets an unpark that comes while the thread waits
/// for a lock, and takes the thread for one that has the lock.
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

    /// A handle to a thread.
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

/// Takes a lock whose holders never leave anything half-done, so that a panic while it was held does not matter.
#[cfg(feature = "std")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The half of a `Mutex` that waits is in the standard library, where ThreadSanitizer does not see it: there it is
    // tried again and again.
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

/// Takes such a lock, unless it is held.
#[cfg(feature = "std")]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Gives such a lock back until `condvar` is notified, or for a moment.
#[cfg(feature = "std")]
pub(crate) fn wait<'a, T>(condvar: &Condvar, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    if cfg!(sanitized) {
        // As in `lock`.
        drop(guard);
        thread::yield_now();
        lock(mutex)
    } else {
        condvar.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// What is set for the whole process, and so no part of any model: the lock is that of the standard library always.
#[cfg(feature = "std")]
pub(crate) struct Setting<T>(std::sync::Mutex<Option<T>>);

#[cfg(feature = "std")]
impl<T: Clone> Setting<T> {
    /// Nothing is set.
    pub(crate) const fn new() -> Self {
        Setting(std::sync::Mutex::new(None))
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.lock().clone()
    }

    /// Sets it, and returns what it was.
    pub(crate) fn replace(&self, value: Option<T>) -> Option<T> {
        core::mem::replace(&mut self.lock(), value)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<T>> {
        // As in `lock`. It is held for a few instructions.
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

/// Sleeps until this thread is unparked, or for this long. In a model no time passes by itself.
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

/// Parks the thread, for no longer than that if it is given.
#[cfg(feature = "std")]
pub(crate) fn park(at_most: Option<core::time::Duration>) {
    match at_most {
        None => thread::park(),
        Some(timeout) => park_timeout(timeout),
    }
}

/// A function that is `const`, but under `loom`, whose primitives cannot be made at compile time.
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

/// A value that each thread has one of.
#[cfg(feature = "std")]
macro_rules! per_thread {
    ($(#[$attribute:meta])* static $name:ident: $type:ty = $value:expr;) => {
        #[cfg(not(loom))]
        std::thread_local! {
            $(#[$attribute])*
            static $name: $type = const { $value };
        }
        #[cfg(loom)]
        loom::thread_local! {
            $(#[$attribute])*
            static $name: $type = $value;
        }
    };
}
#[cfg(feature = "std")]
pub(crate) use per_thread;

/// One step of a wait that is known to be short: another thread is between two instructions of ours.
#[inline]
pub(crate) fn spin(rounds: &mut u32) {
    #[cfg(loom)]
    {
        // Two waits that only ever make way for each other are not a schedule worth exploring, and there is no end of
        // them: a wait that has looked this often is seen to its end by the fair schedule, and not varied any more.
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

/// Memory that belongs to one party at a time. In a model, `loom` refuses two parties that are not ordered; elsewhere it is nothing.
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

    /// Says that the caller has the memory to itself.
    #[inline(always)]
    pub(crate) fn claim(&self) {
        #[cfg(loom)]
        self.0.with_mut(|_| ());
    }
}

/// A lock over something small: held for a few instructions, never while anything is called.
#[cfg(feature = "alloc")]
pub struct SpinLock<T> {
    /// Set by whoever holds it, with acquire, and cleared with release.
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
impl<T> core::fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// The lock is held.
#[cfg(feature = "alloc")]
pub(crate) struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

#[cfg(feature = "alloc")]
impl<T> core::ops::Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock, and give the reference back before it.
        unsafe { &*self.lock.value.get() }
    }
}

#[cfg(feature = "alloc")]
impl<T> core::ops::DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and nobody else holds it.
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

/// Stands between two sequentially consistent accesses of one thread whose order matters to another thread that does the
/// same the other way round. The language orders all of these, so there is nothing to do; `loom` knows such an order of
/// fences alone, so it gets one.
#[cfg(feature = "std")]
#[inline(always)]
pub(crate) fn sequenced() {
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// A number that is this thread's alone while the thread lives.
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

/// A number that no other call gets, in this process.
#[cfg(feature = "std")]
pub(crate) fn unique() -> u64 {
    // Nothing is ordered by it, so it is no part of a model, which could not have it in a `static` either.
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
