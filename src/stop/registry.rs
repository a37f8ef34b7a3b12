//! The state of every stop source: a flag, and an intrusive list of the entries that listen.
//!
//! [`Registry`] is the state, and [`StopEntry`] is one listener. A source owns the registry. A
//! [`StopSlot`](super::StopSlot) owns the entry, and a reference that keeps the registry valid while the entry may use
//! it.
//!
//! # States of an entry
//!
//! ```text
//! IDLE ──enter──▶ LISTED ──request_stop──▶ FIRING ──release──▶ RELEASED
//!                   └────────────withdraw────────────────────────▲
//! ```
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | [`Registry`]: the list, and the links of its entries | the thread that holds the `LOCKED` bit |
//! | `StopEntry::source` | the entry's owner, which writes it once in `enter` |
//! | the callback's operation | the callback while `FIRING`; the owner in every other state |
//!
//! # Why it is sound
//!
//! - An entry in the list is valid: its owner withdraws it under the lock, or waits for `RELEASED`, before it is
//!   dropped.
//! - The requester pops each entry under the lock and calls its callback outside. No entry is linked after `STOPPED`,
//!   so the list only shrinks, and each callback runs once.
//! - A callback calls `release` before it completes its operation. So a completion never waits for its own callback.
//! - `withdraw` spins while a callback is between its start and its `release`. In that time the callback of an
//!   operation runs no user code. A `StopCallback` runs its closure then, and waits for it without `withdraw`.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};

#[cfg(feature = "std")]
use super::Branch;
use crate::Transfer;
use crate::memory::{Links, List, links};
use crate::sender::unwind::AbortOnUnwind;
use crate::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{const_unless_loom, spin};

/// The stop flag and the list of listeners. [`InplaceStopSource`](super::InplaceStopSource) and
/// [`StopSource`](super::StopSource) contain one.
pub struct Registry {
    /// Three bits:
    ///
    /// | bit | set by | means |
    /// |---|---|---|
    /// | `LOCKED` | a thread that links or unlinks an entry | the list is being changed; held for a few instructions, never while a callback runs |
    /// | `STOPPED` | the one successful `request_stop` | never cleared; no entry is linked after it, the list only shrinks |
    /// | `UNLISTED` | a listener without an entry, before `STOPPED` | never cleared; the requester tells the owner of the registry, which reaches such listeners by itself |
    ///
    /// The bits above are the reason, see [`Why`]. They are zero before the request and for a plain request, and are
    /// set in one step with `STOPPED`.
    ///
    /// The lock bit is set with acquire. It is cleared with release, by a plain store, since no other thread changes
    /// the word meanwhile. The two pair, so the list needs no ordering of its own. The store of `STOPPED` is a release
    /// and pairs with the acquire loads of `stop_requested` and `why`.
    ///
    /// The lock shares the word with the flag, because both change in one step. An entry is linked only if the stop was
    /// not requested, and the requester owns the list from the moment the flag is set. With a separate
    /// [`SpinLock`](crate::sync::SpinLock), a listener would have to read the flag twice.
    state: AtomicUsize,
    /// The listeners, newest first. Protected by the lock bit.
    list: UnsafeCell<List<StopEntry>>,
    /// When the stop was requested, by the coarse clock. Stored with relaxed ordering, before the callbacks are called.
    #[cfg(feature = "inspect")]
    stopped_at: crate::sync::atomic::AtomicU64,
}

/// Proof that this thread holds the lock. Contains the word that `unlock` stores.
#[must_use = "the lock is held"]
pub(super) struct Locked(usize);

const LOCKED: usize = 0b01;
const STOPPED: usize = 0b10;
#[cfg(feature = "std")]
const UNLISTED: usize = 0b100;
const WHY: u32 = 3;

/// The reason of a stop request: a small number that only the requester interprets. Zero if no reason was given.
///
/// The highest bit says that the stop was requested on this source, and not passed on from another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Why(pub(crate) u16);

#[cfg(feature = "std")]
impl Why {
    const HERE: u16 = 1 << 15;

    /// Marks the reason as requested on this source.
    pub(crate) const fn here(self) -> Self {
        Why(self.0 | Why::HERE)
    }

    /// Removes the mark, for a stop that is passed on.
    pub(crate) const fn passed(self) -> Self {
        Why(self.0 & !Why::HERE)
    }
}

// SAFETY: `list` and the links of its entries are accessed under `LOCKED` only. The rest is an atomic.
unsafe impl Send for Registry {}
// SAFETY: see `Send`.
unsafe impl Sync for Registry {}

impl Registry {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Registry {
                state: AtomicUsize::new(0),
                list: UnsafeCell::new(List::new()),
                #[cfg(feature = "inspect")]
                stopped_at: crate::sync::atomic::AtomicU64::new(0),
            }
        }
    }

    #[inline]
    pub(crate) fn stop_requested(&self) -> bool {
        self.state.load(Acquire) & STOPPED != 0
    }

    /// Returns the reason of the stop, or `None` if it has not been requested.
    #[cfg(feature = "std")]
    pub(crate) fn why(&self) -> Option<Why> {
        let state = self.state.load(Acquire);
        (state & STOPPED != 0).then_some(Why((state >> WHY) as u16))
    }

    /// Returns when the stop was requested, if that is known.
    #[cfg(feature = "inspect")]
    pub(crate) fn stopped_at(&self) -> Option<std::time::Instant> {
        crate::coarse_clock::instant(self.stopped_at.load(Relaxed))
    }

    /// Takes the lock, unless `state & unless` is not zero. Sets the bits of `also` in the same step. The result is for
    /// [`unlock`](Registry::unlock).
    #[inline]
    fn lock(&self, unless: usize, also: usize) -> Option<Locked> {
        let mut rounds = 0;
        let mut state = self.state.load(Relaxed);
        loop {
            if state & unless != 0 {
                // Pairs with the requester's release, so the caller sees what the requester did before the stop.
                self.state.load(Acquire);
                return None;
            }
            if state & LOCKED != 0 {
                spin(&mut rounds);
                state = self.state.load(Relaxed);
                continue;
            }
            match self
                .state
                .compare_exchange_weak(state, state | LOCKED | also, AcqRel, Relaxed)
            {
                Ok(_) => return Some(Locked(state | also)),
                Err(now) => state = now,
            }
        }
    }

    #[inline]
    pub(super) fn unlock(&self, Locked(state): Locked) {
        self.state.store(state, Release);
    }

    /// Takes the lock, unless the stop was requested. Until it is released, no stop of this source is requested.
    #[cfg(feature = "std")]
    #[inline]
    pub(super) fn lock_unless_stopped(&self) -> Option<Locked> {
        self.lock(STOPPED, 0)
    }

    /// Takes the lock, whether or not the stop was requested.
    #[inline]
    pub(super) fn relock(&self) -> Locked {
        loop {
            if let Some(locked) = self.lock(0, 0) {
                return locked;
            }
        }
    }

    /// Notes that there are listeners without an entry. Returns `false` if the stop was requested before.
    ///
    /// What the caller did before is seen by the requester of a later stop, which asks
    /// [`has_unlisted`](Registry::has_unlisted) once it has called the callbacks.
    #[cfg(feature = "std")]
    #[inline]
    pub(super) fn listen_unlisted(&self) -> bool {
        let locked = self.lock(STOPPED, UNLISTED);
        locked.map(|locked| self.unlock(locked)).is_some()
    }

    /// Returns whether there were listeners without an entry when the stop was requested. It was.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn has_unlisted(&self) -> bool {
        self.state.load(Relaxed) & UNLISTED != 0
    }

    /// Sets the flag and calls every callback, each outside the lock. Returns the transfer that the callbacks resumed,
    /// or `None` if the stop had been requested before.
    ///
    /// The registry must stay valid until this returns, though a callback may drop the token that it listened with.
    /// Either `self` is borrowed from a source, or the caller holds a reference of its own.
    pub(crate) fn request_stop(&self) -> Option<Transfer> {
        self.request_stop_for(Why::default())
    }

    /// Requests the stop like [`request_stop`](Registry::request_stop), with a reason.
    #[inline]
    pub(crate) fn request_stop_for(&self, Why(why): Why) -> Option<Transfer> {
        let locked = self.lock(STOPPED, STOPPED | usize::from(why) << WHY)?;
        #[cfg(feature = "std")]
        {
            // Callbacks do not belong to the task in whose poll the stop is requested, so the current task is hidden from
            // them.
            let _hidden = crate::sender::current::Hidden::from_poll();
            Some(self.fire_all(locked))
        }
        #[cfg(not(feature = "std"))]
        Some(self.fire_all(locked))
    }

    /// Requests the stop as part of another stop that is being passed on, by the callback of a relay.
    #[cfg(feature = "std")]
    pub(crate) fn pass_stop_on(&self, Why(why): Why) -> Option<Transfer> {
        let locked = self.lock(STOPPED, STOPPED | usize::from(why) << WHY)?;
        Some(self.fire_all(locked))
    }

    /// Calls every callback. The caller has set the flag and holds the lock.
    #[inline(never)]
    fn fire_all(&self, locked: Locked) -> Transfer {
        #[cfg(feature = "inspect")]
        self.stopped_at.store(crate::coarse_clock::now(), Relaxed);
        // If a callback unwound, the others would never be called, and their operations would never complete.
        let guard = AbortOnUnwind::new();
        let mut locked = Some(locked);
        let resumed = Transfer::collect(|| {
            let held = locked.take()?;
            // SAFETY: `held` proves that this thread holds the lock.
            let list = unsafe { &mut *self.list.get() };
            let Some(entry) = list.pop_front() else {
                self.unlock(held);
                return None;
            };
            // No entry is linked after `STOPPED`, so an empty list stays empty and need not be locked again.
            let is_last = list.is_empty();
            // SAFETY: the entry was just removed, and `held` proves that this thread holds the lock.
            let resumed = unsafe { self.fire(entry, held) };
            if !is_last {
                locked = Some(self.relock());
            }
            Some(resumed)
        });
        guard.defuse();
        resumed
    }

    /// Adds an entry to the list.
    ///
    /// # Safety
    ///
    /// The caller holds the lock. The entry is in no list, and valid until it is removed.
    #[inline]
    pub(super) unsafe fn list(&self, entry: NonNull<StopEntry>) {
        // SAFETY: the lock is held, and the entry is valid, by the contract of this function.
        unsafe { (*self.list.get()).push_front(entry) };
    }

    /// Removes an entry from the list.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the entry is in the list.
    #[inline]
    pub(super) unsafe fn unlist(&self, entry: NonNull<StopEntry>) {
        // SAFETY: the contract of this function.
        unsafe { (*self.list.get()).remove(entry) };
    }

    /// Releases the lock, and calls the callback of an entry.
    ///
    /// # Safety
    ///
    /// The caller has removed the entry from the list under this lock.
    #[inline]
    unsafe fn fire(&self, entry: NonNull<StopEntry>, held: Locked) -> Transfer {
        // SAFETY: the entry was in the list. Its owner withdraws it under the lock before it is dropped, so it is valid.
        let fire = unsafe { entry.as_ref().begin_firing() };
        self.unlock(held);
        // SAFETY: the state is `FIRING`, so the owner waits for the callback's release. The entry is not accessed after
        // this call.
        unsafe { fire(entry) }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("stop_requested", &self.stop_requested())
            .finish_non_exhaustive()
    }
}

/// A listener of a registry. Its states are in the documentation of this module.
pub struct StopEntry {
    /// The registry, or the [`Branch`] whose listener this is. Null while the entry is idle. Written once, before the entry
    /// is listed. Valid as long as the owner may call `withdraw`, by the contract of `enter`.
    source: UnsafeCell<*const ()>,
    /// Protected by the registry's lock bit.
    links: Links<StopEntry>,
    /// `LISTED` and `FIRING` are stored, and `LISTED` is left, under the registry's lock. The callback stores
    /// `RELEASED`, with release, after its last access to the entry and its operation. That pairs with the acquire load
    /// in `is_released`: the owner may then be dropped, even while the callback is still returning.
    state: AtomicU8,
    /// Whether `source` is a branch. Written once, before the entry is listed.
    in_branch: Cell<bool>,
    /// Called once, outside the lock. The callback calls [`StopEntry::release`] once, and completes its operation only
    /// after that.
    fire: unsafe fn(NonNull<StopEntry>) -> Transfer,
    _pinned: PhantomPinned,
}

links!(StopEntry, links);

const IDLE: u8 = 0;
const LISTED: u8 = 1;
const FIRING: u8 = 2;
const RELEASED: u8 = 3;

impl StopEntry {
    pub(crate) fn new(fire: unsafe fn(NonNull<StopEntry>) -> Transfer) -> Self {
        StopEntry {
            source: UnsafeCell::new(ptr::null()),
            links: Links::new(),
            state: AtomicU8::new(IDLE),
            in_branch: Cell::new(false),
            fire,
            _pinned: PhantomPinned,
        }
    }

    /// Adds the entry to the registry's list. Returns `false` if the stop has been requested already.
    ///
    /// # Safety
    ///
    /// The entry is pinned and idle, and withdrawn or released before it is dropped. The registry is valid until then,
    /// and until the last [`withdraw`](StopEntry::withdraw) has returned.
    pub(crate) unsafe fn enter(this: NonNull<StopEntry>, registry: NonNull<Registry>) -> bool {
        // SAFETY: the entry and the registry are valid, by the contract of this function. Neither is accessed after
        // `unlock`, because the callback may then release the entry.
        unsafe {
            let Some(locked) = registry.as_ref().lock(STOPPED, 0) else {
                return false;
            };
            this.as_ref().set_listed(registry.as_ptr().cast(), false);
            registry.as_ref().list(this);
            registry.as_ref().unlock(locked);
        }
        true
    }

    /// Removes the entry from the list. Returns `true` if its callback has not run and never will. Returns `false` if
    /// it has run, after its release. An idle entry counts as removed.
    pub(crate) fn withdraw(&self) -> bool {
        let withdrawn = self.try_withdraw();
        if !withdrawn {
            self.wait_until_released();
        }
        withdrawn
    }

    /// Removes the entry from the list without waiting. Returns `false` if its callback has run or is running.
    pub(crate) fn try_withdraw(&self) -> bool {
        // SAFETY: the cell is not written after the owner has called `enter`.
        let source = unsafe { *self.source.get() };
        if source.is_null() {
            return true;
        }
        if self.is_released() {
            return false;
        }
        #[cfg(feature = "std")]
        if let Some(branch) = self.branch() {
            // SAFETY: the owner withdraws the entry, which was added to that branch.
            return unsafe { branch.withdraw(NonNull::from(self)) };
        }
        // SAFETY: the source is a registry, valid until the owner has withdrawn the entry, by the contract of `enter`.
        let registry = unsafe { &*source.cast::<Registry>() };
        let locked = registry.relock();
        let listed = self.is_listed();
        if listed {
            // SAFETY: this thread holds the lock, and an entry in state `LISTED` is in the list.
            unsafe { registry.unlist(NonNull::from(self)) };
            self.set_withdrawn();
        }
        registry.unlock(locked);
        listed
    }

    /// Notes that the entry was added to a registry, or to a branch. Called under the lock.
    ///
    /// # Safety
    ///
    /// The entry is idle. The source is valid as long as the owner may withdraw the entry.
    #[inline]
    pub(super) unsafe fn set_listed(&self, source: *const (), in_branch: bool) {
        // SAFETY: the entry is idle, so the caller has exclusive access to its cells.
        unsafe { self.source.get().write(source) };
        self.in_branch.set(in_branch);
        self.state.store(LISTED, Relaxed);
    }

    /// Returns whether the stop has not reached the entry. Called under the lock, by the owner of an entry that was added.
    pub(super) fn is_listed(&self) -> bool {
        self.state.load(Relaxed) == LISTED
    }

    /// Notes that the owner has removed the entry. Called under the lock.
    pub(super) fn set_withdrawn(&self) {
        self.state.store(RELEASED, Relaxed);
    }

    /// Notes that a stop has reached the entry, and returns the callback, which the caller calls after the unlock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and has removed the entry from its list.
    #[inline]
    pub(super) unsafe fn begin_firing(&self) -> unsafe fn(NonNull<StopEntry>) -> Transfer {
        self.state.store(FIRING, Relaxed);
        #[cfg(feature = "std")]
        if let Some(branch) = self.branch() {
            // SAFETY: the contract of this function.
            unsafe { branch.set_fired() };
        }
        self.fire
    }

    /// Returns the branch that the entry was added to. The entry was not released.
    #[cfg(feature = "std")]
    #[inline]
    fn branch(&self) -> Option<&Branch> {
        // SAFETY: the flag says what the pointer is. The branch is valid as long as the entry may be withdrawn.
        self.in_branch.get().then(|| unsafe { &*(*self.source.get()).cast() })
    }

    /// Returns the reason of the stop that the source of a listed entry has, if any.
    #[cfg(feature = "std")]
    pub(super) fn why(&self) -> Option<Why> {
        if self.in_branch.get() {
            return None;
        }
        // SAFETY: the source of a listed entry is valid, by the contract of `enter`.
        unsafe { (*self.source.get()).cast::<Registry>().as_ref() }.and_then(Registry::why)
    }

    /// Returns whether only the owner's thread may still access the entry.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Acquire) == RELEASED
    }

    /// Returns whether the stop reached the entry. The entry was not withdrawn.
    #[cfg(feature = "alloc")]
    pub(crate) fn has_fired(&self) -> bool {
        self.state.load(Acquire) >= FIRING
    }

    /// Ends the callback's access to the entry and its operation. The owner may be dropped from then on.
    pub(crate) fn release(&self) {
        self.state.store(RELEASED, Release);
    }

    fn wait_until_released(&self) {
        let mut rounds = 0;
        while !self.is_released() {
            spin(&mut rounds);
        }
    }
}

impl fmt::Debug for StopEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state.load(Relaxed) {
            IDLE => "idle",
            LISTED => "listed",
            FIRING => "firing",
            _ => "released",
        };
        f.debug_tuple("StopEntry").field(&state).finish()
    }
}
