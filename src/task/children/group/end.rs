//! The end of a group: its body ends, then its last child, and its link to the task.

use core::mem;
use core::ptr::NonNull;
use core::task::Waker;

use super::core::{GroupCore, GroupRef};
use super::policy::Failure;
use super::results::release_all;
use super::state::GroupPhase;
use crate::Transfer;
use crate::sender::stage::container_of;
use crate::stop::{Relay, Why};
use crate::sync::atomic::Ordering::AcqRel;
use crate::task::frame::{Header, Placement, Polling};
use crate::task::strand::{Tether, Tethered};

impl GroupCore {
    /// The frame of the group.
    ///
    /// # Panics
    ///
    /// It has one, and that is not polled here.
    pub(super) fn own<'p>(&self, polling: Option<Polling<'p>>) -> Option<Polling<'p>> {
        let own = polling.filter(|polling| self.is_frame(Some(polling.frame())));
        assert!(
            own.is_some() || self.frame.is_none(),
            "a group is polled in the task where it began"
        );
        own
    }

    /// The body has ended. `true` where all children have. `polling` is the frame of the group, if it has one.
    pub(super) fn close(&self, polling: Option<Polling<'_>>) -> bool {
        let polling = self.own(polling);
        let mut lock = self.lock();
        if mem::take(&mut lock.body_waits)
            && let Some(polling) = polling
        {
            // The body is over, and not to be ended any more.
            // SAFETY: the await was counted for the body.
            unsafe { polling.uncount_wait() };
        }
        match lock.phase {
            GroupPhase::Over => return true,
            GroupPhase::Closed => return false,
            GroupPhase::Open if lock.running == 0 => {
                lock.phase = GroupPhase::Over;
                return true;
            }
            GroupPhase::Open => lock.phase = GroupPhase::Closed,
        }
        // One for the children, and an await of the frame; the last child gives both back.
        self.count.add();
        if let Some(polling) = polling {
            polling.count_wait();
        }
        let cancels = lock.errors != 0 && Failure::Error.cancels(lock.phase);
        drop(lock);
        if cancels {
            self.cancel(Why::SIBLING_FAILED).run();
        }
        false
    }

    /// Whether the body and all children have ended. If not, the waker is told when they have.
    pub(super) fn is_over(&self, waker: Option<&Waker>) -> bool {
        // It is the user's, and so cloned and dropped while the lock is not held.
        let mut waker = waker.cloned();
        let mut lock = self.lock();
        if lock.phase != GroupPhase::Over {
            lock.add_waker(&mut waker);
        }
        lock.phase == GroupPhase::Over
    }

    /// Stops the children, and drops what they gave and will give. Nobody is told of them any more.
    pub(super) fn abandon(&self) -> Transfer {
        let resumed = self.cancel(Why::SCOPE_LEFT);
        let mut lock = self.lock();
        lock.abandoned = true;
        let finished = lock.take_finished();
        drop(lock);
        release_all(finished);
        resumed
    }

    /// Ends the link to the token of the task. The frame waits for a stop that is being passed on: that uses the scope.
    ///
    /// # Safety
    ///
    /// It was tied, and is not any more: the caller has cleared that. The frame is the group's. The group may be gone when this
    /// returns.
    unsafe fn unlink(this: NonNull<GroupCore>, polling: Polling<'_>) {
        // SAFETY: the link has a count until it is over. What was tied has a frame.
        unsafe {
            let core = this.as_ref();
            core.counted.unlink(core.unit);
            // Before the stop that is being passed on may be over, which takes it back.
            polling.count_wait();
            if Relay::end_now(NonNull::new_unchecked(&raw mut (*this.as_ptr()).relay)) {
                polling.uncount_wait();
                GroupCore::unlinked(this);
            }
        }
    }

    /// A stop was passed on, while the group was unlinked.
    ///
    /// # Safety
    ///
    /// The relay is that of a group.
    pub(super) unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the link has a count until it is over. The frame has counted an await for this, in `unlink`.
        unsafe {
            let this = container_of!(relay, GroupCore, relay);
            let frame = this.as_ref().frame;
            GroupCore::unlinked(this);
            match frame {
                Some(frame) => Header::end_wait(frame, Placement::is_here),
                None => Transfer::none(),
            }
        }
    }

    /// Gives up what the link has: its use of the scope, and its count.
    ///
    /// # Safety
    ///
    /// The link is over. This is called once.
    unsafe fn unlinked(this: NonNull<GroupCore>) {
        // SAFETY: the caller's promise. The frame that the scope is in is not done.
        unsafe {
            if let Some(scope) = this.as_ref().scope {
                scope.as_ref().exit();
            }
            GroupCore::release(this);
        }
    }
}

// SAFETY: the reference is one of the group's count.
unsafe impl Tethered for GroupCore {
    /// Gives the group up on behalf of its frame, which waits for what still runs.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the tether has a count. The frame has not ended.
        unsafe {
            let core = this.as_ref();
            if !core.is_tied.swap(false, AcqRel) {
                return Transfer::none();
            }
            let resumed = core.abandon();
            if core.close(Some(polling)) {
                core.link.leave();
            }
            GroupCore::unlink(this, polling);
            resumed
        }
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { GroupCore::release(this) };
    }
}

impl GroupRef {
    /// Unties the group from its frame, and calls `body` with that. Not where the frame has ended the group, or where another thread
    /// polls it.
    fn untie(&self, body: impl FnOnce(Polling<'_>)) {
        Polling::with(|polling| {
            // The order matters: the frame may be gone, and another at its address, once it has ended the group.
            if let Some(polling) = polling
                && self.is_here()
                && self.is_tied.swap(false, AcqRel)
            {
                if let Some(tether) = self.tether.take() {
                    // SAFETY: this is what the frame's poll is running.
                    unsafe { Tether::untie(tether) };
                }
                body(polling);
                // SAFETY: it was tied, to this frame, and this has a count.
                unsafe { GroupCore::unlink(self.0, polling) };
            }
        });
    }

    /// The group has come to its end.
    pub(super) fn end(&self) {
        self.untie(|_| self.link.leave());
    }

    /// The future that runs the body is dropped before its end.
    pub(super) fn give_up(&self) {
        let resumed = self.abandon();
        if !self.has_frame() {
            self.close(None);
        }
        // Elsewhere it stays tied, and the frame ends it.
        self.untie(|polling| {
            if self.close(Some(polling)) {
                self.link.leave();
            }
        });
        resumed.run();
    }
}
