//! The frames of a group's children.
//!
//! A child's frame belongs to its group from the spawn on. It is in one of two lists of the group, protected by the group's
//! lock: running, or ended. In no list it is an [`EndedChild`], which owns it.

use core::cell::Cell;
use core::convert::Infallible;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use std::boxed::Box;

use super::core::{GroupCore, GroupRef};
use super::policy::Failure;
use super::state::Settled;
use crate::Completion;
use crate::memory::{Beside, Linked, Links, List};
use crate::task::children::ChildPlace;
use crate::task::frame::Header;
use crate::task::strand::Unit;

/// The tail of a child's frame. The unit is first, so a frame's pointer to it is one to the tail.
#[repr(C)]
pub(super) struct Member {
    pub(super) unit: Unit,
    pub(super) core: NonNull<GroupCore>,
    /// The links of one of the group's lists. Protected by its lock.
    links: Links<ChildFrame>,
    /// The failure of the child. Written before the child is listed as ended.
    pub(super) failure: Cell<Failure>,
    /// The child's scheduler and context, if they differ from the group's.
    pub(super) place: Option<Box<ChildPlace>>,
}

impl Member {
    pub(super) fn new(unit: Unit, core: NonNull<GroupCore>, place: Option<Box<ChildPlace>>) -> Self {
        Member {
            unit,
            core,
            links: Links::new(),
            failure: Cell::new(Failure::None),
            place,
        }
    }
}

/// The frame of a started child, whose unit is the first field of a [`Member`].
#[repr(transparent)]
pub(super) struct ChildFrame(Header);

impl ChildFrame {
    #[inline]
    pub(super) fn member(&self) -> &Member {
        // SAFETY: the frame was started, so it has a unit, which is the first field of a member in the same allocation.
        unsafe { Header::unit(NonNull::from(&self.0)).cast::<Member>().as_ref() }
    }
}

// SAFETY: each getter reads what its setter wrote.
unsafe impl Linked for ChildFrame {
    #[inline]
    fn next(&self) -> *mut Self {
        self.member().links.next.get()
    }

    #[inline]
    fn set_next(&self, next: *mut Self) {
        self.member().links.next.set(next);
    }

    #[inline]
    fn previous(&self) -> *mut Self {
        self.member().links.previous.get()
    }

    #[inline]
    fn set_previous(&self, previous: *mut Self) {
        self.member().links.previous.set(previous);
    }
}

/// The ended children whose results were not taken, in order. It owns them.
pub(super) struct EndedChildren(List<ChildFrame, Beside<ChildFrame>>);

impl EndedChildren {
    pub(super) fn new() -> Self {
        EndedChildren(List::new())
    }

    pub(super) fn push_back(&mut self, child: EndedChild) {
        // SAFETY: the child is in no list. The list owns it from here on.
        unsafe { self.0.push_back(child.into_node()) };
    }

    pub(super) fn push_front(&mut self, child: EndedChild) {
        // SAFETY: the child is in no list. The list owns it from here on.
        unsafe { self.0.push_front(child.into_node()) };
    }

    pub(super) fn pop_front(&mut self) -> Option<EndedChild> {
        self.0.pop_front().map(EndedChild)
    }

    /// Removes the first that has panicked.
    pub(super) fn take_panicked(&mut self) -> Option<EndedChild> {
        // SAFETY: a listed child is alive.
        let panicked = |child: &NonNull<ChildFrame>| unsafe { child.as_ref() }.member().failure.get() == Failure::Panic;
        let child = self.0.iter().find(panicked)?;
        // SAFETY: the child was found in the list.
        unsafe { self.0.remove(child) };
        Some(EndedChild(child))
    }

    pub(super) fn take(&mut self) -> Self {
        EndedChildren(self.0.take())
    }
}

/// An ended child in no list. Dropping it drops its result.
pub(super) struct EndedChild(NonNull<ChildFrame>);

impl EndedChild {
    /// # Safety
    ///
    /// The child is done, in no list, and owned by the caller.
    pub(super) unsafe fn new(frame: NonNull<Header>) -> Self {
        EndedChild(frame.cast())
    }

    pub(super) fn failure(&self) -> Failure {
        // SAFETY: the child is owned, and so alive.
        unsafe { self.0.as_ref() }.member().failure.get()
    }

    fn into_node(self) -> NonNull<ChildFrame> {
        ManuallyDrop::new(self).0
    }

    /// Takes the result.
    ///
    /// # Safety
    ///
    /// `T` is the children's output. The result was not taken.
    pub(super) unsafe fn take<T>(self) -> Completion<T, Infallible> {
        // SAFETY: the child is done and owned.
        unsafe { Header::take(self.into_node().cast()) }
    }
}

impl Drop for EndedChild {
    fn drop(&mut self) {
        // SAFETY: the child is owned, and not used afterwards.
        unsafe { Header::release(self.0.cast()) };
    }
}

/// An ended child whose result was not taken. Dropping it returns it to the group.
pub(super) struct Finished {
    core: GroupRef,
    /// `None` once it was taken.
    child: Option<EndedChild>,
}

// SAFETY: the frame is done and owned; its result is `Send`.
unsafe impl Send for Finished {}

impl Finished {
    pub(super) fn new(core: GroupRef, child: EndedChild) -> Self {
        Finished {
            core,
            child: Some(child),
        }
    }

    /// Takes the result.
    ///
    /// # Safety
    ///
    /// `T` is the children's output.
    pub(super) unsafe fn take<T>(mut self) -> Completion<T, Infallible> {
        match self.child.take() {
            // SAFETY: the caller's promise.
            Some(child) => unsafe { child.take() },
            None => Completion::Stopped,
        }
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.core.put_back(child);
        }
    }
}

/// A reserved place for a child. Dropping it releases the place.
pub(super) struct Room(GroupRef);

impl Room {
    /// # Safety
    ///
    /// `GroupState::running` counts the place.
    pub(super) unsafe fn new(core: GroupRef) -> Self {
        Room(core)
    }

    /// Uses the place for a child.
    pub(super) fn fill(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the reference is moved out once, and `this` is not dropped.
        drop(unsafe { ptr::read(&raw const this.0) });
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut settled = Settled::new();
        let last = self.0.lock().one_less(&mut settled);
        // SAFETY: `last` is from `one_less`, once. The place was counted.
        unsafe { GroupCore::settle(self.0.0, &mut settled, last) }.run();
    }
}
