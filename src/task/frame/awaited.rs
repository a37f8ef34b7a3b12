//! The pending children of a frame that other threads may run.
//!
//! A future can be forgotten or sent away while its child continues, and the frame is not done before that child. So the
//! frame keeps an intrusive list of such children, with a reference to each, and stops those that are left after its
//! future. A child is added when it suspends, or becomes a job. One that is [set aside](super::aside) or held is in no
//! list: the future of its parent does not end before the thread that holds both has decided about it.
//!
//! Only the thread that polls the parent accesses the list and its links. A future that is dropped elsewhere leaves its
//! child in the list, until the parent finds that the child is done.

use core::ptr::{self, NonNull};

use super::state::Holding;
use super::{Header, header_of};
use crate::{Panic, Transfer};

/// How many children are examined when another one is added. Two, so that children that are done do not pile up.
const LOOKED_AT: usize = 2;

impl Header {
    /// Adds a pending child to the list, with a reference.
    ///
    /// # Safety
    ///
    /// The caller polls this frame. The child is busy, in no queue and in no list.
    #[inline]
    pub(super) unsafe fn tie(this: NonNull<Header>, child: NonNull<Header>) {
        let (header, inner) = (header_of(this), header_of(child));
        // Applied at the end of the child's poll.
        inner.add_pending(0, 1);
        match NonNull::new(header.awaited.get()) {
            None => {
                header.awaited.set(child.as_ptr());
                inner.next_sibling.set(child.as_ptr());
                // SAFETY: the caller polls the parent.
                unsafe { inner.set_previous_sibling(child.as_ptr()) };
            }
            // SAFETY: the caller polls the parent, and `first` is from its list.
            Some(first) => unsafe { Header::tie_last(this, first, child) },
        }
    }

    /// Adds a child to a list that is not empty, and removes children that are done.
    ///
    /// # Safety
    ///
    /// As for [`tie`](Header::tie). `first` is the first of the list.
    #[cold]
    unsafe fn tie_last(this: NonNull<Header>, first: NonNull<Header>, child: NonNull<Header>) {
        let (after, inner) = (header_of(first), header_of(child));
        inner.next_sibling.set(first.as_ptr());
        // SAFETY: the caller polls the parent, and the list holds a reference to each child.
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
                // SAFETY: the caller polls the parent. `untie` passes on the reference of the list.
                unsafe {
                    Header::untie(this, first);
                    Header::release_listed(first);
                }
            } else {
                header_of(this).awaited.set(at.next_sibling.get());
            }
        }
    }

    /// Removes a child, and passes the list's reference to the caller. Returns `false` if the child is not in the list.
    ///
    /// # Safety
    ///
    /// The calling thread polls this frame, the parent of the child. The caller or the list holds a reference to the child.
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
        // SAFETY: the list holds a reference to each child.
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

    /// Stops the children that are left, after the future of this frame was dropped.
    ///
    /// # Safety
    ///
    /// The caller polls this frame. None of the children is set aside.
    pub(super) unsafe fn stop_awaited(this: NonNull<Header>, resumed: &mut Transfer) {
        while let Some(child) = NonNull::new(header_of(this).awaited.get()) {
            // SAFETY: the caller polls this frame. The list's reference keeps the child alive until it is released here.
            unsafe {
                Header::untie(this, child);
                if !header_of(child).state.is_done() {
                    Header::stop(child);
                    resumed.append(Header::wake(child, Holding::Nothing, |_| false));
                }
                Header::release_listed(child);
            }
        }
    }

    /// Releases the reference of the list.
    ///
    /// # Safety
    ///
    /// The caller holds it.
    unsafe fn release_listed(child: NonNull<Header>) {
        // The panic hook has reported a panic of a destructor, and no party is left to receive it.
        // SAFETY: the caller's promise. A child in the list was started.
        drop(Panic::catch(|| unsafe { Header::release_started(child) }));
    }
}
