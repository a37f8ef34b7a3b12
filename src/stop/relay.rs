//! A stop source beneath another: what stops that one stops this one too, and this one can be stopped alone.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::sender::current;
use crate::sender::stage::container_of;
use crate::stop::{ErasedStopToken, Registry, StopSlot, StopToken, Why};
use crate::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::spin;
use crate::{Job, Transfer};

/// A stop source that passes on the stop of another. The link to the other source's token is made when the first callback
/// registers, or by [`link`](Relay::link).
///
/// It is a field of what it stops: an await, a group, a scope inside a task.
pub(crate) struct Relay {
    /// What is listened to. Its stop is that of the source outside, passed on, or of this one alone.
    registry: Registry,
    /// Whether the stop outside is passed on:
    ///
    /// | value | means |
    /// |---|---|
    /// | `UNLINKED` | nobody has listened yet: whoever asks looks at both flags, and no list knows this |
    /// | `LINKING` | one who listens makes the link; another waits, for a few instructions |
    /// | `ALONE` | there is nothing to link: the source outside cannot be stopped, or was, and then so is this |
    /// | `LINKED` | the slot is, or was, in the list of the source outside; `holds` counts |
    ///
    /// It is set by whoever links, with release. All that happens before the [end](Relay::end), which therefore sees it.
    link: AtomicU8,
    /// A stop was passed on from outside. Set before the hold for that is given back.
    passed: AtomicBool,
    /// Where linked: one until the end, and one while a stop is passed on. Whoever takes it to zero leaves the slot, and
    /// calls `over`.
    ///
    /// - The end gives its one back, with release, after it left whatever is to be seen; the last one acquires.
    /// - The slot's callback adds one, unless it is zero: then the slot is being left, which waits for the callback.
    ///
    /// So the registry is there until the stop was passed on, though what is stopped ends in the midst of that.
    holds: AtomicUsize,
    /// Made by whoever links.
    outside: UnsafeCell<MaybeUninit<OuterLink>>,
    /// Why the source outside was stopped. Belongs to the thread that passes the stop on, while it has a hold.
    why: Cell<Why>,
    /// Passes the stop on where many are, one inside the other: a stop that travels through nested tasks does not recurse.
    job: Job,
    /// What follows the end, once no stop is being passed on. This may be gone when it returns.
    over: unsafe fn(NonNull<Relay>) -> Transfer,
}

/// The link to the source outside.
#[repr(C)]
struct OuterLink {
    /// First, so that its address is that of the whole.
    slot: StopSlot<ErasedStopToken>,
    token: ErasedStopToken,
}

// SAFETY: but for atomics there are the link, which is made once and published by `link`; and what belongs to the one
// thread that passes the stop on.
unsafe impl Send for Relay {}
// SAFETY: as above.
unsafe impl Sync for Relay {}

const UNLINKED: u8 = 0;
const LINKING: u8 = 1;
const ALONE: u8 = 2;
const LINKED: u8 = 3;

impl Relay {
    #[inline]
    pub(crate) fn new(over: unsafe fn(NonNull<Relay>) -> Transfer) -> Self {
        Relay {
            registry: Registry::new(),
            link: AtomicU8::new(UNLINKED),
            passed: AtomicBool::new(false),
            holds: AtomicUsize::new(1),
            outside: UnsafeCell::new(MaybeUninit::uninit()),
            why: Cell::new(Why::default()),
            job: Job::new(Relay::pass_on),
            over,
        }
    }

    #[inline]
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The token of this source.
    ///
    /// # Safety
    ///
    /// It is not used once this is gone.
    pub(crate) unsafe fn token(&self) -> ErasedStopToken {
        // SAFETY: the caller's promise.
        unsafe { ErasedStopToken::of(NonNull::from(&self.registry)) }
    }

    #[inline]
    pub(crate) fn stop_requested(&self) -> bool {
        self.registry.stop_requested()
    }

    /// Stops what is inside, and nothing else. None where that was done before.
    pub(crate) fn request_stop(&self, why: Why) -> Option<Transfer> {
        self.registry.request_stop_for(why)
    }

    /// Whether a stop from outside was passed on. Looked at by `over`.
    #[inline]
    pub(crate) fn has_passed(&self) -> bool {
        self.passed.load(Relaxed)
    }

    /// Has the stop outside passed on from now on, if it was not done before.
    ///
    /// # Safety
    ///
    /// This is pinned, and was not ended. The source outside is there until it is over.
    pub(crate) unsafe fn link(this: NonNull<Relay>, outer: ErasedStopToken) {
        // SAFETY: the caller's promise.
        let relay = unsafe { this.as_ref() };
        let mut rounds = 0;
        loop {
            match relay.link.compare_exchange(UNLINKED, LINKING, Acquire, Acquire) {
                Ok(_) => break,
                Err(LINKING) => spin(&mut rounds),
                Err(_) => return,
            }
        }
        if !outer.stop_possible() {
            relay.link.store(ALONE, Release);
            return;
        }
        // SAFETY: nobody else touches the slot now. It is pinned with this, and left before that goes.
        let listening = unsafe {
            // It leads back to this, so its address is made from this one's.
            let place = (&raw mut (*this.as_ptr()).outside).cast::<OuterLink>();
            place.write(OuterLink {
                slot: StopSlot::new(Relay::stop_requested_outside),
                token: outer,
            });
            // The callback does not mind what is set below: it looks at the count alone.
            StopSlot::listen(NonNull::new_unchecked(place).cast(), outer)
        };
        if listening {
            relay.link.store(LINKED, Release);
        } else {
            let resumed = relay.request_stop(outer.why().unwrap_or_default().passed());
            relay.link.store(ALONE, Release);
            // Nobody listens yet, or whoever does began to before this was linked.
            drop(resumed);
        }
    }

    /// What this stops has ended. `over` follows, right here where no stop is being passed on.
    ///
    /// # Safety
    ///
    /// It is called once. This may be gone when it returns.
    #[inline]
    pub(crate) unsafe fn end(this: NonNull<Relay>) -> Transfer {
        // SAFETY: the caller's promise. Where that was the last hold, this is alive until `over`.
        unsafe {
            if Relay::end_now(this) {
                (this.as_ref().over)(this)
            } else {
                Transfer::none()
            }
        }
    }

    /// [`end`](Relay::end) for a caller that sees to what follows where no stop is being passed on. Returns whether that is so;
    /// otherwise `over` is called by the thread that passes the stop on.
    ///
    /// # Safety
    ///
    /// As for [`end`](Relay::end).
    #[inline]
    pub(crate) unsafe fn end_now(this: NonNull<Relay>) -> bool {
        // SAFETY: the caller's promise. Where it was linked, the end gives its hold up, once.
        unsafe { this.as_ref().link.load(Acquire) != LINKED || Relay::release(this) }
    }

    /// Gives a hold up. Returns whether it was the last: no stop is being passed on, and none will be.
    ///
    /// # Safety
    ///
    /// The caller has a hold. It was linked.
    unsafe fn release(this: NonNull<Relay>) -> bool {
        // SAFETY: the caller has a hold.
        let relay = unsafe { this.as_ref() };
        if relay.holds.fetch_sub(1, AcqRel) != 1 {
            return false;
        }
        // SAFETY: linked, so the slot was made. A callback that came too late has nothing to do but to release it.
        unsafe { (*relay.outside.get()).assume_init_ref() }.slot.leave();
        true
    }

    /// The callback of the token outside.
    ///
    /// # Safety
    ///
    /// The slot is that of a linked relay.
    unsafe fn stop_requested_outside(slot: NonNull<StopSlot<ErasedStopToken>>) -> Transfer {
        // SAFETY: the slot comes first in a field of a relay, which is there until the slot is released. A cell has the
        // address of its content.
        let this = unsafe { container_of!(slot.cast::<OuterLink>(), Relay, outside) };
        // SAFETY: as above.
        let relay = unsafe { this.as_ref() };
        let held = relay
            .holds
            .fetch_update(Relaxed, Relaxed, |holds| (holds != 0).then_some(holds + 1))
            .is_ok();
        if held {
            // The source outside need not be there any more when it is this one's turn.
            // SAFETY: it was made before it was listed.
            let why = unsafe { slot.cast::<OuterLink>().as_ref() }.token.why();
            relay.why.set(why.unwrap_or_default().passed());
        }
        // SAFETY: as above.
        unsafe { slot.as_ref() }.release();
        if !held {
            return Transfer::none();
        }
        relay.passed.store(true, Relaxed);
        // SAFETY: the hold keeps it. The job leads back to the relay, so its address is made from the relay's.
        let job = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).job) };
        // SAFETY: as above: it is passed on this once, here or by the job.
        current::pass_stop_on(|| unsafe { Relay::pass_on(job) }).unwrap_or_else(|| unsafe { Transfer::to(job) })
    }

    /// # Safety
    ///
    /// The job is that of a relay, which the callback holds.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe {
            let this = container_of!(job, Relay, job);
            let resumed = this.as_ref().request_stop(this.as_ref().why.get()).unwrap_or_default();
            if Relay::release(this) {
                resumed.and((this.as_ref().over)(this))
            } else {
                resumed
            }
        }
    }
}
