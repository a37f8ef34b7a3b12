//! The stop of one part of a task: a stop source that hears the task's stop, and can be stopped alone.
//!
//! [`Branch`] is a field of an await, of which a program may have millions. So it has no list of its own. Its only listener is
//! in the list of the outer source, which calls it directly. A stop of the branch alone takes it out of that list, and calls it.
//! For a second listener, and for a token without a type, the branch makes a [`Fork`]: a [`Relay`] in memory of its own.
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | `outer`, and the token behind it | every thread, read-only; the token until `over` |
//! | `listener`, `Fork::first` | the thread that holds the lock |
//! | the relay of a fork | every thread with a hold, and listeners before the end |
//!
//! The *lock* is that of the outer source. Without an outer source it is a bit of the branch.
//!
//! # Why it is sound
//!
//! - A stop of the branch alone sets `STOPPED`, and then looks for the listener under the lock. A listener checks the flag under
//!   the same lock. So the stop finds the listener, or the listener finds the flag.
//! - The end and each stop of the branch alone have a *hold*, which keeps the outer source and the fork valid. The thread that
//!   releases the last one ends the relay of the fork, if there is one. Then `over` is called, which may free the branch.
//! - Before the first listener no stop needs a hold, since it finds no listener and touches the branch only.

use core::ptr::{self, NonNull};

use super::registry::{Locked, Registry, StopEntry, Why};
use super::{ErasedStopToken, Raw, Relay, RelayOwner};
use crate::Transfer;
use crate::sender::current;
use crate::sender::unwind::AbortOnUnwind;
use crate::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::spin;

/// The functions of the owner of a branch: always the same ones for one branch.
pub(crate) struct BranchOwner {
    /// Called after the end, when no stop is being passed on. It may free the branch. The flag says whether a stop was passed
    /// on, or requested of the branch alone. If not, the caller is the party that ended the branch.
    pub(crate) over: Over,
    /// Creates a [new](Fork::new) fork in memory of its own. The branch has not ended.
    pub(crate) fork: unsafe fn(NonNull<Branch>) -> NonNull<Fork>,
}

type Over = unsafe fn(NonNull<Branch>, bool) -> Transfer;

/// A stop source inside another one. It has room for one listener, and for some bytes of its owner.
#[repr(C)]
pub(crate) struct Branch<B = ()> {
    /// The token of the outer source.
    outer: NonNull<ErasedStopToken>,
    /// Null, the only listener, [`FIRED`] once a stop has reached it, or the fork with the lowest bit set.
    ///
    /// Written under the lock, relaxed. Without the lock it is a hint, and tells the completion of a stopped operation that it
    /// was stopped.
    listener: AtomicPtr<StopEntry>,
    /// Four bits, which are set by read-modify-writes with acquire and release:
    ///
    /// | bit | set by | means |
    /// |---|---|---|
    /// | `STOPPED` | a stop of the branch alone | later listeners are refused |
    /// | `HELD` | a listener, under the lock | `holds` counts: there may be a listener in the outer source's list, or a fork |
    /// | `OWN` | a listener | there is no outer source, and there was a listener |
    /// | `LOCKED` | with `OWN`, the thread that changes `listener` | cleared by that thread |
    state: AtomicU8,
    /// The number of holds, if they count: one until the end, and one for each stop of the branch alone. Incremented by such a
    /// stop, relaxed, unless it is zero. Decremented with acquire and release. At most three: the future of an await and its
    /// frame request a stop once each.
    holds: AtomicU8,
    /// What the owner has beside the stop. A branch with something beside is at the address of one without.
    pub(crate) beside: B,
}

const STOPPED: u8 = 1;
const HELD: u8 = 2;
const OWN: u8 = 4;
const LOCKED: u8 = 8;

/// The bit of [`Branch::listener`] that says that it is a fork.
const FORK: usize = 1;
/// The value of [`Branch::listener`] after a stop.
const FIRED: *mut StopEntry = ptr::without_provenance_mut(2);

/// The reason of a stop of the branch alone.
const WHY: Why = Why::SCOPE_LEFT.here();

/// What a branch with several listeners has, or one with a token without a type. Made for the first use of either.
#[repr(C)]
pub(crate) struct Fork {
    /// The source of all listeners but the first. First, so that both have the same address.
    relay: Relay,
    /// The listener that the branch had before, as in [`Branch::listener`].
    first: AtomicPtr<StopEntry>,
    branch: NonNull<Branch>,
    over: Over,
    /// Destroys the fork, and frees its memory.
    free: unsafe fn(NonNull<Fork>),
}

/// Proof that this thread holds the lock of a branch.
#[must_use = "the lock is held"]
enum Held<'a> {
    Outer(&'a Registry, Locked),
    Own(&'a AtomicU8),
}

impl Held<'_> {
    #[inline]
    fn unlock(self) {
        match self {
            Held::Outer(outer, locked) => outer.unlock(locked),
            Held::Own(state) => {
                state.fetch_and(!LOCKED, Release);
            }
        }
    }
}

impl<B> Branch<B> {
    /// Creates a branch of the source of a token.
    ///
    /// # Safety
    ///
    /// The token and its source are valid until `over` is called.
    #[inline]
    pub(crate) unsafe fn new(outer: NonNull<ErasedStopToken>, beside: B) -> Self {
        Branch {
            outer,
            listener: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU8::new(0),
            holds: AtomicU8::new(1),
            beside,
        }
    }

    /// Returns the token of the outer source, which is valid until `over`.
    #[inline]
    pub(crate) fn outer(&self) -> NonNull<ErasedStopToken> {
        self.outer
    }

    /// Returns whether a stop of the branch alone was requested.
    #[inline]
    pub(crate) fn stop_requested(&self) -> bool {
        self.state.load(Acquire) & STOPPED != 0
    }
}

impl Branch {
    /// Adds a listener: to the outer source's list if it is the only one, and otherwise to the fork. Returns `false` if the stop
    /// has been requested already.
    ///
    /// # Safety
    ///
    /// The contract of [`StopEntry::enter`]. The branch is pinned and has not ended.
    #[inline]
    pub(crate) unsafe fn enter(this: NonNull<Branch>, entry: NonNull<StopEntry>, owner: &BranchOwner) -> bool {
        // SAFETY: the branch has not ended, so it is valid, and so is the outer source. Neither the branch nor the entry is
        // accessed after the unlock, because the callback may then complete the operation, and free the branch.
        unsafe {
            let branch = this.as_ref();
            let Some(held) = branch.lock_unless_stopped() else {
                return false;
            };
            if branch.listener.load(Relaxed).is_null() {
                branch.listener.store(entry.as_ptr(), Relaxed);
                entry.as_ref().set_listed(this.as_ptr().cast(), true);
                if let Held::Outer(outer, _) = &held {
                    outer.list(entry);
                }
                held.unlock();
                return true;
            }
            held.unlock();
            StopEntry::enter(entry, NonNull::from(Branch::fork(this, owner)))
        }
    }

    /// Returns a registry that is stopped with the branch.
    ///
    /// # Safety
    ///
    /// The branch is pinned and has not ended. The result is valid until `over`.
    pub(crate) unsafe fn fork<'a>(this: NonNull<Branch>, owner: &BranchOwner) -> &'a Registry {
        // SAFETY: the branch has not ended, so it is valid, and so are the outer source and the fork.
        unsafe {
            let branch = this.as_ref();
            let fork = fork_of(branch.listener.load(Acquire)).unwrap_or_else(|| Branch::make_fork(this, owner));
            Relay::link(fork.cast(), *branch.outer.as_ref());
            let relay = &fork.as_ref().relay;
            if branch.stop_requested() {
                // The stop may have come before the fork.
                drop(relay.request_stop(WHY));
            }
            relay.registry()
        }
    }

    /// # Safety
    ///
    /// The contract of [`Branch::fork`].
    #[inline(never)]
    unsafe fn make_fork(this: NonNull<Branch>, owner: &BranchOwner) -> NonNull<Fork> {
        // SAFETY: the branch has not ended. The new fork is known to no other thread until it is stored.
        unsafe {
            let fork = (owner.fork)(this);
            let branch = this.as_ref();
            let held = branch.lock();
            branch.state.fetch_or(HELD, AcqRel);
            let listener = branch.listener.load(Relaxed);
            let other = fork_of(listener);
            if other.is_none() {
                fork.as_ref().first.store(listener, Relaxed);
                let tagged = fork.as_ptr().map_addr(|address| address | FORK);
                branch.listener.store(tagged.cast(), Release);
            }
            held.unlock();
            if let Some(other) = other {
                (fork.as_ref().free)(fork);
                return other;
            }
            fork
        }
    }

    /// Takes the lock.
    ///
    /// # Safety
    ///
    /// The branch has not ended, or the caller has a hold.
    #[inline]
    unsafe fn lock(&self) -> Held<'_> {
        // SAFETY: the token and its source are valid until `over`, which waits for the caller.
        match unsafe { self.outer.as_ref() }.registry() {
            Some(outer) => Held::Outer(outer, outer.relock()),
            None => self.lock_own(),
        }
    }

    /// Takes the lock for a new listener, unless a stop was requested.
    ///
    /// # Safety
    ///
    /// The branch has not ended.
    #[inline]
    unsafe fn lock_unless_stopped(&self) -> Option<Held<'_>> {
        // SAFETY: as for `lock`.
        let held = match unsafe { self.outer.as_ref() }.registry() {
            Some(outer) => Held::Outer(outer, outer.lock_unless_stopped()?),
            None => self.lock_own(),
        };
        let mut state = self.state.load(Relaxed);
        if matches!(held, Held::Outer(..)) && state & HELD == 0 {
            // One step, so that a stop that this does not see finds the flag.
            state = self.state.fetch_or(HELD, AcqRel);
        }
        if state & STOPPED != 0 {
            held.unlock();
            return None;
        }
        Some(held)
    }

    #[cold]
    fn lock_own(&self) -> Held<'_> {
        let mut rounds = 0;
        while self.state.fetch_or(OWN | LOCKED, AcqRel) & LOCKED != 0 {
            spin(&mut rounds);
        }
        Held::Own(&self.state)
    }

    /// Returns the place of the listener that is called directly.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and a fork is valid.
    #[inline]
    unsafe fn first(&self) -> &AtomicPtr<StopEntry> {
        match fork_of(self.listener.load(Relaxed)) {
            // SAFETY: the caller's promise.
            Some(fork) => unsafe { &fork.as_ref().first },
            None => &self.listener,
        }
    }

    /// Notes that a stop has reached the listener.
    ///
    /// # Safety
    ///
    /// The caller holds the lock and has removed the listener, which is alive.
    #[inline]
    pub(super) unsafe fn set_fired(&self) {
        // SAFETY: the listener is alive, so the branch has not ended, and the fork is valid.
        unsafe { self.first() }.store(FIRED, Relaxed);
    }

    /// Removes the listener, unless a stop has reached it. Returns whether it did.
    ///
    /// # Safety
    ///
    /// The entry was added by [`enter`](Branch::enter), to this branch. The caller owns it.
    pub(super) unsafe fn withdraw(&self, entry: NonNull<StopEntry>) -> bool {
        // SAFETY: the owner of a listener withdraws it before the end, so the branch has not ended.
        unsafe {
            let held = self.lock();
            let listed = entry.as_ref().is_listed();
            if listed {
                if let Held::Outer(outer, _) = &held {
                    outer.unlist(entry);
                }
                entry.as_ref().set_withdrawn();
                self.first().store(ptr::null_mut(), Relaxed);
            }
            held.unlock();
            listed
        }
    }

    /// Requests a stop of the branch alone.
    ///
    /// # Safety
    ///
    /// The memory of the branch stays valid until this returns, whether or not the branch ends meanwhile. Called at most twice.
    pub(crate) unsafe fn request_stop(this: NonNull<Branch>, owner: &BranchOwner) -> Transfer {
        // SAFETY: the contract of this function. The outer source and the fork are used with a hold only. A listener in its
        // place is valid under the lock, because its owner withdraws it before the end.
        unsafe {
            let branch = this.as_ref();
            let state = branch.state.fetch_or(STOPPED, AcqRel);
            // Later listeners are refused.
            let (held, holds) = match state & OWN {
                0 if state & HELD == 0 || branch.listener.load(Relaxed) == FIRED || !branch.hold() => {
                    return Transfer::none();
                }
                0 => (branch.lock(), true),
                _ => {
                    let held = branch.lock_own();
                    let holds = branch.state.load(Relaxed) & HELD != 0;
                    if holds && !branch.hold() {
                        held.unlock();
                        return Transfer::none();
                    }
                    (held, holds)
                }
            };
            let fork = fork_of(branch.listener.load(Relaxed));
            let first = NonNull::new(branch.first().load(Relaxed)).filter(|entry| entry.as_ptr() != FIRED);
            if let (Some(entry), Held::Outer(outer, _)) = (first, &held) {
                outer.unlist(entry);
            }
            let mut fire = first.map(|entry| (entry, entry.as_ref().begin_firing()));
            held.unlock();
            let mut fork = fork;
            // The two are collected as one, so that a callback that blocks finds what the other has resumed.
            let resumed = Transfer::collect(|| {
                if let Some(fork) = fork.take() {
                    return Some(fork.as_ref().relay.request_stop(WHY).unwrap_or_default());
                }
                let (entry, fire) = fire.take()?;
                let _hidden = current::Hidden::from_poll();
                let guard = AbortOnUnwind::new();
                let resumed = fire(entry);
                guard.defuse();
                Some(resumed)
            });
            match holds {
                true => resumed.and(Branch::release(this, owner)),
                false => resumed,
            }
        }
    }

    /// Adds a hold, unless the last one was released.
    fn hold(&self) -> bool {
        (self.holds)
            .fetch_update(Relaxed, Relaxed, |holds| (holds != 0).then_some(holds + 1))
            .is_ok()
    }

    /// Releases a hold. The last one ends the fork, and then calls `over`.
    ///
    /// # Safety
    ///
    /// The caller has a hold, which it does not use again. The holds count.
    #[inline]
    unsafe fn release(this: NonNull<Branch>, owner: &BranchOwner) -> Transfer {
        // SAFETY: the caller's hold keeps the branch valid, and after the last hold it stays valid until `over`. No listener is
        // left, so no other thread accesses the fork.
        unsafe {
            if this.as_ref().holds.fetch_sub(1, AcqRel) != 1 {
                return Transfer::none();
            }
            let listener = this.as_ref().listener.load(Relaxed);
            match fork_of(listener) {
                Some(fork) => Relay::end(fork.cast()),
                // The last hold may be that of a stop that found no listener.
                None => (owner.over)(this, listener == FIRED || this.as_ref().stop_requested()),
            }
        }
    }

    /// Ends the branch: its owner needs no more stops. Calls `over`, unless a stop is being passed on, whose thread then does.
    ///
    /// # Safety
    ///
    /// Called once, after every listener was withdrawn or called. The branch may be freed when this returns.
    #[inline]
    pub(crate) unsafe fn end(this: NonNull<Branch>, owner: &BranchOwner) -> Transfer {
        // SAFETY: the branch has not ended before, so it is valid, and the end still has its hold.
        unsafe {
            if this.as_ref().state.load(Acquire) & HELD == 0 {
                // Without a fork. A stop in progress touches nothing but the branch.
                return (owner.over)(this, this.as_ref().listener.load(Relaxed) == FIRED);
            }
            Branch::release(this, owner)
        }
    }
}

impl Fork {
    /// Creates a fork of a branch.
    pub(crate) fn new(branch: NonNull<Branch>, owner: &BranchOwner, free: unsafe fn(NonNull<Fork>)) -> Self {
        Fork {
            relay: Relay::new(&RelayOwner {
                over: Fork::over,
                reach_unlisted: None,
            }),
            first: AtomicPtr::new(ptr::null_mut()),
            branch,
            over: owner.over,
            free,
        }
    }

    /// Frees the fork, and ends the branch.
    ///
    /// # Safety
    ///
    /// `relay` is the field of a fork, and over.
    unsafe fn over(relay: NonNull<Relay>) -> Transfer {
        let this = relay.cast::<Fork>();
        // SAFETY: the last hold of the branch was released, and the relay is over, so no other thread uses either.
        unsafe {
            let Fork { branch, over, free, .. } = *this.as_ref();
            let stopped = branch.as_ref().stop_requested() || this.as_ref().first.load(Relaxed) == FIRED;
            let passed = stopped || relay.as_ref().has_passed();
            free(this);
            over(branch, passed)
        }
    }
}

/// Returns the fork in [`Branch::listener`].
#[inline]
fn fork_of(listener: *mut StopEntry) -> Option<NonNull<Fork>> {
    match listener.addr() & FORK {
        0 => None,
        _ => NonNull::new(listener.map_addr(|address| address & !FORK).cast()),
    }
}
