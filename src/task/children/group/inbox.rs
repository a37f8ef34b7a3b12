//! The children that have ended since the group was last locked: a stack without a lock.
//!
//! | head | meaning |
//! |---|---|
//! | null | no child has ended |
//! | a child | the one that ended last. Its owner is replaced by the one before it |
//! | `AWAITED` | no child has ended, and the group's frame waits for one. It counts an await, which the next child ends |
//! | `CLOSED` | children end under the lock: a waiter or a waker is to be told, the body has ended, or results are discarded |
//!
//! A child replaces all but `CLOSED` by itself, with `AcqRel`. Everything else is written under the group's lock: the
//! [drain](Inbox::drain) and the [close](Inbox::close) with `AcqRel`, [`wait`](Inbox::wait) with release. So a drain sees all that the
//! children did, and the child that ends the frame's await sees that it was counted.
//!
//! A child touches nothing of the group once it is in the inbox: the group is over when all children were drained.

use core::ptr::{self, NonNull};

use super::child::ChildFrame;
use super::state::GroupState;
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Relaxed, Release},
};

const AWAITED: *mut ChildFrame = ptr::without_provenance_mut(1);
const CLOSED: *mut ChildFrame = ptr::without_provenance_mut(2);

pub(super) struct Inbox(AtomicPtr<ChildFrame>);

/// The result of [`Inbox::push`].
pub(super) enum Pushed {
    /// The group owns the child.
    Kept,
    /// The group owns the child, and the caller ends the await of the group's frame.
    Awaited,
    /// The child is to be ended under the lock.
    Refused,
}

impl Inbox {
    pub(super) fn new(is_closed: bool) -> Self {
        Inbox(AtomicPtr::new(if is_closed { CLOSED } else { ptr::null_mut() }))
    }

    /// Adds an ended child.
    ///
    /// # Safety
    ///
    /// The child is done, and its group counts it as running. Unless it is refused, the caller does not use it or the group
    /// afterwards.
    #[inline]
    pub(super) unsafe fn push(&self, child: NonNull<ChildFrame>) -> Pushed {
        let mut seen = self.0.load(Relaxed);
        while seen != CLOSED {
            let before = if seen == AWAITED { ptr::null_mut() } else { seen };
            // SAFETY: the child is alive until the exchange below succeeds.
            unsafe { child.as_ref().replace_before(before) };
            match self.0.compare_exchange_weak(seen, child.as_ptr(), AcqRel, Relaxed) {
                Ok(AWAITED) => return Pushed::Awaited,
                Ok(_) => return Pushed::Kept,
                Err(now) => seen = now,
            }
        }
        Pushed::Refused
    }

    /// Moves all children to the group's state, which is locked.
    #[inline]
    pub(super) fn drain(&self, lock: &mut GroupState) {
        let seen = self.0.load(Relaxed);
        if !seen.is_null() && seen != AWAITED && seen != CLOSED {
            // Only a child replaces a child, except under the lock.
            Self::keep(self.0.swap(ptr::null_mut(), AcqRel), lock);
        }
    }

    /// Drains the inbox and closes it. The state notes whether the frame waits.
    pub(super) fn close(&self, lock: &mut GroupState) {
        if self.0.load(Relaxed) != CLOSED {
            match self.0.swap(CLOSED, AcqRel) {
                AWAITED => lock.frame_waits = true,
                last => Self::keep(last, lock),
            }
        }
    }

    /// Opens the inbox, and makes the next child end an await of the frame, which the caller has counted. Returns `false` if a child
    /// has ended.
    pub(super) fn wait(&self, _: &mut GroupState) -> bool {
        let seen = self.0.load(Relaxed);
        (seen.is_null() || seen == CLOSED) && self.0.compare_exchange(seen, AWAITED, Release, Relaxed).is_ok()
    }

    /// Returns whether the frame waits.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.load(Relaxed) == AWAITED
    }

    /// Moves the children that were removed with `last` to the state, in the order in which they ended.
    fn keep(mut last: *mut ChildFrame, lock: &mut GroupState) {
        let mut first = ptr::null_mut::<ChildFrame>();
        // SAFETY: the children were removed from the inbox, so this thread owns them. They are alive, done, and listed as running.
        unsafe {
            while let Some(child) = last.as_ref() {
                let before = child.replace_before(first);
                first = last;
                last = before;
            }
            while let Some(child) = NonNull::new(first) {
                first = child.as_ref().before();
                lock.keep(child);
            }
        }
    }
}
