//! The references to a frame: the owner's and others, the result that the owner takes, and freeing.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use super::state::OwnerRelease;
use super::{Header, header_of};
use crate::Panic;
use crate::sync::per_thread;

impl Header {
    /// Returns whether the frame is done: it has a result, and nothing that it began is in flight.
    ///
    /// # Safety
    ///
    /// The caller owns the frame.
    pub(in crate::task) unsafe fn is_done(this: NonNull<Header>) -> bool {
        // SAFETY: the owner's reference keeps the frame alive.
        unsafe { this.as_ref() }.state.is_done()
    }

    /// Returns whether this frame is the one that the end of `child` wakes.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started.
    pub(in crate::task) unsafe fn is_parent(this: NonNull<Header>, child: NonNull<Header>) -> bool {
        // SAFETY: the owner's reference keeps the child alive. Its successor does not change after the start.
        unsafe { child.as_ref() }.whom.get() == this.as_ptr().cast()
    }

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// The caller holds a reference, or keeps its holder alive.
    pub(in crate::task) unsafe fn count(this: NonNull<Header>) {
        // SAFETY: that reference keeps the frame alive.
        unsafe { this.as_ref() }.state.add_reference();
    }

    /// Releases a reference. A frame that runs continues, and its parent is not done before it.
    ///
    /// # Safety
    ///
    /// The caller holds the reference, and does not use the frame afterwards.
    pub(in crate::task) unsafe fn release(this: NonNull<Header>) {
        // SAFETY: a frame that was not started is not shared. The caller holds the reference to any other.
        unsafe {
            match Header::is_started(this) {
                true => Header::release_started(this),
                false => free(this),
            }
        }
    }

    /// Frees a frame that was not started, or whose start was undone.
    ///
    /// # Safety
    ///
    /// The caller owns the frame, and does not use it afterwards.
    #[cold]
    pub(in crate::task) unsafe fn free_unstarted(this: NonNull<Header>) {
        // SAFETY: a frame that was not started is not shared.
        unsafe { free(this) };
    }

    /// Releases the owner's reference, and drops the result: now, or when the frame is done. Other references keep the memory of
    /// the frame, and not its result.
    ///
    /// # Safety
    ///
    /// The caller owns the frame and its result, and does not use the frame afterwards.
    pub(in crate::task) unsafe fn disown(this: NonNull<Header>) {
        let header = header_of(this);
        // SAFETY: a frame that was not started is not shared. The owner's reference keeps any other alive until it is released, and
        // the result of a frame that is done is the owner's alone.
        unsafe {
            if !Header::is_started(this) {
                return free(this);
            }
            match header.state.release_owner() {
                OwnerRelease::Left => {}
                OwnerRelease::Last => free(this),
                OwnerRelease::Shared => {
                    let dropped = Panic::catch(|| (header.vtable.discard)(this));
                    Header::release_started(this);
                    if let Err(payload) = dropped {
                        payload.resume();
                    }
                }
            }
        }
    }

    /// Releases a reference to a frame that was started.
    ///
    /// # Safety
    ///
    /// The caller holds the reference, and does not use the frame afterwards.
    pub(super) unsafe fn release_started(this: NonNull<Header>) {
        // SAFETY: the caller's reference keeps the frame alive.
        if unsafe { this.as_ref() }.state.release_reference() {
            // SAFETY: that was the last reference to a frame that is done.
            unsafe { free(this) };
        }
    }

    /// Adds a reference. The polling thread notes it, and the end of the poll applies it.
    ///
    /// # Safety
    ///
    /// As for [`count`](Header::count).
    #[inline]
    pub(super) unsafe fn hold(this: NonNull<Header>) {
        if Header::is_current(this) {
            header_of(this).add_pending(0, 1);
        } else {
            // SAFETY: the caller's promise.
            unsafe { Header::count(this) };
        }
    }

    /// Releases a reference. The polling thread notes the release. The frame may be freed when this returns.
    ///
    /// # Safety
    ///
    /// As for [`release_started`](Header::release_started).
    #[inline]
    pub(in crate::task) unsafe fn unhold(this: NonNull<Header>) {
        if Header::is_current(this) {
            header_of(this).add_pending(0, -1);
        } else {
            // SAFETY: the caller holds the reference.
            unsafe { Header::release_started(this) };
        }
    }

    /// Takes the result, and releases the owner's reference.
    ///
    /// # Safety
    ///
    /// The frame is done, with a result of type `T` that was not taken. The caller owns the frame, and does not use it
    /// afterwards.
    #[inline]
    pub(in crate::task) unsafe fn take<T>(this: NonNull<Header>) -> T {
        // SAFETY: this function asks for the same; the one reference is the owner's.
        unsafe { Header::take_with(this, 1) }
    }

    /// Takes the result of a child, in the poll of the frame that awaits it.
    ///
    /// # Safety
    ///
    /// As for [`take`](Header::take). The calling thread polls `parent`.
    #[inline]
    pub(in crate::task) unsafe fn take_awaited<T>(parent: NonNull<Header>, this: NonNull<Header>) -> T {
        // SAFETY: the caller owns the child and polls `parent`. A child that was tied passes on the reference of the list.
        unsafe {
            let tied = Header::is_parent(parent, this) && Header::untie(parent, this);
            Header::take_with(this, 1 + usize::from(tied))
        }
    }

    /// Takes the result, and releases this many references.
    ///
    /// # Safety
    ///
    /// As for [`take`](Header::take). The caller holds the references.
    #[inline]
    pub(super) unsafe fn take_with<T>(this: NonNull<Header>, references: usize) -> T {
        // SAFETY: the frame is done. It is freed here if it has no other references.
        unsafe {
            if header_of(this).state.is_owned_by(references) {
                return move_result(this, true);
            }
            let result = move_result(this, false);
            for _ in 0..references {
                Header::release_started(this);
            }
            result
        }
    }

    /// Takes the result, and keeps the owner's reference.
    ///
    /// # Safety
    ///
    /// The frame is done, with a result of type `T` that was not taken. The caller owns the frame.
    pub(in crate::task) unsafe fn take_result<T>(this: NonNull<Header>) -> T {
        // SAFETY: this function asks for the same.
        unsafe { move_result(this, false) }
    }
}

/// Moves the result out of a frame, and frees the frame if the flag is set.
///
/// # Safety
///
/// As for [`Header::take_result`]. With `free`, the caller holds all references.
#[inline]
unsafe fn move_result<T>(frame: NonNull<Header>, free: bool) -> T {
    let mut result = MaybeUninit::<T>::uninit();
    // SAFETY: the frame is done, so `take` initializes `result`.
    unsafe {
        (header_of(frame).vtable.take)(frame, NonNull::new_unchecked(result.as_mut_ptr()).cast(), free);
        result.assume_init()
    }
}

/// How many frames are freed inside one another before the next ones wait.
const NESTED_FREES: usize = 16;

per_thread! {
    /// The number of frames that this thread frees inside one another, and the list of those that wait.
    static FREEING: Cell<(usize, *mut Header)> = Cell::new((0, ptr::null_mut()));
}

/// Frees a frame, with its future or result. Dropping that may free further frames, recursively. Beyond [`NESTED_FREES`]
/// levels they wait in a list instead, which is sound: they borrow nothing.
///
/// # Safety
///
/// No other thread uses the frame.
pub(super) unsafe fn free(frame: NonNull<Header>) {
    /// Removes one level, also when a destructor unwinds.
    struct Level;
    impl Drop for Level {
        fn drop(&mut self) {
            FREEING.with(|freeing| freeing.set((freeing.get().0 - 1, freeing.get().1)));
        }
    }

    let (nested, waiting) = FREEING.with(Cell::get);
    // `child` links the waiting frames: a frame being freed has set no children aside.
    if nested > NESTED_FREES {
        header_of(frame).child.set(waiting);
        FREEING.with(|freeing| freeing.set((nested, frame.as_ptr())));
        return;
    }
    FREEING.with(|freeing| freeing.set((nested + 1, waiting)));
    let _level = Level;
    // The deepest level frees the frames that come to wait.
    // SAFETY: the caller has exclusive access to the frame.
    unsafe {
        match nested < NESTED_FREES {
            true => (header_of(frame).vtable.free)(frame),
            false => free_all(frame),
        }
    }
}

/// Frees a frame, and those that come to wait meanwhile. Then resumes the first panic.
///
/// # Safety
///
/// As for [`free`].
#[cold]
unsafe fn free_all(mut frame: NonNull<Header>) {
    let mut panicked = None;
    loop {
        // SAFETY: the caller has exclusive access to `frame`; `free` had it to each frame in the list.
        if let Err(payload) = Panic::catch(|| unsafe { (header_of(frame).vtable.free)(frame) }) {
            panicked.get_or_insert(payload);
        }
        let (nested, first) = FREEING.with(Cell::get);
        let Some(first) = NonNull::new(first) else { break };
        FREEING.with(|freeing| freeing.set((nested, header_of(first).child.get())));
        frame = first;
    }
    if let Some(payload) = panicked {
        payload.resume();
    }
}
