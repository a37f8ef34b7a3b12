//! Waking a frame, and queueing it.

use core::ptr::NonNull;

use super::aside::publish_children;
use super::ownership::free;
use super::run::resume_here;
use super::state::{Holding, Wake};
use super::{Header, Placement, Tracker, header_of};
use crate::scheduler::thread_pool::{Entry, EntryKind};
use crate::sender::current;
use crate::sync::atomic::Ordering::Relaxed;
use crate::{Job, Transfer};

/// What the owner of a frame does after it has [woken](Header::wake_for_owner) the frame.
#[must_use]
pub(in crate::task) enum WokenFrame {
    /// Nothing: the frame was busy, or is done.
    Not,
    /// It runs the transfer, or returns it to its driver.
    RunsHere(Transfer),
    /// It calls [`Header::queue_woken`].
    Waits,
}

impl Header {
    /// Queues a frame with its scheduler. It may run, and be freed, before this returns.
    ///
    /// # Safety
    ///
    /// The frame is busy and in no queue.
    #[inline]
    pub(in crate::task) unsafe fn enqueue(this: NonNull<Header>) -> Transfer {
        // SAFETY: a busy frame has a valid context. In no queue, it is the calling thread's alone.
        unsafe {
            let aside = match header_of(this).child.get().is_null() {
                true => Transfer::none(),
                // A queued frame uses `child` as a link, so its children run by themselves.
                false => publish_children(this),
            };
            aside.and(Header::enqueue_in(Header::placement(this), this))
        }
    }

    /// Queues a child that was spawned, or a frame that was resumed during another poll. Such frames come in large numbers, so
    /// a worker of a pool keeps them in a queue of their own. The frame may run, and be freed, before this returns.
    ///
    /// # Safety
    ///
    /// The frame is busy and in no queue.
    pub(in crate::task) unsafe fn enqueue_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: a busy frame is alive, and the calling thread owns one in no queue.
        unsafe {
            this.as_ref().entry.set_kind(EntryKind::Child);
            Header::enqueue(this)
        }
    }

    /// Queues the first frame of a strand, whose level is set. It may run, and be freed, before this returns.
    ///
    /// # Safety
    ///
    /// [`Tracker::queue_first`] or [`Tracker::queue_by_owner`] was called for the frame, which is in no queue and has set no children aside.
    /// The thread has run no code of a user since, and waited for nothing: another one may wait until the frame is queued, to raise it.
    #[inline]
    pub(in crate::task) unsafe fn enqueue_first(this: NonNull<Header>, kind: EntryKind) -> Transfer {
        // SAFETY: a frame that has begun has a valid context. The caller owns it in no queue, and its first field is the entry.
        unsafe {
            this.as_ref().entry.set_kind(kind);
            let home = Header::placement(this).as_ref().home;
            Header::tracker(this).as_ref().activity.is_queued();
            home.enqueue(this.cast::<Entry>())
        }
    }

    /// Queues a frame at its placement, which may be freed before this returns. Not inlined: most woken frames continue where
    /// they are.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Header::enqueue). The frame has set no children aside.
    #[inline(never)]
    pub(super) unsafe fn enqueue_in(placement: NonNull<Placement>, this: NonNull<Header>) -> Transfer {
        // SAFETY: a busy frame has a valid context. The caller owns the frame, whose first field is the entry.
        unsafe {
            let Placement { home, priority, .. } = *placement.as_ptr();
            Header::tracker(this).as_ref().activity.is_queued();
            Header::tell_resumed(this);
            Tracker::queue(this, priority);
            home.enqueue(this.cast::<Entry>())
        }
    }

    /// Returns whether there is an instrument: code of a user that is told of each frame before that is queued.
    #[inline(always)]
    pub(in crate::task) fn is_observed() -> bool {
        #[cfg(feature = "inspect")]
        return super::PollHooks::get().is_some();
        #[cfg(not(feature = "inspect"))]
        false
    }

    /// Tells the instrument, if there is one, that the frame is about to be queued. The frame is not marked as coming yet: the
    /// instrument may raise it.
    ///
    /// # Safety
    ///
    /// The frame is busy and in no queue.
    #[inline(always)]
    pub(in crate::task) unsafe fn tell_resumed(this: NonNull<Header>) {
        #[cfg(feature = "inspect")]
        if let Some(hooks) = super::PollHooks::get() {
            // SAFETY: a busy frame is not done, so its strand has not ended.
            unsafe { (hooks.resumed)(Header::tracker(this)) };
        }
        #[cfg(not(feature = "inspect"))]
        let _ = this;
    }

    /// Wakes the frame, to run here if `here` says so, and releases what the caller holds. The frame may be freed then.
    ///
    /// # Safety
    ///
    /// The caller holds `held`, or something else that keeps the frame alive.
    #[inline]
    pub(super) unsafe fn wake(this: NonNull<Header>, held: Holding, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        // SAFETY: the caller's promise, which keeps the header alive.
        unsafe { Header::woken(this, this.as_ref().state.wake(held), here) }
    }

    /// Wakes the first frame of a strand, but leaves it to the caller, which is its owner, to resume the frame. `observed` says whether it
    /// [is](Header::is_observed).
    ///
    /// # Safety
    ///
    /// The caller holds the lock that keeps the frame alive, and under which it raises the frame. It releases the lock, and does what the
    /// result says.
    #[inline]
    pub(in crate::task) unsafe fn wake_for_owner(this: NonNull<Header>, observed: bool) -> WokenFrame {
        // SAFETY: the caller's promise. A frame that this call made busy is in no queue and has a valid context.
        unsafe {
            if this.as_ref().state.wake(Holding::Nothing) != Wake::Enqueue {
                return WokenFrame::Not;
            }
            let placement = Header::placement(this).as_ref();
            if placement.is_here() && (current::may_poll() || !placement.home.has_queue()) {
                return WokenFrame::RunsHere(Transfer::to(this.cast::<Job>()));
            }
            if !observed {
                Tracker::queue_by_owner(this);
            }
            WokenFrame::Waits
        }
    }

    /// Queues a frame after [`wake_for_owner`](Header::wake_for_owner). It may run, and be freed, before this returns.
    ///
    /// # Safety
    ///
    /// That has returned [`WokenFrame::Waits`], and this is the one call for it. `observed` is what was passed there. Unless it is set, the
    /// thread has run no code of a user since, and waited for nothing.
    pub(in crate::task) unsafe fn queue_woken(this: NonNull<Header>, observed: bool) -> Transfer {
        // SAFETY: the caller's promise: a busy frame has a valid context. An idle one has set no children aside.
        unsafe {
            let placement = Header::placement(this);
            // A frame that was resumed during another poll: see `enqueue_child`.
            let kind = match placement.as_ref().is_here() {
                true => EntryKind::Child,
                false => EntryKind::Plain,
            };
            if observed {
                this.as_ref().entry.set_kind(kind);
                return Header::enqueue_in(placement, this);
            }
            Header::enqueue_first(this, kind)
        }
    }

    /// Does what follows from a wake.
    ///
    /// # Safety
    ///
    /// The caller had this outcome, and has done nothing about it.
    #[inline]
    unsafe fn woken(this: NonNull<Header>, wake: Wake, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        match wake {
            Wake::Noted | Wake::Moved => Transfer::none(),
            Wake::Enqueue => {
                // SAFETY: this call made the frame busy, so it is in no queue and not done. Its context is valid.
                unsafe {
                    let placement = Header::placement(this);
                    if here(placement.as_ref()) {
                        resume_here(this)
                    } else {
                        Header::enqueue_in(placement, this)
                    }
                }
            }
            Wake::Free => {
                // SAFETY: `Free` says that this was the last reference.
                unsafe { free(this) };
                Transfer::none()
            }
        }
    }

    /// Wakes the frame for an await that has ended.
    ///
    /// # Safety
    ///
    /// The frame counts the caller as an await.
    pub(in crate::task) unsafe fn end_wait(this: NonNull<Header>, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        // SAFETY: the caller holds that await.
        unsafe { Header::wake(this, Holding::Await, here) }
    }

    /// Wakes the frame for the await `key` that has ended, and the waker under which its future was polled last.
    ///
    /// # Safety
    ///
    /// The frame counts the caller as an await.
    #[inline]
    pub(in crate::task) unsafe fn end_await(
        this: NonNull<Header>,
        key: NonNull<()>,
        here: impl FnOnce(&Placement) -> bool,
    ) -> Transfer {
        // SAFETY: the caller holds that await, so the frame is not done.
        unsafe {
            let state = &this.as_ref().state;
            let mut wake = state.wake(Holding::MovableAwait);
            if wake == Wake::Moved {
                Header::wake_moved(this, key);
                wake = state.wake(Holding::Await);
            }
            Header::woken(this, wake, here)
        }
    }

    /// Wakes the frame for one of `spawned` children, which has ended. The frame runs after those that are still queued where that
    /// child ran.
    ///
    /// # Safety
    ///
    /// The frame counts the caller as an await.
    pub(in crate::task) unsafe fn end_wait_for_child(this: NonNull<Header>, spawned: u8) -> Transfer {
        // SAFETY: the caller holds that await. The closure runs on the thread that made the frame busy, which owns the
        // entry.
        unsafe {
            Header::end_wait(this, |_| {
                this.as_ref().entry.set_parent_of(spawned);
                false
            })
        }
    }

    /// Wakes the frame, as its waker does, for an await that continues.
    ///
    /// # Safety
    ///
    /// The frame counts the caller as an await.
    pub(in crate::task) unsafe fn poll_again(this: NonNull<Header>) -> Transfer {
        // SAFETY: the frame is not done before that await has ended.
        unsafe { Header::wake(this, Holding::Nothing, |_| false) }
    }

    /// Makes the frame drop its future instead of polling it again. A wake follows, or the end of the poll.
    ///
    /// # Safety
    ///
    /// The frame is not done, or the caller holds a reference.
    pub(in crate::task) unsafe fn stop(this: NonNull<Header>) {
        // SAFETY: that keeps the frame alive.
        unsafe { this.as_ref() }.stopped.store(true, Relaxed);
    }

    #[inline]
    pub(in crate::task) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}
