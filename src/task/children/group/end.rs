//! The end of a group: its body ends, then its last child, and its link to the task.

use core::ptr::NonNull;

use super::core::{GroupCore, GroupRef};
use super::state::GroupPhase;
use crate::Transfer;
use crate::memory::Shareable;
use crate::sender::stage::container_of;
use crate::stop::{Relay, Why};
use crate::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use crate::task::frame::{Header, Placement, Polling};
use crate::task::strand::{Tether, Tethered};

impl GroupCore {
    /// Returns the frame of the group.
    ///
    /// # Panics
    ///
    /// If the group has a frame that this thread does not poll.
    pub(super) fn own<'p>(&self, polling: Option<Polling<'p>>) -> Option<Polling<'p>> {
        let own = polling.filter(|polling| self.is_frame(Some(polling.frame())));
        assert!(
            own.is_some() || self.frame.is_none(),
            "a group is polled in the task where it began"
        );
        own
    }

    /// Closes the group after its body. Returns `true` if all children have ended.
    pub(super) fn close(&self, polling: Option<Polling<'_>>) -> bool {
        let polling = self.own(polling);
        let mut lock = self.lock_closed_in(polling);
        if self.take_body_wait(&mut lock)
            && let Some(polling) = polling
        {
            // The body has ended, so a panic no longer ends it.
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
        // A reference for the children, and an await of the frame; the last child releases both.
        self.count.add();
        if let Some(polling) = polling {
            polling.count_wait();
        }
        // The errors of children that ended before the body. Later ones cancel in `end_child`.
        let cancels = lock.errors != 0;
        drop(lock);
        if cancels {
            self.cancel(Why::SIBLING_FAILED).run();
        }
        false
    }

    /// Returns the reason for which the group is abandoned or its child is dropped. In a task that was stopped it is that of the
    /// stop, which may not have been passed on to the group yet.
    pub(super) fn why_left(&self) -> Why {
        // The outer source is valid if the group is tied to the frame that this thread polls: then the link is not over.
        let stopped = if self.is_here() { self.outer.why() } else { None };
        stopped.map_or(Why::SCOPE_LEFT, Why::passed)
    }

    /// Stops the children, and discards their results from now on.
    fn abandon(&self, why: Why, polling: Option<Polling<'_>>) -> Transfer {
        let resumed = self.cancel(why);
        let mut lock = self.lock_closed_in(polling);
        // The result of a single child that has ended belongs to its claim.
        let finished = (self.single.is_none() || lock.running != 0).then(|| {
            lock.abandoned = true;
            lock.take_finished()
        });
        drop(lock);
        drop(finished);
        resumed
    }

    /// Closes the group, unless it `is_over` already, and ends its links to the task. The frame waits for a stop that is being passed on,
    /// since that uses the scope.
    ///
    /// # Safety
    ///
    /// The caller has cleared the tie to the frame, which is the group's. The group may be freed when this returns.
    unsafe fn unlink(this: NonNull<GroupCore>, polling: Polling<'_>, is_over: bool) {
        // SAFETY: the link holds a reference until `unlinked`.
        unsafe {
            let core = this.as_ref();
            if is_over || core.close(Some(polling)) {
                core.link.leave();
            }
            core.counted.unlink();
            // Counted first: the end of a stop that is being passed on releases it.
            polling.count_wait();
            if Relay::end_now(NonNull::from(&core.relay)) {
                polling.uncount_wait();
                GroupCore::unlinked(this);
            }
        }
    }

    /// Handles the end of a stop that was being passed on while the group was unlinked.
    ///
    /// # Safety
    ///
    /// `relay` is that of a group.
    pub(super) unsafe fn relay_over(relay: NonNull<Relay>) -> Transfer {
        // SAFETY: the link holds a reference until `unlinked`. The frame has counted an await for this, in `unlink`.
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

    /// Releases the link's use of the scope, and its reference.
    ///
    /// # Safety
    ///
    /// The link is over. Called once.
    unsafe fn unlinked(this: NonNull<GroupCore>) {
        // SAFETY: `tie` linked the group, added a reference for that, and entered the scope. The frame is not done.
        unsafe {
            if let Some(scope) = this.as_ref().scope {
                scope.as_ref().exit_passively();
            }
            Shareable::release(this);
        }
    }
}

// SAFETY: `release` drops one reference to the group.
unsafe impl Tethered for GroupCore {
    /// Abandons the group on behalf of its frame, which waits for the running children.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the tether holds a reference. The swap makes this the one party that unlinks the group.
        unsafe {
            let core = this.as_ref();
            let why = core.why_left();
            if !core.is_tied.swap(false, AcqRel) {
                return Transfer::none();
            }
            let resumed = core.abandon(why, Some(polling));
            GroupCore::unlink(this, polling, false);
            resumed
        }
    }

    unsafe fn release(this: NonNull<Self>) {
        // SAFETY: the tether owns a reference, and does not use the group afterwards. A tie that was not cleared is one that a claim
        // has loosened. Its frame is not ending, so the caller polls it.
        unsafe {
            let core = this.as_ref();
            if core.is_tied.load(Relaxed)
                && let Some(frame) = core.frame
            {
                core.is_tied.store(false, Release);
                GroupCore::unlink(this, Polling::new(frame), false);
            }
            Shareable::release(this);
        }
    }
}

impl GroupRef {
    /// Ends the group. Does nothing if the frame has ended it, or on another thread, where it stays tied to the frame. `is_over` says whether
    /// the group is known to be [over](GroupPhase::Over).
    pub(super) fn end(&self, is_over: bool) {
        Polling::with(|polling| {
            // `is_here` comes first: only the group's own frame may clear the tie.
            if let Some(polling) = polling
                && self.is_here()
                && self.is_tied.swap(false, AcqRel)
            {
                // SAFETY: this thread polls the frame. The swap cleared the tie to it, and excludes an abandoned tether.
                unsafe {
                    if let Some(tether) = self.tether.take() {
                        Tether::untie(tether);
                    }
                    GroupCore::unlink(self.as_ptr(), polling, is_over);
                }
            }
        });
    }

    /// Abandons the group, because the future of its body is dropped early.
    pub(super) fn give_up(&self) {
        let resumed = Polling::with(|polling| self.abandon(self.why_left(), polling));
        if self.frame.is_none() {
            self.close(None);
        }
        self.end(false);
        resumed.run();
    }
}
