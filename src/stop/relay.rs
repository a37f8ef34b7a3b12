//! A stop source linked to the token of another: it passes that stop on, and can be stopped alone.
//!
//! [`Relay`] is a field of the thing that it stops: an await, a group, a scope inside a task. Its owner pins it, calls
//! [`Relay::link`] when the first callback registers, and calls [`Relay::end`] once. The relay then calls the owner's
//! `over` function, which may free it.
//!
//! # Who may access what
//!
//! | field | accessed by |
//! |---|---|
//! | `outside` | the linking thread, under the registry's lock; after `LINKED` every thread, read-only |
//! | `why` | the thread that passes the stop on, while it has a hold |
//! | `job` | the thread that passes the stop on, which has a hold, and the driver that runs the job |
//!
//! # Why it is sound
//!
//! The owner and a stop that is being passed on each have a *hold*. The thread that releases the last hold leaves the
//! outer source's list, which waits for a running callback, and then calls `over`. So the registry is valid until the
//! stop was passed on, even if the owner ends during that. A callback that finds no hold left only releases its slot.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::sender::current;
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Raw, Registry, StopSlot, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::{Job, Transfer};

/// A stop source that passes on the stop of an outer source. The link is made lazily, when the first callback
/// registers.
pub(crate) struct Relay {
    /// The link. Initialized by the linking thread, before `LINKED`.
    outside: UnsafeCell<MaybeUninit<StopSlot<ErasedStopToken>>>,
    /// Passes the stop on from a driver. A stop that passes through nested tasks does not recurse.
    job: Job,
    /// The state that callbacks listen to. It is stopped by the outer source's stop, or alone.
    registry: Registry,
    /// The number of holds of a relay that is not `UNLINKED`: one until the end, and one while a stop is passed on. The thread
    /// that releases the last hold leaves the slot and calls `over`.
    ///
    /// - Decremented with acquire and release, so the last release sees what the others did.
    /// - Incremented by a stop, relaxed, unless it is zero. At zero the slot is being left, which waits for the slot's
    ///   callback.
    holds: AtomicU32,
    /// The reason of the outer stop. Written by the slot's callback and read by `pass_on`; the hold orders the two.
    why: Cell<Why>,
    /// The state of the link to the outer source:
    ///
    /// | value | means |
    /// |---|---|
    /// | `UNLINKED` | no callback has registered, or the outer source cannot be stopped, or both sources are stopped |
    /// | `LINKED` | the slot is, or was, in the outer source's list; `holds` counts |
    ///
    /// Only grows. Written under the registry's lock, with release. Pairs with the acquire load in `end_now`, which
    /// happens after every link.
    link: AtomicU8,
    /// Whether a stop was passed on. Written with relaxed ordering before the hold of that stop is released, which
    /// publishes it. Read by `over`, after the last hold.
    passed: AtomicBool,
    owner: &'static RelayOwner,
}

/// The functions of the owner of a relay.
pub(crate) struct RelayOwner {
    /// Called after the end, when no stop is being passed on. It may free the relay.
    pub(crate) over: unsafe fn(NonNull<Relay>) -> Transfer,
    /// Passes a stop from outside on to listeners without an entry. `None` if there are none. After a stop of the relay alone its
    /// owner does this by itself.
    pub(crate) reach_unlisted: Option<unsafe fn(NonNull<Relay>) -> Transfer>,
}

// SAFETY: `outside` is written once and published by `link`. `why` and `job` are accessed by the one thread that passes the stop
// on. The rest is atomics and a registry.
unsafe impl Send for Relay {}
// SAFETY: see `Send`.
unsafe impl Sync for Relay {}

const UNLINKED: u8 = 0;
const LINKED: u8 = 1;

impl Relay {
    #[inline]
    pub(crate) fn new(owner: &'static RelayOwner) -> Self {
        Relay {
            outside: UnsafeCell::new(MaybeUninit::uninit()),
            job: Job::new(Relay::pass_on),
            registry: Registry::new(),
            holds: AtomicU32::new(1),
            why: Cell::new(Why::default()),
            link: AtomicU8::new(UNLINKED),
            passed: AtomicBool::new(false),
            owner,
        }
    }

    #[inline]
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the token of this source.
    ///
    /// # Safety
    ///
    /// The token is not used after the relay is dropped.
    pub(crate) unsafe fn token(&self) -> ErasedStopToken {
        // SAFETY: the relay outlives the token, by the contract of this function.
        unsafe { ErasedStopToken::of(NonNull::from(&self.registry)) }
    }

    #[inline]
    pub(crate) fn stop_requested(&self) -> bool {
        self.registry.stop_requested()
    }

    /// Requests the stop of this source alone. Returns `None` if it had been requested before.
    pub(crate) fn request_stop(&self, why: Why) -> Option<Transfer> {
        self.registry.request_stop_for(why)
    }

    /// Returns whether an outer stop was passed on. Called by `over`.
    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.passed.load(Relaxed)
    }

    /// Links the relay to the outer source, unless it is linked already.
    ///
    /// # Safety
    ///
    /// The relay is pinned and has not ended. The outer source is valid until `over` is called, and always the same.
    pub(crate) unsafe fn link(this: NonNull<Relay>, outer: ErasedStopToken) {
        // SAFETY: the relay is valid: it has not ended, by the contract of this function.
        let relay = unsafe { this.as_ref() };
        if outer.registry().is_none() || relay.link.load(Relaxed) == LINKED {
            return;
        }
        // A relay that is stopped needs no link.
        let Some(held) = relay.registry.lock_unless_stopped() else {
            return;
        };
        if relay.link.load(Relaxed) == LINKED {
            return relay.registry.unlock(held);
        }
        // SAFETY: the lock is held and the relay is not linked, so this thread has exclusive access to `outside`. The slot
        // is pinned with the relay, and left before `over` may free it.
        let listening = unsafe {
            // The callback computes the relay's address from the slot's. So the slot's pointer is derived from the
            // relay's.
            let place = (&raw mut (*this.as_ptr()).outside).cast::<StopSlot<ErasedStopToken>>();
            place.write(StopSlot::new(Relay::stop_requested_outside));
            // The callback may run before the state is set below. It then waits for the lock.
            StopSlot::listen(NonNull::new_unchecked(place), outer)
        };
        if listening {
            relay.link.store(LINKED, Release);
        }
        relay.registry.unlock(held);
        if !listening {
            // No callback was registered before this link, so the stop resumes none.
            drop(relay.request_stop(outer.why().unwrap_or_default().passed()));
        }
    }

    /// Ends the relay: its owner needs no more stops. Calls `over`, unless a stop is being passed on, whose thread then
    /// does.
    ///
    /// # Safety
    ///
    /// Called once. The relay may be freed when this returns.
    #[inline]
    pub(crate) unsafe fn end(this: NonNull<Relay>) -> Transfer {
        // SAFETY: the relay has not ended before, so it is valid. After the last hold it stays valid until `over`.
        unsafe {
            if Relay::end_now(this) {
                (this.as_ref().owner.over)(this)
            } else {
                Transfer::none()
            }
        }
    }

    /// Ends the relay like [`end`](Relay::end), but leaves `over` to the caller if it returns `true`. If it returns
    /// `false`, the thread that passes the stop on calls `over`.
    ///
    /// # Safety
    ///
    /// The contract of [`end`](Relay::end).
    #[inline]
    pub(crate) unsafe fn end_now(this: NonNull<Relay>) -> bool {
        // SAFETY: the relay has not ended before, so it is valid, and the end still has its hold.
        unsafe { this.as_ref().link.load(Acquire) == UNLINKED || Relay::release(this) }
    }

    /// Adds a hold, unless the last one was released.
    fn hold(&self) -> bool {
        (self.holds)
            .fetch_update(Relaxed, Relaxed, |holds| (holds != 0).then_some(holds + 1))
            .is_ok()
    }

    /// Releases a hold. Returns whether it was the last: no stop is being passed on, and none will be.
    ///
    /// # Safety
    ///
    /// The caller has a hold, which it does not use again. The holds count.
    #[inline]
    unsafe fn release(this: NonNull<Relay>) -> bool {
        // SAFETY: the caller's hold keeps the relay valid.
        let relay = unsafe { this.as_ref() };
        if relay.holds.fetch_sub(1, AcqRel) != 1 {
            return false;
        }
        if relay.link.load(Relaxed) == LINKED {
            // SAFETY: the relay is linked, so `outside` is initialized. A callback that runs now finds no hold, and only
            // releases the slot.
            unsafe { (*relay.outside.get()).assume_init_ref() }.leave();
        }
        true
    }

    /// Releases the hold of a stop, and calls `over` if it was the last.
    ///
    /// # Safety
    ///
    /// The contract of [`release`](Relay::release).
    unsafe fn release_and_end(this: NonNull<Relay>) -> Transfer {
        // SAFETY: the contract of this function. After the last hold the relay stays valid until `over`.
        unsafe {
            if Relay::release(this) {
                (this.as_ref().owner.over)(this)
            } else {
                Transfer::none()
            }
        }
    }

    /// Handles the outer source's stop. This is the slot's callback.
    ///
    /// # Safety
    ///
    /// `slot` is the field of a linked relay.
    unsafe fn stop_requested_outside(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: the slot is in `outside`, and an `UnsafeCell` has the address of its content. The last hold waits for the
        // slot's release before it calls `over`, so the relay is valid.
        let (this, relay) = unsafe {
            let this = container_of!(slot, Relay, outside);
            (this, this.as_ref())
        };
        let held = relay.hold();
        if held {
            // SAFETY: the slot is valid until its release. The reason is read now: the outer source may be dropped before the
            // job runs.
            let why = unsafe { slot.as_ref() }.why();
            relay.why.set(why.unwrap_or_default().passed());
        }
        // SAFETY: the slot is valid until its release.
        unsafe { slot.as_ref() }.release();
        if !held {
            return Transfer::none();
        }
        relay.passed.store(true, Relaxed);
        // SAFETY: the hold keeps the relay valid. The job's pointer is derived from the relay's, as `pass_on` requires.
        let job = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).job) };
        // SAFETY: the hold keeps the relay valid, and the stop is passed on once: here, or by the job.
        current::pass_stop_on(|| unsafe { Relay::pass_on(job) }).unwrap_or_else(|| unsafe { Transfer::to(job) })
    }

    /// # Safety
    ///
    /// `job` is the field of a relay, and the slot's callback took a hold for this call.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the callback's hold keeps the relay valid until `release`. After the last hold it stays valid until
        // `over`.
        unsafe {
            let this = container_of!(job, Relay, job);
            let relay = this.as_ref();
            let mut stopped = relay.registry.pass_stop_on(relay.why.get());
            let has_unlisted = stopped.is_some() && relay.registry.has_unlisted();
            let mut unlisted = relay.owner.reach_unlisted.filter(|_| has_unlisted);
            let resumed = Transfer::collect(|| {
                stopped
                    .take()
                    .or_else(|| unlisted.take().map(|reach_unlisted| reach_unlisted(this)))
            });
            resumed.and(Relay::release_and_end(this))
        }
    }
}
