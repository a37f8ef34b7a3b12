//! Chunks: pieces of memory from the frame's allocator, in which blocks follow one another.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::block::{BlockHead, BlockVtable};
use crate::sync::Owned;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::task::frame::Header;

/// The unit of offsets.
pub(super) const UNIT: usize = 16;
pub(super) const HEAD: usize = size_of::<Chunk>();
/// The size of a block's head: one unit, except in a model, where atomics are larger.
pub(super) const BLOCK: usize = size_of::<BlockHead>();

const _: () = assert!((BLOCK == UNIT || cfg!(loom)) && BLOCK.is_multiple_of(UNIT) && HEAD.is_multiple_of(UNIT));

/// The head of a chunk. Offsets are from its address, in units of [`UNIT`].
#[repr(C, align(16))]
pub(super) struct Chunk {
    /// The chunk that was the newest before this one, or null.
    pub(super) previous: *mut Chunk,
    /// The size with the head, in units.
    pub(super) size: u32,
    /// The offset of the last block, or zero.
    pub(super) last: u32,
    /// The number of chunks when this became the newest, or after the last search for empty ones.
    pub(super) chunks: u32,
    /// The number of chunks at which all of them are searched for empty ones.
    pub(super) limit: u32,
    /// Valid in the newest chunk.
    pub(super) orphans: Orphans,
}

/// The awaits of a frame that were dropped in flight.
#[derive(Clone, Copy, Default)]
pub(super) struct Orphans {
    /// The number that were not swept yet.
    pub(super) many: u16,
    /// The number of polls until the frame looks for orphans that have ended.
    pub(super) sweep_after: u16,
}

impl Chunk {
    pub(super) fn bytes(&self) -> usize {
        self.size as usize * UNIT
    }

    /// Returns the block at an offset.
    ///
    /// # Safety
    ///
    /// The offset is that of a block in the chunk.
    #[inline]
    pub(super) unsafe fn block(this: NonNull<Chunk>, offset: u32) -> NonNull<BlockHead> {
        // SAFETY: the caller's promise.
        unsafe { this.byte_add(offset as usize * UNIT).cast() }
    }

    /// Calls `visit` with every block that has not ended, newest first.
    ///
    /// # Safety
    ///
    /// The caller owns the chunk. `visit` may end the block. It writes the content of each block that it begins.
    pub(super) unsafe fn each(this: NonNull<Chunk>, mut visit: impl FnMut(NonNull<BlockHead>)) {
        // SAFETY: the caller owns the chunk, and so the heads of its blocks.
        unsafe {
            let mut offset = this.as_ref().last;
            while offset != 0 {
                let block = Chunk::block(this, offset);
                offset = block.as_ref().previous;
                if !block.as_ref().has_ended() {
                    visit(block);
                }
            }
        }
    }

    /// Allocates a block behind the last one, if there is room.
    ///
    /// # Safety
    ///
    /// The caller owns the chunk, and writes the content before any other use of the chunk.
    #[inline]
    pub(super) unsafe fn bump(
        this: NonNull<Chunk>,
        content: Layout,
        vtable: &'static BlockVtable,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller owns the chunk, and `last` is the offset of a block. `end` is checked against its size before the head is written.
        unsafe {
            let previous = this.as_ref().last;
            let mut head = match previous {
                0 => HEAD,
                _ => (previous + Chunk::block(this, previous).as_ref().units()) as usize * UNIT,
            };
            if content.align() > UNIT {
                let address = this.addr().get() + head + BLOCK;
                head += address.next_multiple_of(content.align()) - address;
            }
            let end = (head + BLOCK)
                .checked_add(content.size())?
                .checked_next_multiple_of(UNIT)?;
            if end > this.as_ref().bytes() {
                return None;
            }
            let block = this.byte_add(head).cast::<BlockHead>();
            (*this.as_ptr()).last = (head / UNIT) as u32;
            block.write(BlockHead {
                vtable,
                previous,
                word: AtomicU32::new(((end - head) / UNIT) as u32 * 2),
                content: Owned::new(),
            });
            Some(BlockHead::content(block))
        }
    }

    /// Reuses a block that has ended and is large enough.
    ///
    /// # Safety
    ///
    /// As for [`bump`](Chunk::bump).
    pub(super) unsafe fn reuse(
        this: NonNull<Chunk>,
        content: Layout,
        vtable: &'static BlockVtable,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller owns the chunk, and so every block that has ended.
        unsafe {
            let mut offset = this.as_ref().last;
            while offset != 0 {
                let mut block = Chunk::block(this, offset);
                offset = block.as_ref().previous;
                let place = BlockHead::content(block);
                let room = block.as_ref().units() as usize * UNIT - BLOCK;
                if room >= content.size()
                    && place.addr().get().is_multiple_of(content.align())
                    && block.as_ref().has_ended()
                {
                    let block = block.as_mut();
                    block.content.claim();
                    block.vtable = vtable;
                    block.word.store(block.units() * 2, Relaxed);
                    return Some(place);
                }
            }
        }
        None
    }

    /// Pops the blocks at the end that have ended. Returns `true` if none is left.
    ///
    /// # Safety
    ///
    /// The caller owns the chunk.
    #[inline]
    pub(super) unsafe fn pop(this: NonNull<Chunk>) -> bool {
        // SAFETY: `last` is the offset of a block, whose end `has_ended` acquires.
        unsafe {
            while this.as_ref().last != 0 {
                let block = Chunk::block(this, this.as_ref().last).as_ref();
                if !block.has_ended() {
                    return false;
                }
                block.content.claim();
                (*this.as_ptr()).last = block.previous;
            }
            true
        }
    }

    /// Deallocates the chunk of a frame.
    ///
    /// # Safety
    ///
    /// The chunk is from this frame, and unused.
    pub(super) unsafe fn deallocate(this: NonNull<Chunk>, frame: NonNull<Header>) {
        // SAFETY: this is the layout that the chunk was allocated with.
        unsafe {
            let layout = Layout::from_size_align_unchecked(this.as_ref().bytes(), align_of::<Chunk>());
            Header::deallocate(frame, this.cast(), layout);
        }
    }
}
