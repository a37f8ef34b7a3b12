//! The frames of a group's children.
//!
//! A child's frame belongs to its group from the spawn on. It is in one of two lists of the group, protected by the group's
//! lock: running, or ended. In no list it is an [`EndedChild`], which owns it. A child in the inbox is still listed as running.

use core::convert::Infallible;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::boxed::Box;

use super::results::Failure;
use crate::memory::{Beside, Linked, List};
use crate::task::children::ChildPlace;
use crate::task::frame::Header;
use crate::task::strand::Unit;
use crate::{Completion, Panic};

/// The tail of a child's frame. The unit is first, so a frame's pointer to it is one to the tail.
#[repr(C)]
pub(super) struct Member {
    pub(super) unit: Unit,
}

/// A bit of [`Tracker::beside`](crate::task::frame::Tracker::beside): the child has a [`ChildPlace`], which it owns, since its
/// scheduler or its context differ from the group's. The unit points at the context of the place. The other bits are the failure.
const PLACED: u8 = 1 << 7;

impl Member {
    #[inline]
    pub(super) fn new(unit: Unit) -> Self {
        Member { unit }
    }

    /// Gives the child a place, which is returned. The child is not shared yet, and has none.
    pub(super) fn set_place(&self, place: Box<ChildPlace>) -> NonNull<ChildPlace> {
        let place = NonNull::from(Box::leak(place));
        // SAFETY: the strand is not shared yet. The place is alive until the member is dropped, after the end of the strand.
        unsafe { self.unit.set_context(ChildPlace::context_in(place)) };
        self.unit.beside.set(PLACED);
        place
    }

    /// Returns the place of the child, if it has one.
    #[inline]
    pub(super) fn place(&self) -> Option<NonNull<ChildPlace>> {
        if self.unit.beside.get() & PLACED == 0 {
            return None;
        }
        let context = NonNull::new(self.unit.context().cast_mut());
        // SAFETY: the context of such a child is that of its place.
        context.map(|context| unsafe { ChildPlace::of_context(context) })
    }

    /// Sets the failure of the child, before the child is listed as ended.
    #[inline]
    pub(super) fn set_failure(&self, failure: Failure) {
        // It was none so far.
        if failure != Failure::None {
            self.unit.beside.set(self.unit.beside.get() | failure as u8);
        }
    }

    pub(super) fn failure(&self) -> Failure {
        const ERROR: u8 = Failure::Error as u8;
        const PANIC: u8 = Failure::Panic as u8;
        match self.unit.beside.get() & !PLACED {
            ERROR => Failure::Error,
            PANIC => Failure::Panic,
            _ => Failure::None,
        }
    }

    /// Frees what the child has of its own scheduler.
    ///
    /// # Safety
    ///
    /// The child is done, or was not started, and `frame` is its frame, which is alive.
    #[inline]
    pub(super) unsafe fn take_back(&self, frame: NonNull<Header>) {
        if let Some(place) = self.place() {
            // SAFETY: the caller's promise. The member owns the place.
            unsafe { place.as_ref().take_back(frame) };
        }
    }
}

impl Drop for Member {
    #[inline]
    fn drop(&mut self) {
        /// Not inlined, so that the drop of a child without a place is.
        #[cold]
        fn drop_place(place: NonNull<ChildPlace>) {
            // SAFETY: `set_place` took it out of a box, and the strand has ended, or never began.
            drop(unsafe { Box::from_raw(place.as_ptr()) });
        }
        if let Some(place) = self.place() {
            drop_place(place);
        }
    }
}

/// The frame of a started child, whose unit is the first field of a [`Member`].
#[repr(transparent)]
pub(super) struct ChildFrame(Header);

impl ChildFrame {
    /// Returns the tail of a child's frame. Takes the pointer to the whole frame, since the tail is beyond the header.
    ///
    /// # Safety
    ///
    /// The child was started, and is alive while the result is used.
    #[inline]
    unsafe fn member<'a>(this: NonNull<ChildFrame>) -> &'a Member {
        // SAFETY: the caller's promise: the frame has a unit, which is the first field of a member in the same allocation.
        unsafe { Header::unit(this.cast()).cast::<Member>().as_ref() }
    }

    /// Returns the child that ended before this one, in the inbox of the group.
    ///
    /// # Safety
    ///
    /// The child is done, and the caller owns it.
    pub(super) unsafe fn before(&self) -> *mut ChildFrame {
        // SAFETY: the caller's promise.
        unsafe { self.0.owner() }.cast()
    }

    /// Replaces the child that ended before this one. The first call replaces the group, which is not needed any longer.
    ///
    /// # Safety
    ///
    /// As for [`before`](ChildFrame::before).
    pub(super) unsafe fn replace_before(&self, before: *mut ChildFrame) -> *mut ChildFrame {
        // SAFETY: the caller's promise.
        unsafe { self.0.replace_owner(before.cast()) }.cast()
    }
}

// SAFETY: each getter reads the value of its setter. The frame is that of a spawned child, and its group protects the links by its
// lock, or owns the child.
unsafe impl Linked for ChildFrame {
    #[inline]
    fn next(&self) -> *mut ChildFrame {
        // SAFETY: as above.
        unsafe { self.0.siblings() }.0.get().cast()
    }

    #[inline]
    fn set_next(&self, next: *mut ChildFrame) {
        // SAFETY: as above.
        unsafe { self.0.siblings() }.0.set(next.cast());
    }

    #[inline]
    fn previous(&self) -> *mut ChildFrame {
        // SAFETY: as above.
        unsafe { self.0.siblings() }.1.cast()
    }

    #[inline]
    fn set_previous(&self, previous: *mut ChildFrame) {
        // SAFETY: as above.
        unsafe { self.0.set_previous_sibling(previous.cast()) };
    }
}

/// An ended child in no list. Dropping it drops its result.
pub(super) struct EndedChild(NonNull<ChildFrame>);

// SAFETY: the frame is done and owned; its result is `Send`.
unsafe impl Send for EndedChild {}

impl EndedChild {
    /// # Safety
    ///
    /// The child is done, in no list, and owned by the caller.
    pub(super) unsafe fn new(frame: NonNull<ChildFrame>) -> Self {
        EndedChild(frame)
    }

    pub(super) fn failure(&self) -> Failure {
        // SAFETY: the child is owned, and so alive.
        unsafe { ChildFrame::member(self.0) }.failure()
    }

    pub(super) fn frame(&self) -> NonNull<Header> {
        self.0.cast()
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
        // SAFETY: the child and its result are owned, and not used afterwards.
        unsafe { Header::disown(self.0.cast()) };
    }
}

/// The ended children whose results were not taken, in order. It owns them.
#[derive(Default)]
pub(super) struct EndedChildren(List<ChildFrame, Beside<ChildFrame>>);

impl EndedChildren {
    /// Adds a child at the end, or at the front if it was taken before.
    pub(super) fn push(&mut self, child: EndedChild, taken_out: bool) {
        let node = child.into_node();
        // SAFETY: the child is in no list. The list owns it from here on.
        unsafe {
            if taken_out {
                self.0.push_front(node);
            } else {
                self.0.push_back(node);
            }
        }
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<EndedChild> {
        self.0.pop_front().map(EndedChild)
    }

    /// Removes the first that has panicked.
    pub(super) fn pop_panicked(&mut self) -> Option<EndedChild> {
        // SAFETY: a listed child is alive, and removed from the list that it was found in.
        unsafe {
            let panicked = |&child: &NonNull<ChildFrame>| ChildFrame::member(child).failure() == Failure::Panic;
            let child = self.0.iter().find(panicked)?;
            self.0.remove(child);
            Some(EndedChild(child))
        }
    }
}

impl Drop for EndedChildren {
    fn drop(&mut self) {
        while let Some(child) = self.pop_front() {
            // A panic went through the panic hook; no caller can receive it.
            drop(Panic::catch(|| drop(child)));
        }
    }
}
