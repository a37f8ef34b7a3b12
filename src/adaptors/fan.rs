//! The core of every adaptor that runs several children at once: the countdown and the stop.

use core::fmt;
use core::ptr::NonNull;

use crate::sender::stage::container_of;
use crate::stop::{InplaceStopSource, InplaceStopToken, StopSlot, StopToken};
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use crate::{Env, Job, Patched, Transfer, WithStopToken};

/// The environment of a child: the parent's, with the stop token of the fan.
pub(crate) type FanEnv<E> = Patched<WithStopToken<InplaceStopToken<'static>>, E>;

/// A countdown of children, and the stop source that they see, linked to the receiver's token.
///
/// The owner embeds it after the children, so that they are destroyed before the source that they see.
pub(crate) struct Fan<E: Env> {
    /// The children that have not completed, plus the stops that are being passed on. The decrement to zero ends the
    /// owner.
    ///
    /// - A child decrements after it has left its result, with release. The last decrement acquires.
    /// - A stop callback increments, relaxed, unless the count is zero: the owner is then ending, and waits until the
    ///   callback has released its slot. The increment keeps the owner, and so the source, alive until the stop has
    ///   been passed on.
    ///
    /// So no thread waits for a stop to be passed on, and no stop reaches a source that was destroyed.
    remaining: AtomicUsize,
    source: InplaceStopSource,
    slot: StopSlot<E::StopToken>,
    /// Passes the stop on from the loop of the thread that requested it: a stop that travels through nested fans does
    /// not recurse.
    job: Job,
    env: E,
    /// Ends the owner when the countdown has reached zero.
    end: unsafe fn(NonNull<Fan<E>>) -> Transfer,
}

impl<E: Env> Fan<E> {
    /// # Safety
    ///
    /// `end` is called with this fan's address when the countdown has reached zero.
    pub(crate) unsafe fn new(children: usize, env: E, end: unsafe fn(NonNull<Fan<E>>) -> Transfer) -> Self {
        Fan {
            remaining: AtomicUsize::new(children),
            source: InplaceStopSource::new(),
            slot: StopSlot::new(Self::stop_requested),
            job: Job::new(Self::pass_on),
            env,
            end,
        }
    }

    /// Sets the number of children, before [`Fan::open`].
    pub(crate) fn expect(&self, children: usize) {
        self.remaining.store(children, Relaxed);
    }

    /// Links the children's stop to the receiver's. Called once, before the children start.
    ///
    /// `listen` is `false` where every child is [`Inline`](crate::Completes::Inline): a stop that was requested before is
    /// passed on, and no child looks for one that comes later.
    ///
    /// # Safety
    ///
    /// The fan is pinned, and alive until [`Fan::close`].
    pub(crate) unsafe fn open(this: NonNull<Self>, listen: bool) -> Transfer {
        // SAFETY: the fan is alive.
        let fan = unsafe { this.as_ref() };
        let token = fan.env.stop_token();
        let stopped = if listen {
            // SAFETY: the slot is pinned with the fan, and left in `close`. A source that the token borrows outlives
            // the receiver's completion, which comes after `close`.
            !unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token) }
        } else {
            token.stop_requested()
        };
        if stopped {
            fan.source.request_stop_later()
        } else {
            Transfer::none()
        }
    }

    /// Requests the children's stop, before they start.
    pub(crate) fn stop(&self) -> Transfer {
        self.source.request_stop_later()
    }

    /// Returns the environment of a child.
    ///
    /// # Safety
    ///
    /// The result is used only while that child has not completed.
    #[inline]
    pub(crate) unsafe fn env(&self) -> FanEnv<E> {
        // SAFETY: the source is alive while a child has not completed, and the token is not used longer, by the
        // contract.
        let token = unsafe { self.source.token().extend() };
        Patched::new(WithStopToken(token), self.env.clone())
    }

    /// Counts a child that has completed and left its result. Requests the stop of the others first, if `stop` says so.
    /// The last child ends the owner.
    ///
    /// # Safety
    ///
    /// The child is counted once. The owner may be destroyed when this returns.
    #[inline]
    pub(crate) unsafe fn child_completed(this: NonNull<Self>, stop: bool) -> Transfer {
        // SAFETY: the owner is alive until this child is counted.
        let fan = unsafe { this.as_ref() };
        let resumed = if stop {
            fan.source.request_stop_later()
        } else {
            Transfer::none()
        };
        let end = fan.end;
        if fan.remaining.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: the countdown has reached zero, as `end` asks.
            resumed.and(unsafe { end(this) })
        } else {
            resumed
        }
    }

    /// Holds the owner for a stop that is being passed on, and returns whether it does: not where the owner is ending.
    /// [`Fan::child_completed`] releases the hold.
    pub(crate) fn hold(&self) -> bool {
        let mut remaining = self.remaining.load(Relaxed);
        loop {
            if remaining == 0 {
                return false;
            }
            match self
                .remaining
                .compare_exchange_weak(remaining, remaining + 1, Relaxed, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => remaining = now,
            }
        }
    }

    /// Leaves the receiver's token, after the countdown has reached zero. Waits for a callback that is running.
    #[inline]
    pub(crate) fn close(&self) {
        self.slot.leave();
    }

    /// Takes the receiver's stop, and passes it on by a job.
    ///
    /// # Safety
    ///
    /// The slot is that of an open fan.
    unsafe fn stop_requested(slot: NonNull<StopSlot<E::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of a fan, which is alive until the slot is released: `close` waits for that.
        let this = unsafe { container_of!(slot, Self, slot) };
        // SAFETY: the fan is alive until the slot is released, below.
        let fan = unsafe { this.as_ref() };
        let held = fan.hold();
        fan.slot.release();
        if held {
            // SAFETY: the hold keeps the fan alive until the job has run. It runs once, since the callback does.
            unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) }
        } else {
            Transfer::none()
        }
    }

    /// # Safety
    ///
    /// The job is that of a fan that `stop_requested` holds.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a fan.
        let this = unsafe { container_of!(job, Self, job) };
        // SAFETY: the hold of `stop_requested` keeps the fan alive, and is released like a child that asks for a stop.
        unsafe { Self::child_completed(this, true) }
    }
}

impl<E: Env> fmt::Debug for Fan<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fan")
            .field("remaining", &self.remaining)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
