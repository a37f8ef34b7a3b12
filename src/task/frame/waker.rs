//! The waker of a frame.

use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use core::task::{RawWaker, RawWakerVTable, Waker};

use super::Header;
use super::state::Holding;

/// The waker of a frame, for the length of one poll. It holds no reference: code that keeps it clones it.
///
/// # Safety
///
/// The frame is alive as long as this is used.
#[inline]
pub(in crate::task) unsafe fn waker(frame: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions below keep the contract of a waker; this one is not dropped.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(frame.as_ptr().cast(), &WAKER)) })
}

/// The frame whose waker this is, if the calling thread polls that frame. Any other waker is like those of other crates: code
/// may have kept it, and polls with it wherever it likes.
#[inline]
pub(in crate::task) fn frame_of(waker: &Waker) -> Option<NonNull<Header>> {
    let frame = NonNull::new(waker.data().cast::<Header>().cast_mut())?;
    (ptr::eq(waker.vtable(), &WAKER) && Header::is_current(frame)).then_some(frame)
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// # Safety
///
/// The data is a frame to which the caller holds a reference, or which it polls. So for the other functions here.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the caller's promise.
    unsafe { Header::count(frame(data)) };
    RawWaker::new(data, &WAKER)
}

/// # Safety
///
/// As for [`clone`]; the reference is given up.
unsafe fn wake(data: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { Header::wake(frame(data), Holding::Reference, |_| false) }.run();
}

/// # Safety
///
/// As for [`clone`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the caller's promise.
    unsafe { Header::wake(frame(data), Holding::Nothing, |_| false) }.run();
}

/// # Safety
///
/// As for [`clone`]; the reference is given up.
unsafe fn drop(data: *const ()) {
    // SAFETY: the caller's promise. A frame that has a waker was started.
    unsafe { Header::release_started(frame(data)) };
}

/// # Safety
///
/// The data is a frame.
unsafe fn frame(data: *const ()) -> NonNull<Header> {
    // SAFETY: the caller's promise: it is not null.
    unsafe { NonNull::new_unchecked(data.cast::<Header>().cast_mut()) }
}
