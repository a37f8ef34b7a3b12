//! The successor of a frame: the operation or the parent frame that is told when the frame is done.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::flags::Flag;
use super::{Header, Transfer};

/// The party that is told when the task is done.
#[derive(Clone, Copy)]
pub(in crate::task) struct FrameSuccessor {
    /// The parent frame, or the operation that the task was connected to.
    pub(super) whom: *mut (),
    /// Completes the operation. `None` if the successor is a frame.
    pub(super) complete: Option<Complete>,
}

type Complete = unsafe fn(NonNull<()>) -> Transfer;

impl FrameSuccessor {
    /// Creates the successor of a connected task: `complete` is called with `operation` when the task is done.
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

/// The successor as the header stores it. [`Flag::Operation`] tells the two kinds apart.
///
/// | field | of a frame with an operation | of a child |
/// |---|---|---|
/// | `whom` | the operation | the parent |
/// | `second` | its completion | the previous child in the [list](super::awaited) of the parent, or null |
///
/// `whom` and the completion are written before the frame is shared. Only the thread that polls the parent accesses the
/// link. So the thread that polls the child reads the flag instead of the word.
pub(super) struct SuccessorSlot {
    whom: Cell<*mut ()>,
    second: Cell<SecondWord>,
}

#[derive(Clone, Copy)]
union SecondWord {
    complete: Complete,
    previous: *mut Header,
}

impl SuccessorSlot {
    /// Creates the slot of a frame that was not started: no parent, in no list.
    #[inline(always)]
    pub(super) fn new() -> Self {
        SuccessorSlot {
            whom: Cell::new(ptr::null_mut()),
            second: Cell::new(SecondWord {
                previous: ptr::null_mut(),
            }),
        }
    }
}

impl Header {
    /// Sets the successor, before the frame is shared.
    #[inline]
    pub(super) fn set_successor(&self, successor: FrameSuccessor) {
        self.successor.whom.set(successor.whom);
        if let Some(complete) = successor.complete {
            self.successor.second.set(SecondWord { complete });
            self.flags.set(Flag::Operation, true);
        }
    }

    /// Returns the successor. The caller polls the frame.
    #[inline]
    pub(super) fn successor(&self) -> FrameSuccessor {
        FrameSuccessor {
            whom: self.whom(),
            complete: self
                .flags
                .has(Flag::Operation)
                // SAFETY: `set_successor` sets the flag together with the completion.
                .then(|| unsafe { self.successor.second.get().complete }),
        }
    }

    /// Returns the operation or the parent; null before the start.
    #[inline]
    pub(super) fn whom(&self) -> *mut () {
        self.successor.whom.get()
    }

    /// Returns the previous child in the list of the parent.
    ///
    /// # Safety
    ///
    /// The frame is a child, and the caller polls its parent.
    #[inline]
    pub(super) unsafe fn previous_sibling(&self) -> *mut Header {
        // SAFETY: the second word of a child is the link.
        unsafe { self.successor.second.get().previous }
    }

    /// Sets the link to the previous child.
    ///
    /// # Safety
    ///
    /// The frame is a child, and the caller polls its parent.
    #[inline]
    pub(super) unsafe fn set_previous_sibling(&self, previous: *mut Header) {
        self.successor.second.set(SecondWord { previous });
    }
}
