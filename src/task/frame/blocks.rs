//! The blocks of a frame: its memory and its allocator together.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::memory::BlockHead;
use super::{Header, header_of, spare};

impl Header {
    /// Allocates from the frame's allocator. `None` if that has no memory.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    pub(in crate::task) unsafe fn allocate(this: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.allocate)(this, layout) }
    }

    /// Deallocates memory of the frame's allocator.
    ///
    /// # Safety
    ///
    /// The memory was allocated from this frame with this layout, and is unused.
    pub(in crate::task) unsafe fn deallocate(this: NonNull<Header>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the frame outlives its memory; the layout is the one of the allocation.
        unsafe { (this.as_ref().vtable.deallocate)(this, memory, layout) };
    }

    /// Returns the spare memory behind the frame and its size, if that is at least `needed`. It is not deallocated.
    pub(super) fn spare(this: NonNull<Header>, needed: usize) -> Option<(NonNull<u8>, usize)> {
        let header = header_of(this);
        let size = usize::from(header.spare) * spare::UNIT;
        if size < needed {
            spare::learn(header.vtable, needed);
            return None;
        }
        // SAFETY: the allocation of the frame extends by `size` bytes behind this offset.
        Some((unsafe { this.cast().add(header.vtable.spare_at) }, size))
    }

    /// Ends a block.
    ///
    /// # Safety
    ///
    /// The content was destroyed. The caller polls the frame, or holds a reference and does not poll it.
    #[inline]
    pub(in crate::task) unsafe fn free_block(this: NonNull<Header>, content: NonNull<()>) {
        // SAFETY: the polling thread owns the memory. Any other thread may mark a block, which the reference keeps alive.
        unsafe {
            if Header::is_current(this) {
                header_of(this).memory.free(content, this);
            } else {
                BlockHead::set_free(content);
            }
        }
    }

    /// Ends a block, and releases the reference of its future. The frame may be freed when this returns.
    ///
    /// # Safety
    ///
    /// As for [`free_block`](Header::free_block) and [`unhold`](Header::unhold).
    #[inline]
    pub(in crate::task) unsafe fn release_block(this: NonNull<Header>, content: NonNull<()>) {
        // SAFETY: this function asks for the same. The reference is released last, so the frame is alive until then.
        unsafe {
            Header::free_block(this, content);
            Header::unhold(this);
        }
    }

    /// Destroys the blocks that were left to the frame, and deallocates its memory.
    ///
    /// # Safety
    ///
    /// The caller frees the frame.
    /// Returns the size of the spare memory behind the frame.
    #[inline]
    pub(in crate::task) unsafe fn release_memory(this: NonNull<Header>) -> usize {
        let header = header_of(this);
        if header.memory.is_used() {
            // SAFETY: a thread that frees the frame has exclusive access.
            unsafe { header.memory.release(this) };
        } else if header.spare != 0 {
            spare::learn(header.vtable, 0);
        }
        usize::from(header.spare) * spare::UNIT
    }
}
