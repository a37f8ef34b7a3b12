//! The blocks of a frame: its memory, with the allocator of the frame.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::memory::{BlockHead, ChunkSource};
use super::{Header, header_of};

/// The allocator of a frame.
pub(super) struct FrameSource(pub(super) NonNull<Header>);

impl ChunkSource for FrameSource {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: whoever makes a source has the frame.
        unsafe { Header::allocate(self.0, layout) }
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Header::deallocate(self.0, memory, layout) };
    }
}

impl Header {
    /// Allocates from the allocator that the frame is from, if that has memory.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    pub(in crate::task) unsafe fn allocate(this: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.allocate)(this, layout) }
    }

    /// Gives such memory back.
    ///
    /// # Safety
    ///
    /// It is from this frame, of this layout, and not used any more.
    pub(in crate::task) unsafe fn deallocate(this: NonNull<Header>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.deallocate)(this, memory, layout) };
    }

    /// Ends a block that the frame's poll has no use for any more.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running, or holds a reference and is not. The content was destroyed.
    #[inline]
    pub(in crate::task) unsafe fn free_block(this: NonNull<Header>, content: NonNull<()>) {
        // SAFETY: the caller's promise. The memory belongs to the polling thread alone.
        unsafe {
            if Header::is_current(this) {
                header_of(this).memory.free(content, &FrameSource(this));
            } else {
                BlockHead::set_free(content);
            }
        }
    }

    /// Ends a block, with the reference of the future that it was for. The frame may be gone when this returns.
    ///
    /// # Safety
    ///
    /// As for [`free_block`](Header::free_block) and [`unhold`](Header::unhold).
    #[inline]
    pub(in crate::task) unsafe fn release_block(this: NonNull<Header>, content: NonNull<()>) {
        // SAFETY: the caller's promise.
        unsafe {
            if Header::is_current(this) {
                header_of(this).memory.free(content, &FrameSource(this));
                header_of(this).add_pending(0, -1);
            } else {
                BlockHead::set_free(content);
                Header::release_started(this);
            }
        }
    }

    /// Gives the frame's memory back, with what is left in it to be destroyed.
    ///
    /// # Safety
    ///
    /// The caller frees the frame.
    #[inline]
    pub(in crate::task) unsafe fn release_memory(this: NonNull<Header>) {
        let header = header_of(this);
        if header.memory.is_used() {
            // SAFETY: the caller's promise.
            unsafe { header.memory.release(&FrameSource(this)) };
        }
    }
}
