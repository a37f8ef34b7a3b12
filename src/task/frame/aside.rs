//! Children that are set aside: busy, in no queue, and run when the poll at the bottom of the stack has returned.
//!
//! They form an intrusive ring by the links of their jobs. `child` of the parent points at the last one, whose `next` is
//! the first. Only the thread that polls the parent accesses the ring. A child with [`Flag::Ended`] has a result, which the
//! poll of its parent takes by [`Header::end_held`].

use core::ptr::{self, NonNull};

use super::finish::suspend;
use super::flags::Flag;
use super::{Header, header_of};
use crate::{Job, Transfer};

impl Header {
    /// Sets a child aside, to run when the poll is over.
    ///
    /// # Safety
    ///
    /// The caller polls this frame. The child is busy and in no queue.
    pub(super) unsafe fn set_aside(this: NonNull<Header>, child: NonNull<Header>) {
        let first = match NonNull::new(header_of(this).child.replace(child.as_ptr())) {
            Some(last) => {
                let first = header_of(last).next();
                header_of(last).set_next(child.as_ptr());
                first
            }
            None => child.as_ptr(),
        };
        header_of(child).set_next(first);
    }

    /// Returns the next frame of the ring.
    pub(super) fn next(&self) -> *mut Header {
        self.entry.job().next().cast()
    }

    pub(super) fn set_next(&self, sibling: *mut Header) {
        self.entry.job().set_next(sibling.cast());
    }

    /// Removes the first of the children that were set aside.
    #[inline]
    pub(super) fn take_child(&self) -> Option<NonNull<Header>> {
        let last = NonNull::new(self.child.get())?;
        let first = header_of(last).next();
        if first == last.as_ptr() {
            self.child.set(ptr::null_mut());
        } else {
            header_of(last).set_next(header_of(NonNull::new(first)?).next());
        }
        NonNull::new(first)
    }

    /// Removes a child from the ring. Returns `false` if it was not set aside.
    ///
    /// # Safety
    ///
    /// The caller polls the parent.
    pub(super) unsafe fn recall(parent: NonNull<Header>, child: NonNull<Header>) -> bool {
        let parent = header_of(parent);
        let Some(last) = NonNull::new(parent.child.get()) else {
            return false;
        };
        // The ring is singly linked, so the predecessor is searched for.
        let mut before = last;
        loop {
            let at = header_of(before).next();
            if at == child.as_ptr() {
                break;
            }
            match NonNull::new(at) {
                Some(at) if at != last => before = at,
                _ => return false,
            }
        }
        if before == child {
            parent.child.set(ptr::null_mut());
        } else {
            header_of(before).set_next(header_of(child).next());
            if last == child {
                parent.child.set(before.as_ptr());
            }
        }
        true
    }
}

/// Returns the children that the polls on this stack have set aside, because the thread is about to block.
///
/// # Safety
///
/// The calling thread polls the frame.
pub(super) unsafe fn publish(frame: *const ()) -> Transfer {
    let mut resumed = Transfer::none();
    let mut at = NonNull::new(frame.cast::<Header>().cast_mut());
    while let Some(frame) = at {
        let header = header_of(frame);
        // SAFETY: this thread polls the frame, and those that it is nested in.
        resumed.append(unsafe { publish_children(frame) });
        at = match header.nested.get() {
            0 => None,
            _ => NonNull::new(header.whom.get().cast()),
        };
    }
    resumed
}

/// Returns the jobs of the children that a frame has set aside.
///
/// # Safety
///
/// The calling thread polls the frame, or holds it.
#[cold]
pub(super) unsafe fn publish_children(frame: NonNull<Header>) -> Transfer {
    let mut resumed = Transfer::none();
    while let Some(child) = header_of(frame).take_child() {
        // SAFETY: the caller polls or holds the frame, and took the child out of the ring.
        resumed.append(unsafe { publish_child(frame, child) });
    }
    resumed
}

/// Returns the job of a child that was set aside, and that its parent does not wait for by itself.
///
/// # Safety
///
/// The calling thread polls or holds the parent. The child was in its ring until now.
pub(super) unsafe fn publish_child(parent: NonNull<Header>, child: NonNull<Header>) -> Transfer {
    // SAFETY: a child that was set aside is busy and in no queue. Its parent counts it until it ends.
    unsafe {
        Header::tie(parent, child);
        if !header_of(child).flags.replace(Flag::Polled, false) {
            return Transfer::to(child.cast::<Job>());
        }
        // The child was polled already, and waits for children that it has set aside itself.
        publish_children(child).and(suspend(child))
    }
}
