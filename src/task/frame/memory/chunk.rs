//! Chunks: pieces of memory from the frame's allocator, in which blocks follow one another.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::block::{BlockHead, BlockVtable};
use crate::sync::Owned;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What offsets count.
pub(super) const UNIT: usize = 16;
pub(super) const HEAD: usize = size_of::<Chunk>();
/// The head of a block: one unit, but in a model, where atomics are larger.
pub(super) const BLOCK: usize = size_of::<BlockHead>();

const _: () = assert!((BLOCK == UNIT || cfg!(loom)) && BLOCK.is_multiple_of(UNIT) && HEAD.is_multiple_of(UNIT));

/// Where chunks come from: the allocator of the frame.
pub(in crate::task::frame) trait ChunkSource {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;
    /// # Safety
    ///
    /// The memory is from this source, of this layout, and not used any more.
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout);
}

/// The head of a chunk. Offsets are from its address, in units of [`UNIT`].
#[repr(C, align(16))]
pub(super) struct Chunk {
    /// The chunk that was full before, or null.
    pub(super) previous: *mut Chunk,
    /// The size, with the head.
    pub(super) size: u32,
    /// The last block, or zero.
    pub(super) last: u32,
    /// How many chunks there were when this became the newest, with itself; fewer, where some were given back since.
    pub(super) chunks: u32,
    /// When there are so many, empty ones are looked for among all of them.
    pub(super) limit: u32,
    /// Those of the newest chunk count.
    pub(super) orphans: Orphans,
}

/// The awaits of a frame that were dropped in flight.
#[derive(Clone, Copy, Default)]
pub(super) struct Orphans {
    /// How many were not swept yet.
    pub(super) many: u16,
    /// After how many polls the frame looks for those that have ended.
    pub(super) sweep_after: u16,
}

impl Chunk {
    pub(super) fn bytes(&self) -> usize {
        self.size as usize * UNIT
    }

    /// # Safety
    ///
    /// The offset is that of a block in the chunk.
    #[inline]
    pub(super) unsafe fn block(this: NonNull<Chunk>, offset: u32) -> NonNull<BlockHead> {
        // SAFETY: the caller's promise.
        unsafe { this.byte_add(offset as usize * UNIT).cast() }
    }

    /// Calls `visit` with every block that has not ended, the newest first.
    ///
    /// # Safety
    ///
    /// The chunk is the caller's. `visit` may end the block. A block that it begins is written when it returns.
    pub(super) unsafe fn each(this: NonNull<Chunk>, mut visit: impl FnMut(NonNull<BlockHead>)) {
        // SAFETY: the caller's promise; so are the heads of its blocks.
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

    /// Where the next block begins, in bytes.
    ///
    /// # Safety
    ///
    /// The chunk is the caller's.
    #[inline]
    pub(super) unsafe fn top(this: NonNull<Chunk>) -> usize {
        // SAFETY: the caller's promise.
        unsafe {
            match this.as_ref().last {
                0 => HEAD,
                last => (last + Chunk::block(this, last).as_ref().units()) as usize * UNIT,
            }
        }
    }

    /// Makes a block behind the last one, if there is room.
    ///
    /// # Safety
    ///
    /// The chunk is the caller's.
    #[inline]
    pub(super) unsafe fn bump(
        this: NonNull<Chunk>,
        content: Layout,
        vtable: &'static BlockVtable,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller's promise. What is computed lies in the chunk, as is checked.
        unsafe {
            let mut head = Chunk::top(this);
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
            let previous = (*this.as_ptr()).last;
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

    /// Takes a block that has ended and is large enough.
    ///
    /// # Safety
    ///
    /// As for [`bump`](Chunk::bump).
    pub(super) unsafe fn reuse(
        this: NonNull<Chunk>,
        content: Layout,
        vtable: &'static BlockVtable,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller's promise.
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

    /// Pops the blocks at the end that have ended. `true` where none is left.
    ///
    /// # Safety
    ///
    /// As for [`bump`](Chunk::bump).
    #[inline]
    pub(super) unsafe fn pop(this: NonNull<Chunk>) -> bool {
        // SAFETY: the caller's promise.
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

    /// # Safety
    ///
    /// The chunk is from this source, and not used any more.
    pub(super) unsafe fn deallocate(this: NonNull<Chunk>, source: &impl ChunkSource) {
        // SAFETY: the caller's promise; this is the layout that it was allocated with.
        unsafe {
            let layout = Layout::from_size_align_unchecked(this.as_ref().bytes(), align_of::<Chunk>());
            source.deallocate(this.cast(), layout);
        }
    }
}
