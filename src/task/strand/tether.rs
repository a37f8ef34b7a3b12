//! Ties something on the heap to the frame it began in, which is not done before that has ended: a group, or a handler.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::Transfer;
use crate::memory::OutOfMemoryError;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::{Block, BlockContent, Polling};

/// A type that can be tethered to a frame.
///
/// # Safety
///
/// [`release`](Tethered::release) releases the reference that keeps the value alive, and nothing else releases it for the
/// tether.
pub(in crate::task) unsafe trait Tethered {
    /// Ends the value, because the future of the frame is dropped. Another thread may be ending it at the same time.
    ///
    /// # Safety
    ///
    /// The caller polls the frame that this is tethered to, and calls this once.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer;

    /// Releases the tether's reference.
    ///
    /// # Safety
    ///
    /// The tether has the reference, and does not use the value afterwards.
    unsafe fn release(this: NonNull<Self>);

    /// Returns whether code that another executor polls awaits this, and that executor does not know yet that the value has ended.
    fn is_awaited(&self) -> bool {
        false
    }
}

/// A block in the memory of a frame that owns a reference to the tethered value.
pub(in crate::task) struct Tether<T: Tethered> {
    what: NonNull<T>,
    /// Set when the value ended on another thread or with the frame, and the frame is to release the reference. Stored with
    /// release by the ending party; pairs with the frame's acquire load. The frame clears it before it releases the reference.
    is_loose: AtomicBool,
    _what: PhantomData<T>,
}

impl<T: Tethered> Tether<T> {
    /// Ties a value to a frame.
    ///
    /// # Errors
    ///
    /// The frame's allocator has no memory.
    ///
    /// # Safety
    ///
    /// The caller gives the tether a reference to `what`, unless this fails.
    pub(in crate::task) unsafe fn tie(
        what: NonNull<T>,
        polling: Polling<'_>,
    ) -> Result<NonNull<Self>, OutOfMemoryError> {
        // SAFETY: the closure only moves values.
        unsafe {
            polling.try_allocate(|| Tether {
                what,
                is_loose: AtomicBool::new(false),
                _what: PhantomData,
            })
        }
    }

    /// Unties the value, and releases the tether's reference. The caller keeps another while it needs the value.
    ///
    /// # Safety
    ///
    /// The caller is inside the frame's poll. The tether was not untied. If it was abandoned, it is loose, and was not swept.
    pub(in crate::task) unsafe fn untie(this: NonNull<Self>) {
        // SAFETY: the caller polls the frame, so the block may be freed; the reference is released once.
        unsafe {
            let what = this.as_ref().what;
            Block::end(this);
            T::release(what);
        }
    }

    /// Leaves the untying to the frame.
    ///
    /// # Safety
    ///
    /// The tether was not untied. The frame is not done before this returns.
    pub(in crate::task) unsafe fn loosen(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.is_loose.store(true, Release);
    }
}

// SAFETY: after `is_loose` is set, only the frame uses the block.
unsafe impl<T: Tethered> BlockContent for Tether<T> {
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. The tether's reference keeps the value alive.
        unsafe {
            let this = this.as_ref();
            let resumed = T::abandon(this.what, polling);
            this.is_loose.store(true, Release);
            resumed
        }
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise. The tether's reference keeps the value alive until it is released here.
        unsafe {
            let this = this.as_ref();
            let is_loose = this.is_loose.load(Acquire) && !this.what.as_ref().is_awaited();
            if is_loose {
                // Cleared first: dropping the reference may make the frame sweep again.
                this.is_loose.store(false, Relaxed);
                T::release(this.what);
            }
            is_loose
        }
    }

    unsafe fn holds(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise. The tether has not been swept, so its reference keeps the value alive.
        unsafe { this.as_ref().what.as_ref() }.is_awaited()
    }
}
