//! How something on the heap is tethered to the frame that it began in, which must not be done before it has ended: a group, a
//! single child, a handler.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::Transfer;
use crate::memory::OutOfMemoryError;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::{BlockContent, Header, Polling};

/// Something that can be tethered to a frame.
///
/// # Safety
///
/// [`release`](Tethered::release) gives up what keeps the value alive, and nothing else does so for the tether.
pub(in crate::task) unsafe trait Tethered {
    /// The future of the frame is gone: ends what was not ended. May be called when that is just happening on another thread.
    ///
    /// # Safety
    ///
    /// The caller polls the frame that this is tethered to, and calls this once.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer;

    /// Gives up the reference that the tether has.
    ///
    /// # Safety
    ///
    /// The tether has it, and does not use the value any more.
    unsafe fn release(this: NonNull<Self>);
}

/// A tether: a block in the memory of the frame, which has a reference of what it ties.
pub(in crate::task) struct Tether<T: Tethered> {
    what: NonNull<T>,
    frame: NonNull<Header>,
    /// Ended on another thread, or with the frame, which gives up the reference. Stored with release by the party that ends it; the
    /// frame loads it with acquire, and clears it before it gives up the reference.
    is_loose: AtomicBool,
    _what: PhantomData<T>,
}

impl<T: Tethered> Tether<T> {
    /// Ties something to a frame.
    ///
    /// # Errors
    ///
    /// The allocator of the frame has no memory.
    ///
    /// # Safety
    ///
    /// The caller gives the tether a reference of `what`, unless this fails.
    pub(in crate::task) unsafe fn tie(
        what: NonNull<T>,
        polling: Polling<'_>,
    ) -> Result<NonNull<Self>, OutOfMemoryError> {
        polling.try_allocate(Tether {
            what,
            frame: polling.frame(),
            is_loose: AtomicBool::new(false),
            _what: PhantomData,
        })
    }

    /// Unties it, with the reference that it has. The caller keeps another while it needs the value.
    ///
    /// # Safety
    ///
    /// The caller is what the frame's poll is running. It was not untied or abandoned.
    pub(in crate::task) unsafe fn untie(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe {
            let what = this.as_ref().what;
            Header::free_block(this.as_ref().frame, this.cast());
            T::release(what);
        }
    }

    /// Whether it was left to the frame to untie it.
    ///
    /// # Safety
    ///
    /// It was not untied.
    pub(in crate::task) unsafe fn is_loose(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.is_loose.load(Acquire)
    }

    /// Leaves it to the frame to untie it.
    ///
    /// # Safety
    ///
    /// It was not untied. The frame is not done before this returns.
    pub(in crate::task) unsafe fn loosen(this: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.is_loose.store(true, Release);
    }
}

// SAFETY: what is loose is used by no other party.
unsafe impl<T: Tethered> BlockContent for Tether<T> {
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer {
        // SAFETY: the caller's promise. The tether has a reference.
        unsafe {
            let this = this.as_ref();
            let resumed = T::abandon(this.what, polling);
            this.is_loose.store(true, Release);
            resumed
        }
    }

    unsafe fn sweep(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's promise. The tether has a reference.
        unsafe {
            let this = this.as_ref();
            let is_loose = this.is_loose.load(Acquire);
            if is_loose {
                // Once: what goes with the reference may make the frame look again.
                this.is_loose.store(false, Relaxed);
                T::release(this.what);
            }
            is_loose
        }
    }
}
