//! The heart of every stop source: a flag and an intrusive list of those who want to know.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomPinned;
use core::mem;
use core::ptr::{self, NonNull};

use crate::Transfer;
use crate::sender::unwind::AbortOnUnwind;
use crate::sync::atomic::{
    AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{const_unless_loom, spin};

/// A flag and a list. What [`InplaceStopSource`](super::InplaceStopSource) and
/// [`StopSource`](super::StopSource) share.
pub struct Registry {
    /// Two bits:
    ///
    /// | bit | set by | means |
    /// |---|---|---|
    /// | `LOCKED` | whoever links, unlinks or takes an entry | the list is being changed; held for a few instructions, never while a callback runs |
    /// | `STOPPED` | the one successful `request_stop` | never cleared; nothing is linked any more, the list only shrinks |
    ///
    /// The bits above are why it was requested, see [`Why`]: zero until then, and for a plain request. They are set in one
    /// step with `STOPPED`.
    ///
    /// The lock is taken with acquire and given back with release, so the list needs no ordering of its own. While it is
    /// held nobody else changes the word, so it is given back by a plain store. A reader of `STOPPED` acquires what the
    /// requester did before.
    state: AtomicUsize,
    head: UnsafeCell<*mut Entry>,
}

/// The word as it will be when the lock is given back.
#[must_use = "the lock is held"]
#[derive(Default)]
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

// SAFETY: `head`, and every entry in the list, is touched under `LOCKED` only.
unsafe impl Send for Registry {}
// SAFETY: as above.
unsafe impl Sync for Registry {}

impl Registry {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Registry {
                state: AtomicUsize::new(0),
                head: UnsafeCell::new(ptr::null_mut()),
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

    /// # Safety
    ///
    /// The lock is held, and the entry is in the list.
    unsafe fn unlink(&self, entry: &Entry) {
        // SAFETY: neighbours in the list are alive, and the list is ours under the lock.
        unsafe {
            let next = *entry.next.get();
            let previous = *entry.previous.get();
            match previous.as_ref() {
                Some(previous) => previous.next.get().write(next),
                None => *self.head.get() = next,
            }
            if let Some(next) = next.as_ref() {
                next.previous.get().write(previous);
            }
        }
    }

    /// Sets the flag and calls every callback, each outside the lock. `None` when the stop had been requested before;
    /// otherwise what the callbacks want resumed.
    ///
    /// The registry must stay alive until this returns: whoever calls keeps its owner from completing.
    pub(crate) fn request_stop(&self) -> Option<Transfer> {
        self.request_stop_for(Why::default())
    }

    /// The same, for a reason.
    pub(crate) fn request_stop_for(&self, Why(why): Why) -> Option<Transfer> {
        let mut locked = self.lock(STOPPED, STOPPED | usize::from(why) << WHY)?;
        // A callback that unwinds would leave the others uncalled, and what waits for them waiting.
        let guard = AbortOnUnwind::new();
        // Callbacks are not part of the task in whose poll the stop is requested.
        #[cfg(feature = "std")]
        let _hidden = crate::sender::current::Hidden::from_poll();
        let resumed = Transfer::collect(|| {
            // SAFETY: the lock is held.
            let Some(entry) = NonNull::new(unsafe { *self.head.get() }) else {
                self.unlock(mem::take(&mut locked));
                return None;
            };
            // SAFETY: the lock is held, so the entry is in the list and alive.
            let fire = unsafe {
                self.unlink(entry.as_ref());
                entry.as_ref().state.store(FIRING, Relaxed);
                entry.as_ref().fire
            };
            self.unlock(mem::take(&mut locked));
            // SAFETY: the entry stays alive until its callback releases it. It is not touched again.
            let resumed = unsafe { fire(entry) };
            locked = self.relock();
            Some(resumed)
        });
        guard.defuse();
        Some(resumed)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("stop_requested", &self.stop_requested())
            .finish_non_exhaustive()
    }
}

/// One who wants to know of a stop.
///
/// ```text
/// IDLE ──enter──▶ LISTED ──request_stop──▶ FIRING ──release──▶ RELEASED
///                   └────────────withdraw────────────────────────▲
/// ```
pub struct Entry {
    /// Written once by `enter`, before the entry is listed; null while it is idle.
    registry: UnsafeCell<*const Registry>,
    /// The links belong to the registry's lock.
    next: UnsafeCell<*mut Entry>,
    previous: UnsafeCell<*mut Entry>,
    /// `LISTED` and `FIRING` are set, and `LISTED` is left, under the registry's lock only. `RELEASED` is set by the
    /// callback itself, with release, once it needs neither the entry nor what is around it any more: from then on
    /// the owner may go, even while the callback is still running. `withdraw` acquires it.
    state: AtomicU8,
    /// Called once, outside the lock. It must call [`Entry::release`] once, and completes whatever it completes after
    /// that, so that no completion ever waits for itself.
    fire: unsafe fn(NonNull<Entry>) -> Transfer,
    _pinned: PhantomPinned,
}

const IDLE: u8 = 0;
const LISTED: u8 = 1;
const FIRING: u8 = 2;
const RELEASED: u8 = 3;

impl Entry {
    pub(crate) fn new(fire: unsafe fn(NonNull<Entry>) -> Transfer) -> Self {
        Entry {
            registry: UnsafeCell::new(ptr::null()),
            next: UnsafeCell::new(ptr::null_mut()),
            previous: UnsafeCell::new(ptr::null_mut()),
            state: AtomicU8::new(IDLE),
            fire,
            _pinned: PhantomPinned,
        }
    }

    /// Puts the entry into the registry's list, or says `false` because the stop has been requested already.
    ///
    /// # Safety
    ///
    /// The entry is pinned, idle, and withdrawn or released before it or the registry is gone.
    pub(crate) unsafe fn enter(this: NonNull<Entry>, registry: &Registry) -> bool {
        let Some(locked) = registry.lock(STOPPED, 0) else {
            return false;
        };
        // SAFETY: the entry is alive and idle; we hold the lock, and the neighbours are alive while they are listed.
        unsafe {
            let entry = this.as_ref();
            entry.registry.get().write(registry);
            let head = *registry.head.get();
            entry.next.get().write(head);
            entry.previous.get().write(ptr::null_mut());
            if let Some(head) = head.as_ref() {
                head.previous.get().write(this.as_ptr());
            }
            *registry.head.get() = this.as_ptr();
            entry.state.store(LISTED, Relaxed);
        }
        registry.unlock(locked);
        true
    }

    /// Takes the entry out of the list. `true` when its callback has not run and never will; `false` when it has run,
    /// after waiting for it where it is still running. An entry that is idle has nothing to leave.
    pub(crate) fn withdraw(&self) -> bool {
        let withdrawn = self.try_withdraw();
        if !withdrawn {
            self.wait_until_released();
        }
        withdrawn
    }

    /// The same, without the wait: `false` when its callback has run, or is running.
    pub(crate) fn try_withdraw(&self) -> bool {
        // SAFETY: written before the entry was listed, by whoever calls this.
        let Some(registry) = (unsafe { (*self.registry.get()).as_ref() }) else {
            return true;
        };
        if self.is_released() {
            return false;
        }
        let locked = registry.relock();
        if self.state.load(Relaxed) == LISTED {
            // SAFETY: we hold the lock and the entry is in the list.
            unsafe { registry.unlink(self) };
            self.state.store(RELEASED, Relaxed);
            registry.unlock(locked);
            return true;
        }
        registry.unlock(locked);
        false
    }

    /// Whether nobody needs the entry any more.
    pub(crate) fn is_released(&self) -> bool {
        self.state.load(Acquire) == RELEASED
    }

    /// Called by the callback: the owner may go.
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

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state.load(Relaxed) {
            IDLE => "idle",
            LISTED => "listed",
            FIRING => "firing",
            _ => "released",
        };
        f.debug_tuple("Entry").field(&state).finish()
    }
}
