//! Where a frame finds the tracker of its strand.
//!
//! The first frame of a spawned child has the unit of the strand in its tail, and needs no pointer to it. The tail of any other
//! frame is a [`Borrowed`] pointer to the tracker of the strand in which the frame begins.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::{Header, Tracker, header_of};

/// The tail of a frame that has no strand of its own: the tracker of the strand it runs in. Null before the start; valid until the
/// frame is done. Written before the frame is shared.
pub(in crate::task) struct Borrowed(Cell<*const Tracker>);

impl Borrowed {
    pub(in crate::task) fn new() -> Self {
        Borrowed(Cell::new(ptr::null()))
    }
}

/// The offset of a frame's tail, and whether that begins with the tracker itself.
#[derive(Clone, Copy)]
pub(in crate::task) struct TrackerPlace(usize);

/// The bit of an offset that says so.
const OWN: usize = 1;
const _: () = assert!(align_of::<Tracker>() > OWN && align_of::<Borrowed>() > OWN);

impl TrackerPlace {
    /// Creates the place for frames whose tail begins with the unit of their strand.
    pub(in crate::task) const fn own(offset: usize) -> Self {
        TrackerPlace(offset | OWN)
    }

    /// Creates the place for frames whose tail is a [`Borrowed`].
    pub(in crate::task) const fn borrowed(offset: usize) -> Self {
        TrackerPlace(offset)
    }

    /// Returns the tail of a frame.
    ///
    /// # Safety
    ///
    /// The frame is alive, and this is its place.
    #[inline(always)]
    unsafe fn tail(self, frame: NonNull<Header>) -> NonNull<()> {
        // SAFETY: the caller's promise: the tail is in the allocation of the frame.
        unsafe { frame.byte_add(self.0 & !OWN).cast() }
    }

    #[inline(always)]
    fn is_own(self) -> bool {
        self.0 & OWN != 0
    }

    /// Returns the pointer to the tracker, unless the frame has that in its tail.
    ///
    /// # Safety
    ///
    /// As for [`find`](TrackerPlace::find), without a start.
    #[inline(always)]
    unsafe fn borrowed_in<'a>(self, frame: NonNull<Header>) -> Option<&'a Cell<*const Tracker>> {
        // SAFETY: the caller's promise. The constructor says which type the tail has.
        (!self.is_own()).then(|| unsafe { &self.tail(frame).cast::<Borrowed>().as_ref().0 })
    }

    /// Returns the tracker of a frame.
    ///
    /// # Safety
    ///
    /// The frame is alive and has started, and this is the place in its vtable.
    #[inline(always)]
    pub(super) unsafe fn find(self, frame: NonNull<Header>) -> NonNull<Tracker> {
        // SAFETY: the caller's promise. A frame that has started has a tracker.
        unsafe {
            match self.borrowed_in(frame) {
                Some(tracker) => NonNull::new_unchecked(tracker.get().cast_mut()),
                None => self.tail(frame).cast(),
            }
        }
    }
}

impl Header {
    /// Sets the tracker of a frame. The frame of a spawned child has it already.
    ///
    /// # Safety
    ///
    /// The frame was not started. The tracker is that of its own strand, if it has one, and valid until the frame is done.
    #[inline(always)]
    pub(super) unsafe fn set_tracker(this: NonNull<Header>, tracker: *const Tracker) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(place) = this.as_ref().vtable.tracker.borrowed_in(this) {
                place.set(tracker);
            }
        }
    }

    /// Sets the tracker of a frame to that of another one.
    ///
    /// # Safety
    ///
    /// The frame was not started, and is not that of a spawned child. The other one has started, and waits for it.
    #[inline(always)]
    pub(super) unsafe fn borrow_tracker(this: NonNull<Header>, of: NonNull<Header>) {
        // SAFETY: the caller's promise. The tail of such a frame is a pointer to the tracker.
        unsafe {
            let tail = this.as_ref().vtable.tracker.tail(this).cast::<Borrowed>();
            tail.as_ref().0.set(Header::tracker(of).as_ptr());
        }
    }

    /// Asks the owner of the strand to wake this frame when the token of the strand stops. Returns `false` if the owner does not. If it
    /// does, the caller listens to that token [without an entry](crate::stop::ErasedStopToken::listen_unlisted).
    ///
    /// # Safety
    ///
    /// The caller polls the frame.
    #[inline]
    pub(in crate::task) unsafe fn listen_unlisted(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise: a frame that is polled has started.
        let tracker = unsafe { Header::tracker(this).as_ref() };
        let is_first = header_of(this).vtable.tracker.is_own();
        is_first && tracker.begin_to_listen()
    }

    /// Returns whether the frame has [asked](Header::listen_unlisted) to be woken by a stop.
    ///
    /// # Safety
    ///
    /// The frame is alive and was started.
    #[inline]
    pub(in crate::task) unsafe fn listens_unlisted(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Header::tracker(this).as_ref() }.has_listener()
    }

    /// Returns whether a frame was started. The frame of a spawned child counts as started: one that was not is freed by
    /// [`free_unstarted`](Header::free_unstarted).
    ///
    /// The tracker tells, since the polling thread never changes it, unlike the placement.
    ///
    /// # Safety
    ///
    /// The caller holds a reference to the frame.
    #[inline]
    pub(super) unsafe fn is_started(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref().vtable.tracker.borrowed_in(this) }.is_none_or(|tracker| !tracker.get().is_null())
    }
}
