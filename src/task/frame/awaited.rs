//! The children that a frame awaits: those that were pending when they were polled by the frame's future.
//!
//! A future can be forgotten or sent away while the child that it awaits goes on, and the frame is not done before that child is.
//! So the frame keeps a list of such children, with a reference of each. When its future is gone, it stops those that are left.
//!
//! # Who may touch it
//!
//! The list, with the links in the children, belongs to the thread that polls the parent. A future that is dropped elsewhere
//! leaves its child in the list, where the parent finds that it is done.

use core::ptr::{self, NonNull};

use super::state::Holding;
use super::{Header, header_of};
use crate::{Panic, Transfer};

/// How many children of the list are looked at when another one is added. Two, so that those that are done do not pile up.
const LOOKED_AT: usize = 2;

impl Header {
    /// Adds a child that is pending. The list gets a reference of it.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running. The child is busy, in no queue and in no list.
    #[inline]
    pub(super) unsafe fn tie(this: NonNull<Header>, child: NonNull<Header>) {
        let (header, inner) = (header_of(this), header_of(child));
        // Applied when the child's poll is over.
        inner.add_pending(0, 1);
        match NonNull::new(header.awaited.get()) {
            None => {
                header.awaited.set(child.as_ptr());
                inner.next_sibling.set(child.as_ptr());
                // SAFETY: the caller's promise.
                unsafe { inner.set_previous_sibling(child.as_ptr()) };
            }
            // SAFETY: the caller's promise.
            Some(first) => unsafe { Header::tie_last(this, first, child) },
        }
    }

    /// # Safety
    ///
    /// As for [`tie`](Header::tie). `first` is the first of the list.
    #[cold]
    unsafe fn tie_last(this: NonNull<Header>, first: NonNull<Header>, child: NonNull<Header>) {
        let (after, inner) = (header_of(first), header_of(child));
        inner.next_sibling.set(first.as_ptr());
        // SAFETY: the caller polls the parent, and the list has a reference of each.
        unsafe {
            let last = after.previous_sibling();
            after.set_previous_sibling(child.as_ptr());
            inner.set_previous_sibling(last);
            (*last).next_sibling.set(child.as_ptr());
        }
        for _ in 0..LOOKED_AT {
            // Read again: destructors that run here may change the list.
            let Some(first) = NonNull::new(header_of(this).awaited.get()) else {
                return;
            };
            let at = header_of(first);
            if at.state.is_done() {
                // SAFETY: the caller's promise, and as above.
                unsafe {
                    Header::untie(this, first);
                    Header::let_go(first);
                }
            } else {
                header_of(this).awaited.set(at.next_sibling.get());
            }
        }
    }

    /// Takes a child out of the list, if it is in it. Then the caller has the reference that the list had.
    ///
    /// # Safety
    ///
    /// The calling thread polls this frame, which is the child's parent. The caller has a reference of the child, or the list has.
    #[inline]
    pub(in crate::task) unsafe fn untie(this: NonNull<Header>, child: NonNull<Header>) -> bool {
        let (header, inner) = (header_of(this), header_of(child));
        let next = inner.next_sibling.replace(ptr::null_mut());
        if next.is_null() {
            return false;
        }
        if next == child.as_ptr() {
            header.awaited.set(ptr::null_mut());
            return true;
        }
        // SAFETY: the list has a reference of each.
        unsafe {
            let previous = inner.previous_sibling();
            (*previous).next_sibling.set(next);
            (*next).set_previous_sibling(previous);
        }
        if header.awaited.get() == child.as_ptr() {
            header.awaited.set(next);
        }
        true
    }

    /// Stops the children that are left: the future of this frame is gone.
    ///
    /// # Safety
    ///
    /// The caller polls this frame. None of the children is set aside.
    pub(super) unsafe fn stop_awaited(this: NonNull<Header>, resumed: &mut Transfer) {
        while let Some(child) = NonNull::new(header_of(this).awaited.get()) {
            // SAFETY: the caller's promise. The list has a reference, which is given up here.
            unsafe {
                Header::untie(this, child);
                if !header_of(child).state.is_done() {
                    Header::stop(child);
                    resumed.append(Header::wake(child, Holding::Nothing, |_| false));
                }
                Header::let_go(child);
            }
        }
    }

    /// Gives up the reference of the list.
    ///
    /// # Safety
    ///
    /// The caller has it.
    unsafe fn let_go(child: NonNull<Header>) {
        // What panics in a destructor was reported by the hook, and no code is left that could be told.
        // SAFETY: the caller's promise. A child that was listed was started.
        drop(Panic::catch(|| unsafe { Header::release_started(child) }));
    }
}
