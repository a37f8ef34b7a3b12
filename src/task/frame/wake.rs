//! Waking a frame, and queueing it.

use core::ptr::NonNull;

use super::aside::publish_children;
use super::ownership::free;
use super::run::resume_here;
use super::state::{Holding, Wake};
use super::{Header, Placement, header_of};
use crate::Transfer;
use crate::scheduler::thread_pool::EntryKind;
use crate::sync::atomic::Ordering::Relaxed;

impl Header {
    /// Queues a frame with its scheduler. It may run, and be gone, before this returns.
    ///
    /// # Safety
    ///
    /// It is busy, and in no queue.
    #[inline]
    pub(in crate::task) unsafe fn enqueue(this: NonNull<Header>) -> Transfer {
        // SAFETY: it is busy, so its context is valid, and the caller polls it or has it to itself.
        unsafe {
            let aside = match header_of(this).child.get().is_null() {
                true => Transfer::none(),
                // They run by themselves: a frame that is queued has none.
                false => publish_children(this),
            };
            aside.and(Placement::enqueue(Header::placement(this), this))
        }
    }

    /// Queues a child that was spawned. It may run, and be gone, before this returns.
    ///
    /// # Safety
    ///
    /// It has begun, and is in no queue.
    pub(in crate::task) unsafe fn enqueue_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: the caller's promise.
        unsafe {
            this.as_ref().entry.set_kind(EntryKind::Child);
            Header::enqueue(this)
        }
    }

    /// Queues a frame with the scheduler of its context. Out of the way of those that go on where they are.
    ///
    /// # Safety
    ///
    /// As for [`enqueue`](Header::enqueue). It has set no children aside.
    #[inline(never)]
    pub(super) unsafe fn enqueue_in(placement: NonNull<Placement>, this: NonNull<Header>) -> Transfer {
        // SAFETY: the caller's promise.
        unsafe { Placement::enqueue(placement, this) }
    }

    /// Wakes the frame, and gives up what the caller holds. The frame may be gone when this returns.
    ///
    /// # Safety
    ///
    /// The caller holds that, or something else that keeps the frame from being freed.
    #[inline]
    pub(super) unsafe fn wake(this: NonNull<Header>, held: Holding, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        // SAFETY: by the caller's promise the header is alive.
        match unsafe { this.as_ref() }.state.wake(held) {
            Wake::Noted => Transfer::none(),
            Wake::Enqueue => {
                // SAFETY: this call made it busy, so it is not done before it runs, and its context is valid. It is in no
                // queue.
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
                // SAFETY: that was the last reference.
                unsafe { free(this) };
                Transfer::none()
            }
        }
    }

    /// Wakes the frame for an await that is over. `here` says whether this is a place where it may run.
    ///
    /// # Safety
    ///
    /// The caller is that await, and counted as one.
    pub(in crate::task) unsafe fn end_wait(this: NonNull<Header>, here: impl FnOnce(&Placement) -> bool) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { Header::wake(this, Holding::Await, here) }
    }

    /// Wakes the frame for a child that has ended: it goes on when the children are through that were spawned after that.
    ///
    /// # Safety
    ///
    /// The caller is an await of the frame, and counted as one.
    pub(in crate::task) unsafe fn end_wait_for_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: by the caller's promise. The thread that made it busy has the entry to itself.
        unsafe {
            Header::end_wait(this, |_| {
                this.as_ref().entry.set_kind(EntryKind::Parent);
                false
            })
        }
    }

    /// Wakes the frame, as its waker does, for an await that goes on.
    ///
    /// # Safety
    ///
    /// The caller is that await.
    pub(in crate::task) unsafe fn poll_again(this: NonNull<Header>) -> Transfer {
        // SAFETY: the frame is not done before that is over.
        unsafe { Header::wake(this, Holding::Nothing, |_| false) }
    }

    /// Makes the frame drop its future instead of polling it again. A wake follows, or the end of the poll.
    ///
    /// # Safety
    ///
    /// The frame is not done, or counts the caller.
    pub(in crate::task) unsafe fn stop(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.stopped.store(true, Relaxed);
    }

    #[inline]
    pub(in crate::task) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}
