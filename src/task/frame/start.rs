//! Starting a frame.

use core::ptr::{self, NonNull};

use super::vtable::Adopt;
use super::{FrameSuccessor, Header, Placement, Tracker};
use crate::{Job, Panic, Transfer};

impl Header {
    /// Makes a frame ready for its first poll, and returns the job for it.
    ///
    /// # Safety
    ///
    /// The frame was not started. The placement is the first field of a context, and the tracker that of a unit. Both are valid
    /// until the frame is done. Later layers call `Header::begin`, which asks for those types.
    pub(in crate::task) unsafe fn begin_in(
        this: NonNull<Header>,
        placement: NonNull<Placement>,
        tracker: NonNull<Tracker>,
        successor: FrameSuccessor,
    ) -> Transfer {
        // SAFETY: no other thread knows the frame yet.
        let header = unsafe { this.as_ref() };
        header.tracker.set(tracker.as_ptr());
        // SAFETY: the caller's promise.
        unsafe { placement.as_ref() }.enter();
        let placement = match header.vtable.adopt {
            // SAFETY: the caller's promise.
            Some(adopt) => unsafe { Header::adopt(this, placement, adopt) },
            None => placement,
        };
        header.placement.set(placement.as_ptr());
        header.set_successor(successor);
        header.state.begin();
        // SAFETY: the frame stays until it is done, which it is not before it was polled.
        unsafe { Transfer::to(this.cast::<Job>()) }
    }

    /// Takes that back: the frame is not started after all.
    ///
    /// # Safety
    ///
    /// It has begun, and was not polled.
    pub(in crate::task) unsafe fn unbegin(this: NonNull<Header>) {
        // SAFETY: no other thread knows the frame.
        unsafe {
            Header::placement(this).as_ref().exit();
            this.as_ref().placement.set(ptr::null());
            this.as_ref().tracker.set(ptr::null());
        }
    }

    /// Out of the way of the frames that have no context of their own.
    ///
    /// # Safety
    ///
    /// As for [`begin_in`](Header::begin_in).
    #[cold]
    pub(super) unsafe fn adopt(
        this: NonNull<Header>,
        placement: NonNull<Placement>,
        adopt: Adopt,
    ) -> NonNull<Placement> {
        // SAFETY: the caller's promise.
        unsafe { adopt(this, placement) }
    }

    /// Makes a task end with a panic before it has begun.
    ///
    /// # Safety
    ///
    /// It was not started, and is next.
    #[cold]
    pub(in crate::task) unsafe fn fail(this: NonNull<Header>, payload: Panic) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.fail)(this, payload) };
    }
}
