//! The frames of a group's children.
//!
//! A child's frame belongs to its group from the spawn on. It is in one of two lists of the group, under the group's lock: of
//! those that run, or of those that have ended. In no list it is an [`EndedChild`], which owns it.

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

/// The tail of a child's frame. The unit comes first: a frame points at that, and so at the rest.
#[repr(C)]
pub(super) struct Member {
    pub(super) unit: Unit,
    pub(super) core: NonNull<GroupCore>,
    /// Of one of the lists of the group, under its lock.
    links: Links<ChildFrame>,
    /// How it has failed. Written before the child is in the list of those that have ended.
    pub(super) failure: Cell<Failure>,
    /// Where it runs, if that is not where the group does.
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

/// The frame of a child: one that was started, and whose unit is the first field of a [`Member`].
#[repr(transparent)]
pub(super) struct ChildFrame(Header);

impl ChildFrame {
    #[inline]
    pub(super) fn member(&self) -> &Member {
        // SAFETY: it was started, so it has a unit, which is the first field of a member in the same allocation.
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

/// Children that have ended and whose results were not taken, in that order. It owns them.
pub(super) struct EndedChildren(List<ChildFrame, Beside<ChildFrame>>);

impl EndedChildren {
    pub(super) fn new() -> Self {
        EndedChildren(List::new())
    }

    pub(super) fn push_back(&mut self, child: EndedChild) {
        // SAFETY: it is in no list. The list owns it from here on.
        unsafe { self.0.push_back(child.into_node()) };
    }

    pub(super) fn push_front(&mut self, child: EndedChild) {
        // SAFETY: as above.
        unsafe { self.0.push_front(child.into_node()) };
    }

    pub(super) fn pop_front(&mut self) -> Option<EndedChild> {
        self.0.pop_front().map(EndedChild)
    }

    /// Takes the first that has panicked.
    pub(super) fn take_panicked(&mut self) -> Option<EndedChild> {
        // SAFETY: what is in the list is alive.
        let panicked = |child: &NonNull<ChildFrame>| unsafe { child.as_ref() }.member().failure.get() == Failure::Panic;
        let child = self.0.iter().find(panicked)?;
        // SAFETY: it was found there.
        unsafe { self.0.remove(child) };
        Some(EndedChild(child))
    }

    pub(super) fn take(&mut self) -> Self {
        EndedChildren(self.0.take())
    }
}

/// A child that has ended and is in no list. Dropped, it goes with its result.
pub(super) struct EndedChild(NonNull<ChildFrame>);

impl EndedChild {
    /// # Safety
    ///
    /// It is done, is in no list, and the caller owns it.
    pub(super) unsafe fn new(frame: NonNull<Header>) -> Self {
        EndedChild(frame.cast())
    }

    pub(super) fn failure(&self) -> Failure {
        // SAFETY: it is owned, and so alive.
        unsafe { self.0.as_ref() }.member().failure.get()
    }

    fn into_node(self) -> NonNull<ChildFrame> {
        ManuallyDrop::new(self).0
    }

    /// Takes the result.
    ///
    /// # Safety
    ///
    /// `T` is what the children of the group give. It was not taken.
    pub(super) unsafe fn take<T>(self) -> Completion<T, Infallible> {
        // SAFETY: it is done and owned.
        unsafe { Header::take(self.into_node().cast()) }
    }
}

impl Drop for EndedChild {
    fn drop(&mut self) {
        // SAFETY: it is owned, and not used any more.
        unsafe { Header::release(self.0.cast()) };
    }
}

/// A child that has ended, whose result was not taken. Dropped, it goes back to the group.
pub(super) struct Finished {
    core: GroupRef,
    /// None once it was taken.
    child: Option<EndedChild>,
}

// SAFETY: the frame is done and owned; its result is `Send`.
unsafe impl Send for Finished {}

impl Finished {
    /// The child is one of the group.
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
    /// `T` is what the children of the group give.
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

/// A place that is kept for a child. Dropped, it is for others.
pub(super) struct Room(GroupRef);

impl Room {
    /// # Safety
    ///
    /// The place was counted.
    pub(super) unsafe fn new(core: GroupRef) -> Self {
        Room(core)
    }

    /// It is taken.
    pub(super) fn fill(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is taken this once, and not dropped.
        drop(unsafe { ptr::read(&raw const this.0) });
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut settled = Settled::new();
        let last = self.0.lock().one_less(&mut settled);
        // SAFETY: the place was counted.
        unsafe { GroupCore::settle(self.0.as_ptr(), &mut settled, last) }.run();
    }
}
