//! Children that are set aside: busy, in no queue, and run when the poll at the bottom of the stack has returned.
//!
//! They form a ring by the links of their jobs. `child` of the parent points at the last of them, whose `next` is the first. The ring
//! belongs to the thread that polls the parent.

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
    /// The caller is what this frame's poll is running. The child is busy, and in no queue.
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

    /// The sibling that is to run after this one, or the first.
    pub(super) fn next(&self) -> *mut Header {
        self.entry.job().next().cast()
    }

    pub(super) fn set_next(&self, sibling: *mut Header) {
        self.entry.job().set_next(sibling.cast());
    }

    /// Takes the first of the children that were set aside.
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

    /// Takes a child out of those that were set aside. `false` where it is not one of them: it runs, or has run.
    ///
    /// # Safety
    ///
    /// The caller is what the parent's poll is running.
    pub(super) unsafe fn recall(parent: NonNull<Header>, child: NonNull<Header>) -> bool {
        let parent = header_of(parent);
        let Some(last) = NonNull::new(parent.child.get()) else {
            return false;
        };
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

/// Hands over the children that polls on this stack have set aside: the thread is about to block.
///
/// # Safety
///
/// The frame is the one that this thread polls.
pub(super) unsafe fn publish(frame: *const ()) -> Transfer {
    let mut resumed = Transfer::none();
    let mut at = NonNull::new(frame.cast::<Header>().cast_mut());
    while let Some(frame) = at {
        let header = header_of(frame);
        // SAFETY: the frame is polled by this thread, and so are those that it is nested in.
        resumed.append(unsafe { publish_children(frame) });
        at = match header.nested.get() {
            0 => None,
            _ => NonNull::new(header.whom().cast()),
        };
    }
    resumed
}

/// # Safety
///
/// The calling thread polls the frame, or holds it.
#[cold]
pub(super) unsafe fn publish_children(frame: NonNull<Header>) -> Transfer {
    let mut resumed = Transfer::none();
    while let Some(child) = header_of(frame).take_child() {
        // SAFETY: it is busy, and in no queue. Its parent counts it, and learns of its end.
        unsafe {
            if header_of(child).flags.replace(Flag::Polled, false) {
                // It waits for children of its own, which are set aside as well.
                resumed.append(publish_children(child));
                resumed.append(suspend(child));
            } else {
                resumed.append(Transfer::to(child.cast::<Job>()));
            }
        }
    }
    resumed
}
