//! References of a frame: its owner's and others, the result that goes to the owner, and the end of the memory.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use super::{Header, header_of};
use crate::Panic;
use crate::sync::per_thread;

impl Header {
    /// Whether the result is in the frame, and nothing that it began is in flight.
    ///
    /// # Safety
    ///
    /// The caller owns the frame.
    pub(in crate::task) unsafe fn is_done(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.state.is_done()
    }

    /// Whether this is the frame that the child's end will wake.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started.
    pub(in crate::task) unsafe fn is_parent(this: NonNull<Header>, child: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise. It does not change once the child was started.
        unsafe { child.as_ref() }.whom() == this.as_ptr().cast()
    }

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// The caller has a reference, or keeps another party that does.
    pub(in crate::task) unsafe fn count(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.state.add_reference();
    }

    /// Gives up the owner's reference. A frame that runs goes on running, and its parent is not done before it is.
    ///
    /// # Safety
    ///
    /// The caller is the owner, and uses the frame no more.
    pub(in crate::task) unsafe fn release(this: NonNull<Header>) {
        // The strand does not change once there is one. The context does, and another thread may be polling the frame.
        if header_of(this).tracker.get().is_null() {
            // SAFETY: it was not started, so no other thread knows it.
            unsafe { free(this) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { Header::release_started(this) };
        }
    }

    /// Gives up a reference of a frame that was started.
    ///
    /// # Safety
    ///
    /// The caller has it, and uses the frame no more.
    pub(super) unsafe fn release_started(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        if unsafe { this.as_ref() }.state.release_reference() {
            // SAFETY: that was the last reference of a frame that is done.
            unsafe { free(this) };
        }
    }

    /// Gives such a reference up. The frame may be gone when this returns.
    ///
    /// # Safety
    ///
    /// The caller has the reference, and does not use the frame any more.
    #[inline]
    pub(in crate::task) unsafe fn unhold(this: NonNull<Header>) {
        if Header::is_current(this) {
            header_of(this).add_pending(0, -1);
        } else {
            // SAFETY: the caller's promise.
            unsafe { Header::release_started(this) };
        }
    }

    /// Takes the result out, and gives up the owner's reference.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller is its owner, and uses it no more; `T` is the type of its result.
    #[inline]
    pub(in crate::task) unsafe fn take<T>(this: NonNull<Header>) -> T {
        // SAFETY: the caller's promise.
        unsafe { Header::take_with(this, 1) }
    }

    /// [`take`](Header::take) for a child, in the poll of the frame that awaits it.
    ///
    /// # Safety
    ///
    /// As for `take`. The caller is what the poll of `parent` is running.
    #[inline]
    pub(in crate::task) unsafe fn take_awaited<T>(parent: NonNull<Header>, this: NonNull<Header>) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let tied = Header::is_parent(parent, this) && Header::untie(parent, this);
            Header::take_with(this, 1 + usize::from(tied))
        }
    }

    /// Takes the result out, and gives up so many references.
    ///
    /// # Safety
    ///
    /// As for [`take`](Header::take). The caller has the references.
    #[inline]
    pub(super) unsafe fn take_with<T>(this: NonNull<Header>, references: usize) -> T {
        let header = header_of(this);
        let mut result = MaybeUninit::<T>::uninit();
        let is_last = header.state.is_owned_by(references);
        // SAFETY: the caller's promise.
        unsafe {
            (header.vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast(), is_last);
            if !is_last {
                for _ in 0..references {
                    Header::release_started(this);
                }
            }
            result.assume_init()
        }
    }

    /// Takes the result out, and leaves the frame.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller is its owner, and the result was not taken; `T` is the type of that.
    pub(in crate::task) unsafe fn take_result<T>(this: NonNull<Header>) -> T {
        let mut result = MaybeUninit::<T>::uninit();
        // SAFETY: the caller's promise.
        unsafe {
            (header_of(this).vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast(), false);
            result.assume_init()
        }
    }
}

/// How many frames are freed inside one another before they wait for each other.
const NESTED_FREES: usize = 16;

per_thread! {
    /// How many frames this thread is freeing, inside one another; and those that wait until the innermost is.
    static FREEING: Cell<(usize, *mut Header)> = Cell::new((0, ptr::null_mut()));
}

/// Frees a frame, with its future or result. A few frames that are inside one another are freed one inside the other, as
/// everything in Rust is. Where they go deeper, those further in wait for those further out, which they may: they borrow
/// nothing.
///
/// # Safety
///
/// No other thread uses the frame any more.
pub(super) unsafe fn free(frame: NonNull<Header>) {
    /// One level less, also when a destructor unwinds.
    struct Level;
    impl Drop for Level {
        fn drop(&mut self) {
            FREEING.with(|freeing| freeing.set((freeing.get().0 - 1, freeing.get().1)));
        }
    }

    let (nested, waiting) = FREEING.with(Cell::get);
    if nested > NESTED_FREES {
        header_of(frame).child.set(waiting);
        FREEING.with(|freeing| freeing.set((nested, frame.as_ptr())));
        return;
    }
    FREEING.with(|freeing| freeing.set((nested + 1, waiting)));
    let _level = Level;
    if nested < NESTED_FREES {
        // SAFETY: by the caller's promise.
        unsafe { (header_of(frame).vtable.free)(frame) };
    } else {
        // SAFETY: as above.
        unsafe { free_all(frame) };
    }
}

/// Frees a frame, and those that come to wait meanwhile. Goes on with the first panic when all of them are gone.
///
/// # Safety
///
/// As for [`free`].
#[cold]
unsafe fn free_all(mut frame: NonNull<Header>) {
    let mut panicked = None;
    loop {
        // SAFETY: by the caller's promise; and what waits is freed here.
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
