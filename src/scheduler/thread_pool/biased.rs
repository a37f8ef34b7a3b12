//! A lock that costs its owner no atomic read-modify-write while no other thread wants it.
//!
//! [`Biased`] protects data of a seat, which its occupant uses all the time, and other threads now and then; or the
//! children of a group, which the thread that polls the group's frame uses. While the lock is *biased*, the owner
//! announces itself by a plain store. Another thread first ends the bias, with the heavy barrier of `barrier.rs`, and
//! waits for the owner to leave. It needs no answer from the owner, only that the few instructions inside the lock end.
//! After that the lock is *shared*: a spin lock for all. The owner makes it biased again when no other thread came for a
//! while. An owner that expects others ends the bias itself, without a barrier.
//!
//! # States
//!
//! | `biased` | `inside` | `locked` | has access |
//! |---|---|---|---|
//! | yes | no | no | no thread |
//! | yes | yes | no | the owner |
//! | yes | any | yes | the owner, if it is inside. Another thread is about to end the bias |
//! | no | yes | yes | the owner, if it saw the bias; otherwise it is about to leave. The other thread waits |
//! | no | no | yes | the thread that set `locked` |
//! | no | any | no | no thread. An owner that is inside is about to leave |
//!
//! # Transitions
//!
//! | by | step |
//! |---|---|
//! | the owner | sets `inside`; light barrier; loads `biased`. If set, it has access until it clears `inside` |
//! | the owner, if not biased | clears `inside`; sets `locked` as any thread does |
//! | another thread | sets `locked`. If biased: clears `biased`; heavy barrier; waits until `inside` is clear |
//! | the owner, not inside | sets `locked`; clears `biased` |
//! | the owner, with `locked` | after [`QUIET`] times without another thread: sets `biased`, before it clears `locked` |
//!
//! The two barriers order the owner's store of `inside` and the other thread's store of `biased` with the loads that
//! follow. So the owner sees that the bias has ended, or the other thread sees the owner inside.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::barrier;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::{Owned, spin};

/// How often in a row the owner takes the shared lock, with no other thread in between, before it is biased again.
const QUIET: u32 = if cfg!(loom) { 1 } else { 512 };

/// Data with an owner, which other threads may access too.
pub(crate) struct Biased<T> {
    /// Whether the owner is inside by the bias. Written by the owner: set relaxed, cleared with release. Pairs with the
    /// acquire loads of a thread that has ended the bias.
    inside: AtomicBool,
    /// Whether the lock is biased. Written by the thread that holds `locked`, relaxed. The two barriers order it with
    /// `inside`.
    biased: AtomicBool,
    /// A spin lock. Set with acquire, cleared with release.
    locked: AtomicBool,
    /// Whether the lock may be biased at all. Accessed with `locked`, relaxed.
    may_bias: AtomicBool,
    /// How often the owner took the shared lock since another thread did. Accessed with `locked`.
    quiet: UnsafeCell<u32>,
    value: UnsafeCell<T>,
    exclusive: Owned,
}

// SAFETY: the lock gives one thread at a time access to the data.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> Biased<T> {
    pub(super) fn new(value: T) -> Self {
        Biased::opened(value, false)
    }

    /// Creates a lock that is biased or not, which requires that `barrier::is_available`.
    #[inline]
    pub(crate) fn opened(value: T, biased: bool) -> Self {
        Biased {
            inside: AtomicBool::new(false),
            biased: AtomicBool::new(biased),
            locked: AtomicBool::new(false),
            may_bias: AtomicBool::new(biased),
            quiet: UnsafeCell::new(0),
            value: UnsafeCell::new(value),
            exclusive: Owned::new(),
        }
    }

    /// Sets whether the lock is biased, which requires that `barrier::is_available`.
    ///
    /// There is no owner yet. Its first access is ordered after this.
    pub(super) fn open(&self, biased: bool) {
        let guard = self.as_other();
        self.may_bias.store(biased, Relaxed);
        self.biased.store(biased, Relaxed);
        drop(guard);
    }

    /// Takes the lock as its owner.
    ///
    /// # Safety
    ///
    /// One thread at a time is the owner, and a lock or the like orders one owner after the other. The owner does not
    /// hold the lock already.
    #[inline]
    pub(crate) unsafe fn as_owner(&self) -> BiasedGuard<'_, T> {
        self.inside.store(true, Relaxed);
        barrier::light();
        let by_bias = self.biased.load(Relaxed);
        if !by_bias {
            self.lock_shared();
        }
        self.exclusive.claim();
        BiasedGuard { lock: self, by_bias }
    }

    /// Takes the lock as its owner, if it is biased. A caller that gets `None` uses [`as_owner`](Biased::as_owner), in a function of its
    /// own: this one calls no other, so its callers save no registers.
    ///
    /// # Safety
    ///
    /// As for [`as_owner`](Biased::as_owner).
    #[inline]
    pub(crate) unsafe fn as_owner_if_biased(&self) -> Option<BiasedGuard<'_, T>> {
        self.inside.store(true, Relaxed);
        barrier::light();
        if !self.biased.load(Relaxed) {
            // With release, because this store replaces the one of the owner's last exit.
            self.inside.store(false, Release);
            return None;
        }
        self.exclusive.claim();
        Some(BiasedGuard {
            lock: self,
            by_bias: true,
        })
    }

    /// Takes the lock as its owner, after it found that it is not biased.
    #[cold]
    fn lock_shared(&self) {
        // With release, because this store replaces the one of the owner's last exit.
        self.inside.store(false, Release);
        self.lock();
        // SAFETY: this thread holds `locked`.
        let quiet = unsafe { &mut *self.quiet.get() };
        *quiet += 1;
        if *quiet >= QUIET && self.may_bias.load(Relaxed) {
            *quiet = 0;
            // The owner still holds `locked`, which it clears when it leaves. A thread that sets it later sees this.
            self.biased.store(true, Relaxed);
        }
    }

    /// Takes the lock as its owner, and ends the bias, since other threads are about to take the lock.
    ///
    /// # Safety
    ///
    /// As for [`as_owner`](Biased::as_owner).
    pub(crate) unsafe fn as_owner_of_shared(&self) -> BiasedGuard<'_, T> {
        self.lock();
        // The owner is this thread, which is not inside. So it has left before it comes again and finds no bias.
        self.biased.store(false, Relaxed);
        self.exclusive.claim();
        BiasedGuard {
            lock: self,
            by_bias: false,
        }
    }

    /// Takes the lock as a thread that is not the owner, or is the owner but not inside.
    pub(crate) fn as_other(&self) -> BiasedGuard<'_, T> {
        self.lock();
        if self.biased.load(Relaxed) {
            self.biased.store(false, Relaxed);
            barrier::heavy();
            let mut rounds = 0;
            while self.inside.load(Acquire) {
                spin(&mut rounds);
            }
        }
        // SAFETY: this thread holds `locked`.
        unsafe { *self.quiet.get() = 0 };
        self.exclusive.claim();
        BiasedGuard {
            lock: self,
            by_bias: false,
        }
    }

    /// Returns whether the lock is biased. Another thread may change that at any time.
    pub(super) fn is_biased(&self) -> bool {
        self.biased.load(Relaxed)
    }

    fn lock(&self) {
        let mut rounds = 0;
        while (self.locked).compare_exchange(false, true, Acquire, Relaxed).is_err() {
            spin(&mut rounds);
        }
    }
}

/// Access to the data of a [`Biased`] lock, until it is dropped.
pub(crate) struct BiasedGuard<'a, T> {
    lock: &'a Biased<T>,
    by_bias: bool,
}

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the thread with the guard has exclusive access: see the table of states.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the thread with the guard has exclusive access: see the table of states.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.exclusive.claim();
        if self.by_bias {
            self.lock.inside.store(false, Release);
        } else {
            self.lock.locked.store(false, Release);
        }
    }
}
