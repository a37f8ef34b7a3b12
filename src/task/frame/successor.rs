//! What is told that a frame is done: the operation that it was connected to, or the frame that awaits it.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::flags::Flag;
use super::{Header, Transfer};

/// Who learns that the task is done.
#[derive(Clone, Copy)]
pub(in crate::task) struct FrameSuccessor {
    /// The frame that awaits it; or the operation that it was connected to.
    pub(super) whom: *mut (),
    /// What the operation does then. None for a frame.
    pub(super) complete: Option<Complete>,
}

type Complete = unsafe fn(NonNull<()>) -> Transfer;

impl FrameSuccessor {
    /// `complete` is called with `operation` when the task is done.
    pub(in crate::task) fn operation(operation: NonNull<()>, complete: Complete) -> Self {
        FrameSuccessor {
            whom: operation.as_ptr(),
            complete: Some(complete),
        }
    }

    pub(super) fn parent(parent: NonNull<Header>) -> Self {
        FrameSuccessor {
            whom: parent.as_ptr().cast(),
            complete: None,
        }
    }
}

/// The successor, as it is in the header. [`Flag::Operation`] says which of the two it is.
///
/// | field | of a frame with an operation | of a child |
/// |---|---|---|
/// | `whom` | the operation | the parent |
/// | `second` | its completion | the previous child in the [list](super::awaited) of the parent, or null |
///
/// `whom` and the completion are written before the frame is shared. The link belongs to the thread that polls the parent, so
/// the thread that polls the child reads the flag, and not the word.
pub(super) struct SuccessorSlot {
    whom: Cell<*mut ()>,
    second: Cell<Second>,
}

#[derive(Clone, Copy)]
union Second {
    complete: Complete,
    previous: *mut Header,
}

impl SuccessorSlot {
    /// Of a frame that was not started: a child without a parent, in no list.
    #[inline(always)]
    pub(super) fn new() -> Self {
        SuccessorSlot {
            whom: Cell::new(ptr::null_mut()),
            second: Cell::new(Second {
                previous: ptr::null_mut(),
            }),
        }
    }
}

impl Header {
    /// Says what is told that the frame is done. No other thread knows the frame yet.
    #[inline]
    pub(super) fn set_successor(&self, successor: FrameSuccessor) {
        self.successor.whom.set(successor.whom);
        if let Some(complete) = successor.complete {
            self.successor.second.set(Second { complete });
            self.flags.set(Flag::Operation, true);
        }
    }

    /// What is told that the frame is done. The caller polls the frame.
    #[inline]
    pub(super) fn successor(&self) -> FrameSuccessor {
        FrameSuccessor {
            whom: self.whom(),
            complete: self
                .flags
                .has(Flag::Operation)
                // SAFETY: the flag says that the word is the completion.
                .then(|| unsafe { self.successor.second.get().complete }),
        }
    }

    /// The operation, or the parent; null before the start.
    #[inline]
    pub(super) fn whom(&self) -> *mut () {
        self.successor.whom.get()
    }

    /// The previous child in the list of the parent.
    ///
    /// # Safety
    ///
    /// The frame is a child, and the caller polls its parent.
    #[inline]
    pub(super) unsafe fn previous_sibling(&self) -> *mut Header {
        // SAFETY: the word of a child is the link.
        unsafe { self.successor.second.get().previous }
    }

    /// # Safety
    ///
    /// As for [`previous_sibling`](Header::previous_sibling).
    #[inline]
    pub(super) unsafe fn set_previous_sibling(&self, previous: *mut Header) {
        self.successor.second.set(Second { previous });
    }
}
