//! The state of every stop source: a flag, and an intrusive list of the entries that listen.
//!
//! [`Registry`] is that state, and [`StopEntry`] one listener. A source owns the registry; a
//! [`StopSlot`](super::StopSlot) owns the entry, and what keeps the registry alive as long as the entry may use it.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomPinned;
use core::ptr::{self, NonNull};

use crate::Transfer;
use crate::memory::{Links, List, links};
use crate::sender::unwind::AbortOnUnwind;
use crate::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{const_unless_loom, spin};

/// A flag and a list, which [`InplaceStopSource`](super::InplaceStopSource) and [`StopSource`](super::StopSource) share.
pub struct Registry {
    /// Two bits:
    ///
    /// | bit | set by | means |
    /// |---|---|---|
    /// | `LOCKED` | a thread that links or unlinks an entry | the list is being changed; held for a few instructions, never while a callback runs |
    /// | `STOPPED` | the one successful `request_stop` | never cleared; nothing is linked any more, the list only shrinks |
    ///
    /// The bits above are why it was requested, see [`Why`]: zero until then, and for a plain request. They are set in one
    /// step with `STOPPED`.
    ///
    /// The lock bit is set with acquire and cleared with release, which pair, so the list needs no ordering of its own.
    /// While it is set no other thread changes the word, so it is cleared by a plain store. A reader of `STOPPED` acquires
    /// what the requester did before.
    ///
    /// The lock shares the word with the flag, and is no [`SpinLock`](crate::sync::SpinLock), because both are decided in
    /// one step: an entry is linked only if the stop was not requested, and the requester has the list the moment the flag
    /// is set. With two words a listener would look at the flag twice.
    state: AtomicUsize,
    /// Newest first. Protected by the lock bit.
    list: UnsafeCell<List<StopEntry>>,
}

/// The word as it will be when the lock is given back.
#[must_use = "the lock is held"]
struct Locked(usize);

const LOCKED: usize = 0b01;
const STOPPED: usize = 0b10;
const WHY: u32 = 2;

/// Why a stop was requested: a small number, whose meaning is for others to say. Zero where nobody said.
///
/// Its highest bit says that it was requested of this very source, and not passed on from another one. Only who asks for it
/// knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Why(pub(crate) u16);

#[cfg(feature = "std")]
impl Why {
    const HERE: u16 = 1 << 15;

    /// The same, marked as requested of this very source.
    pub(crate) const fn here(self) -> Self {
        Why(self.0 | Why::HERE)
    }

    /// The same, as it is passed on, and without the mark.
    pub(crate) const fn passed(self) -> Self {
        Why(self.0 & !Why::HERE)
    }
}

// SAFETY: `list`, and the links of every entry in it, are used under `LOCKED` only.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

impl Registry {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Registry {
                state: AtomicUsize::new(0),
                list: UnsafeCell::new(List::new()),
            }
        }
    }

    #[inline]
    pub(crate) fn stop_requested(&self) -> bool {
        self.state.load(Acquire) & STOPPED != 0
    }

    /// Why the stop was requested. None where it was not.
    #[cfg(feature = "std")]
    pub(crate) fn why(&self) -> Option<Why> {
        let state = self.state.load(Acquire);
        (state & STOPPED != 0).then_some(Why((state >> WHY) as u16))
    }

    /// Takes the lock, unless `state & unless` is not zero. Sets `also` in the same step. Returns what to
    /// [`unlock`](Registry::unlock) with.
    #[inline]
    fn lock(&self, unless: usize, also: usize) -> Option<Locked> {
        let mut rounds = 0;
        let mut state = self.state.load(Relaxed);
        loop {
            if state & unless != 0 {
                // What the requester did before the stop is visible to whoever learns of it here.
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
    fn unlock(&self, Locked(state): Locked) {
        self.state.store(state, Release);
    }

    /// Takes the lock, stopped or not.
    #[inline]
    fn relock(&self) -> Locked {
        loop {
            if let Some(locked) = self.lock(0, 0) {
                return locked;
            }
        }
    }

    /// Sets the flag and calls every callback, each outside the lock. `None` when the stop had been requested before;
    /// otherwise what the callbacks want resumed.
    ///
    /// The registry must stay valid until this returns, though a callback may drop what it listened with. `self` borrows it
    /// where the source is borrowed; the callers that own it by a reference count hold one of their own meanwhile.
    pub(crate) fn request_stop(&self) -> Option<Transfer> {
        self.request_stop_for(Why::default())
    }

    /// The same, for a reason.
    #[inline]
    pub(crate) fn request_stop_for(&self, Why(why): Why) -> Option<Transfer> {
        let locked = self.lock(STOPPED, STOPPED | usize::from(why) << WHY)?;
        // Callbacks are not part of the task in whose poll the stop is requested.
        #[cfg(feature = "std")]
        if crate::sender::current::is_seen() {
            return Some(self.fire_hidden(locked));
        }
        Some(self.fire_all(locked))
    }

    #[cfg(feature = "std")]
    #[cold]
    fn fire_hidden(&self, locked: Locked) -> Transfer {
        let _hidden = crate::sender::current::Hidden::from_poll();
        self.fire_all(locked)
    }

    /// Calls every callback. The caller has set the flag.
    #[inline(never)]
    fn fire_all(&self, locked: Locked) -> Transfer {
        // A callback that unwinds would leave the others uncalled, and their operations waiting.
        let guard = AbortOnUnwind::new();
        let mut locked = Some(locked);
        let resumed = Transfer::collect(|| {
            let held = locked.take()?;
            // SAFETY: the lock bit is set, by this thread.
            let list = unsafe { &mut *self.list.get() };
            let Some(entry) = list.pop_front() else {
                self.unlock(held);
                return None;
            };
            // Nothing is linked any more, so an empty list stays empty.
            let is_last = list.is_empty();
            // SAFETY: the entry was in the list, and its owner withdraws it under the lock, so it is valid.
            let fire = unsafe {
                entry.as_ref().state.store(FIRING, Relaxed);
                entry.as_ref().fire
            };
            self.unlock(held);
            // SAFETY: the entry stays valid until its callback releases it. It is not used after this call.
            let resumed = unsafe { fire(entry) };
            if !is_last {
                locked = Some(self.relock());
            }
            Some(resumed)
        });
        guard.defuse();
        resumed
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("stop_requested", &self.stop_requested())
            .finish_non_exhaustive()
    }
}

/// One listener of a registry.
///
/// ```text
/// IDLE ──enter──▶ LISTED ──request_stop──▶ FIRING ──release──▶ RELEASED
///                   └────────────withdraw────────────────────────▲
/// ```
pub struct StopEntry {
    /// Written once by `enter`, before the entry is listed; null while it is idle. Read by the owner of the entry, which
    /// also called `enter`. Valid for as long as the owner may call `withdraw`, by the contract of `enter`.
    registry: UnsafeCell<*const Registry>,
    /// Protected by the registry's lock bit.
    links: Links<StopEntry>,
    /// `LISTED` and `FIRING` are stored, and `LISTED` is left, under the registry's lock only. `RELEASED` is stored by
    /// the callback, with release, when it uses neither the entry nor what is around it any more. From then on the owner
    /// may be dropped, even while the callback is still running. Pairs with the acquire load in `is_released`.
    state: AtomicU8,
    /// Called once, outside the lock. It calls [`StopEntry::release`] once, and completes what it completes after that, so
    /// that no completion ever waits for itself.
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
            registry: UnsafeCell::new(ptr::null()),
            links: Links::new(),
            state: AtomicU8::new(IDLE),
            fire,
            _pinned: PhantomPinned,
        }
    }

    /// Puts the entry into the registry's list. Returns `false` where the stop has been requested already.
    ///
    /// # Safety
    ///
    /// The entry is pinned and idle, and withdrawn or released before it is dropped. The registry is valid until then,
    /// and until the last [`withdraw`](StopEntry::withdraw) has returned.
    pub(crate) unsafe fn enter(this: NonNull<StopEntry>, registry: NonNull<Registry>) -> bool {
        // SAFETY: the registry is valid, by the caller's promise. Once it is unlocked, with the entry in it, the entry may
        // be released and both be gone.
        unsafe {
            let Some(locked) = registry.as_ref().lock(STOPPED, 0) else {
                return false;
            };
            let entry = this.as_ref();
            entry.registry.get().write(registry.as_ptr());
            (*registry.as_ref().list.get()).push_front(this);
            entry.state.store(LISTED, Relaxed);
            registry.as_ref().unlock(locked);
        }
        true
    }

    /// Takes the entry out of the list. Returns `true` when its callback has not run and never will. Returns `false` when
    /// it has run, after waiting for its release where it is still running. An idle entry has nothing to leave.
    pub(crate) fn withdraw(&self) -> bool {
        let withdrawn = self.try_withdraw();
        if !withdrawn {
            self.wait_until_released();
        }
        withdrawn
    }

    /// Takes the entry out of the list without waiting. Returns `false` when its callback has run, or is running.
    pub(crate) fn try_withdraw(&self) -> bool {
        // SAFETY: written before the entry was listed, by the owner, which also calls this.
        let registry = unsafe { *self.registry.get() };
        if registry.is_null() {
            return true;
        }
        if self.is_released() {
            return false;
        }
        // SAFETY: valid until the owner has withdrawn the entry, by the contract of `enter`.
        let registry = unsafe { &*registry };
        let locked = registry.relock();
        let listed = self.state.load(Relaxed) == LISTED;
        if listed {
            // SAFETY: the lock bit is set by this thread, and the entry is in the list.
            unsafe { (*registry.list.get()).remove(NonNull::from(self)) };
            self.state.store(RELEASED, Relaxed);
        }
        registry.unlock(locked);
        listed
    }

    /// Returns whether no thread uses the entry any more but its owner's.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Acquire) == RELEASED
    }

    /// Returns whether the stop has reached an entry that was not withdrawn.
    #[cfg(feature = "alloc")]
    pub(crate) fn has_fired(&self) -> bool {
        self.state.load(Acquire) >= FIRING
    }

    /// Called by the callback: the owner may be dropped.
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
