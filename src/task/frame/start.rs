//! Starting a frame.

use core::ptr::{self, NonNull};

use super::{FrameSuccessor, Header, Placement, Tracker};
use crate::{Job, Panic, Transfer};

impl Header {
    /// Prepares a frame for its first poll, and returns its job.
    ///
    /// # Safety
    ///
    /// The frame was not started. The placement is the first field of a context, the tracker that of a unit. Both are valid
    /// until the frame is done. `Header::begin` of a later layer checks those types.
    pub(in crate::task) unsafe fn begin_in(
        this: NonNull<Header>,
        placement: NonNull<Placement>,
        tracker: NonNull<Tracker>,
        successor: FrameSuccessor,
    ) -> Transfer {
        // SAFETY: a frame that was not started is not shared.
        let header = unsafe { this.as_ref() };
        header.tracker.set(tracker.as_ptr());
        // SAFETY: the caller promises a valid placement.
        unsafe { placement.as_ref() }.enter();
        let placement = match header.vtable.adopt {
            // SAFETY: the frame was not started, and the placement is valid, by the caller's promise.
            Some(adopt) => unsafe { adopt(this, placement) },
            None => placement,
        };
        header.placement.set(placement.as_ptr());
        header.set_successor(successor);
        header.state.begin();
        // SAFETY: the frame is alive until it is done, and so until this job polls it.
        unsafe { Transfer::to(this.cast::<Job>()) }
    }

    /// Undoes [`begin_in`](Header::begin_in).
    ///
    /// # Safety
    ///
    /// The frame has begun, and was not polled. No other thread knows it.
    pub(in crate::task) unsafe fn unbegin(this: NonNull<Header>) {
        // SAFETY: the frame is not shared, and not done.
        unsafe {
            Header::placement(this).as_ref().exit();
            this.as_ref().placement.set(ptr::null());
            this.as_ref().tracker.set(ptr::null());
        }
    }

    /// Makes a task end with a panic instead of its first poll.
    ///
    /// # Safety
    ///
    /// The frame was not started, and the caller starts it next.
    #[cold]
    pub(in crate::task) unsafe fn fail(this: NonNull<Header>, payload: Panic) {
        // SAFETY: a frame that was not started is not shared.
        unsafe { (this.as_ref().vtable.fail)(this, payload) };
    }
}
