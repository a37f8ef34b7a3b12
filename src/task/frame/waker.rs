//! The waker of a frame.

use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use core::task::{RawWaker, RawWakerVTable, Waker};

use super::Header;
use super::state::Holding;
use crate::sender::current;

/// Creates the waker of a frame for one poll. It holds no reference; a clone of it does.
///
/// # Safety
///
/// The frame is alive as long as the waker is used.
#[inline]
pub(in crate::task) unsafe fn waker(frame: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions below keep the contract of a waker. This one is never dropped: it holds no reference.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(frame.as_ptr().cast(), &WAKER)) })
}

/// Returns the frame of a waker, if the calling thread polls that frame. Any other waker is treated like one of another
/// crate: code may have kept it, and may poll with it anywhere.
#[inline]
pub(in crate::task) fn frame_of(waker: &Waker) -> Option<NonNull<Header>> {
    let frame = waker.data().cast::<Header>().cast_mut();
    if !ptr::eq(waker.vtable(), &WAKER) || !ptr::eq(current::frame(), waker.data()) {
        return None;
    }
    // SAFETY: the data of a waker with this table is a frame. The compiler does not see this of the data below.
    unsafe {
        core::hint::assert_unchecked(!frame.is_null());
        Some(NonNull::new_unchecked(frame))
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// # Safety
///
/// The data is a frame. The caller holds a reference to it, or polls it. This holds for all functions of the table.
unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the frame is alive, by that reference or poll.
    unsafe { Header::hold(frame(data)) };
    RawWaker::new(data, &WAKER)
}

/// # Safety
///
/// As for [`clone`]; the reference is released.
unsafe fn wake(data: *const ()) {
    // SAFETY: the caller holds the reference that this releases.
    unsafe { Header::wake(frame(data), Holding::Reference, |_| false) }.run();
}

/// # Safety
///
/// As for [`clone`].
unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the frame is alive, by the caller's reference or poll.
    unsafe { Header::wake(frame(data), Holding::Nothing, |_| false) }.run();
}

/// # Safety
///
/// As for [`clone`]; the reference is released.
unsafe fn drop(data: *const ()) {
    // SAFETY: the caller holds the reference. A frame with a waker was started.
    unsafe { Header::unhold(frame(data)) };
}

/// # Safety
///
/// The data is a frame.
unsafe fn frame(data: *const ()) -> NonNull<Header> {
    // SAFETY: a pointer to a frame is not null.
    unsafe { NonNull::new_unchecked(data.cast::<Header>().cast_mut()) }
}
