//! What every adaptor that runs several children at once has inside: the countdown and the stop.

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

/// A countdown of children, and a stop source that they see, linked to the token of the receiver.
///
/// The owner embeds it after the children, so that they are destroyed before the source that they see.
pub(crate) struct Fan<E: Env> {
    /// Children that have not completed, plus one while a stop is on its way from the receiver's token. Whoever takes
    /// it to zero ends the owner.
    ///
    /// - A child decrements when it has completed, with release, after it left its result; the last one acquires.
    /// - The receiver's stop callback increments, unless it is zero: then the owner is ending and waits for the
    ///   callback to release its slot. The increment keeps the owner, and so the source, alive until the stop has been
    ///   passed on.
    ///
    /// So nobody ever waits for a stop to be passed on, and no stop is passed on to a source that is gone.
    remaining: AtomicUsize,
    source: InplaceStopSource,
    slot: StopSlot<E::StopToken>,
    /// Passes the stop on, from the loop of whoever requested it: a stop that travels through nested fans does not
    /// recurse.
    job: Job,
    env: E,
    /// Ends the owner when the stop was the last to go.
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

    /// How many children there are, where `new` did not know. Called before [`Fan::open`].
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
    /// The fan is pinned. It is not gone before [`Fan::close`].
    pub(crate) unsafe fn open(this: NonNull<Self>, listen: bool) -> Transfer {
        // SAFETY: the fan is alive.
        let fan = unsafe { this.as_ref() };
        let token = fan.env.stop_token();
        let stopped = if listen {
            // SAFETY: the slot is pinned with the fan, and left in `close`. A source that the token borrows outlives the
            // receiver's completion, which comes after that.
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

    /// Asks the children to stop. Called before they start.
    pub(crate) fn stop(&self) -> Transfer {
        self.source.request_stop_later()
    }

    /// What a child sees.
    ///
    /// # Safety
    ///
    /// It is used only while that child has not completed.
    #[inline]
    pub(crate) unsafe fn env(&self) -> FanEnv<E> {
        // SAFETY: the source is there while a child has not completed, by the caller's promise.
        let token = unsafe { self.source.token().extend() };
        Patched::new(WithStopToken(token), self.env.clone())
    }

    /// A child has completed and left its result. Asks the others to stop, if `stop` says so, before it is counted;
    /// the last one ends the owner.
    ///
    /// # Safety
    ///
    /// The child is counted once. The owner may be gone when this returns.
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
            // SAFETY: that was the last.
            resumed.and(unsafe { end(this) })
        } else {
            resumed
        }
    }

    /// Counts one more, for a stop on its way, unless the owner is ending. It is given back by
    /// [`Fan::child_completed`].
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

    /// The countdown has reached zero: no stop will be passed on any more.
    #[inline]
    pub(crate) fn close(&self) {
        self.slot.leave();
    }

    /// The callback of the receiver's stop token.
    ///
    /// # Safety
    ///
    /// The slot is that of an open fan.
    unsafe fn stop_requested(slot: NonNull<StopSlot<E::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of a fan, whose owner waits for the slot to be released before it goes.
        let this = unsafe { container_of!(slot, Self, slot) };
        // SAFETY: as above.
        let fan = unsafe { this.as_ref() };
        let held = fan.hold();
        fan.slot.release();
        if held {
            // SAFETY: the increment keeps the fan until the job has run, which happens once.
            unsafe { Transfer::to(NonNull::new_unchecked(&raw mut (*this.as_ptr()).job)) }
        } else {
            Transfer::none()
        }
    }

    /// # Safety
    ///
    /// The job is that of a fan on which `stop_requested` counted one more.
    unsafe fn pass_on(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a fan.
        let this = unsafe { container_of!(job, Self, job) };
        // SAFETY: the increment of `stop_requested` keeps the fan, and is taken back like a child that asks for a stop.
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
