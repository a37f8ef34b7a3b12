//! Starting a frame, and its successor: the operation or the parent frame that is told when the frame is done.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::flags::Flag;
use super::{Header, Placement, Tracker, header_of};
use crate::{Panic, Transfer};

/// The party that is told when the task is done.
#[derive(Clone, Copy)]
pub(in crate::task) struct FrameSuccessor {
    /// The parent frame, the operation that the task was connected to, or the owner of a spawned child.
    pub(super) whom: *mut (),
    /// Completes the operation. `None` if the successor is a frame. That of a spawned child is in the vtable of its frame.
    pub(super) complete: Option<Complete>,
}

pub(in crate::task) type Complete = unsafe fn(NonNull<()>) -> Transfer;

impl FrameSuccessor {
    /// Creates the successor of a connected task: `complete` is called with `operation` when the task is done.
    pub(in crate::task) fn operation(operation: NonNull<()>, complete: Complete) -> Self {
        FrameSuccessor {
            whom: operation.as_ptr(),
            complete: Some(complete),
        }
    }

    /// Creates the successor of a spawned child: the function in the vtable is called with its frame when it is done.
    pub(in crate::task) fn owner(owner: NonNull<()>) -> Self {
        FrameSuccessor {
            whom: owner.as_ptr(),
            complete: None,
        }
    }

    pub(super) fn parent(parent: NonNull<Header>) -> Self {
        FrameSuccessor {
            whom: parent.as_ptr().cast(),
            complete: None,
        }
    }
}

/// The second word of a successor in the header; [`Flag::Operation`] tells whether it is a completion. The first word, `whom`,
/// is the operation, the parent, or the owner of a spawned child.
///
/// `whom` and the completion are written before the frame is shared. Only the thread that polls the parent accesses the
/// link. So the thread that polls the child reads the flag instead of the word.
///
/// A spawned child has its completion in its vtable. The two links, `previous` and [`next_sibling`](Header::next_sibling), are in
/// the lists of its owner, whose lock protects them. From its end on `whom` belongs to the owner as well.
#[derive(Clone, Copy)]
pub(super) union SecondWord {
    complete: Complete,
    /// The previous child in the [list](super::awaited) of the parent, or in that of the owner; or null.
    pub(super) previous: *mut Header,
}

impl Header {
    /// Prepares a frame for its first poll, and makes it busy.
    ///
    /// # Safety
    ///
    /// The frame was not started. The placement is the first field of a context, the tracker that of a unit. Both are valid
    /// until the frame is done. `Header::begin` of a later layer checks those types.
    #[inline(always)]
    pub(in crate::task) unsafe fn begin_in(
        this: NonNull<Header>,
        placement: NonNull<Placement>,
        tracker: NonNull<Tracker>,
        successor: FrameSuccessor,
    ) {
        // SAFETY: a frame that was not started is not shared.
        let header = unsafe { this.as_ref() };
        // SAFETY: the frame was not started. The rest is the caller's promise.
        unsafe { Header::set_tracker(this, tracker.as_ptr()) };
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
            Header::set_tracker(this, ptr::null());
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
    /// Sets the successor, before the frame is shared.
    #[inline]
    pub(super) fn set_successor(&self, successor: FrameSuccessor) {
        self.whom.set(successor.whom);
        if let Some(complete) = successor.complete {
            self.second.set(SecondWord { complete });
            self.flags.set(Flag::Operation, true);
        }
    }

    /// Returns the operation and its completion, the parent alone, or the frame itself and the completion of a spawned child.
    ///
    /// # Safety
    ///
    /// The caller polls the frame.
    #[inline]
    pub(super) unsafe fn successor(this: NonNull<Header>) -> FrameSuccessor {
        let header = header_of(this);
        if let Some(complete) = header.vtable.complete {
            return FrameSuccessor {
                whom: this.as_ptr().cast(),
                complete: Some(complete),
            };
        }
        FrameSuccessor {
            whom: header.whom.get(),
            complete: header
                .flags
                .has(Flag::Operation)
                // SAFETY: `set_successor` sets the flag together with the completion.
                .then(|| unsafe { header.second.get().complete }),
        }
    }

    /// Returns the owner of a spawned child, or what the owner has replaced it with.
    ///
    /// # Safety
    ///
    /// The frame is that of a spawned child, alive, and has begun. After its end the caller is the owner.
    #[inline]
    pub(in crate::task) unsafe fn owner(&self) -> *mut () {
        self.whom.get()
    }

    /// Replaces the owner of a spawned child that has ended.
    ///
    /// # Safety
    ///
    /// As for [`owner`](Header::owner); the caller is the owner.
    #[inline]
    pub(in crate::task) unsafe fn replace_owner(&self, owner: *mut ()) -> *mut () {
        self.whom.replace(owner)
    }

    /// Returns the links of a spawned child in the lists of its owner: the next child, and the previous one.
    ///
    /// # Safety
    ///
    /// The frame is that of a spawned child, which has begun. The caller is the owner.
    #[inline]
    pub(in crate::task) unsafe fn siblings(&self) -> (&Cell<*mut Header>, *mut Header) {
        // SAFETY: the second word of a spawned child is the link.
        (&self.next_sibling, unsafe { self.second.get().previous })
    }

    /// Returns the previous child in the list of the parent.
    ///
    /// # Safety
    ///
    /// The frame is a child, and the caller polls its parent.
    #[inline]
    pub(super) unsafe fn previous_sibling(&self) -> *mut Header {
        // SAFETY: the second word of a child is the link.
        unsafe { self.second.get().previous }
    }

    /// Sets the link to the previous child.
    ///
    /// # Safety
    ///
    /// The frame is a child, and the caller polls its parent, or is the owner of a spawned child.
    #[inline]
    pub(in crate::task) unsafe fn set_previous_sibling(&self, previous: *mut Header) {
        self.second.set(SecondWord { previous });
    }
}
