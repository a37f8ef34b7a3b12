//! The memory that a frame owns for operations, scopes, and everything else that work in flight points at.
//!
//! A future can be dropped, moved or forgotten while its operation is in flight. So the operation does not live in the
//! future. It lives in a *block* of its frame's memory, and the frame is not done before the work of the block has ended.
//!
//! Blocks are bumped from chunks, and popped in LIFO order, which is the order of nearly all awaits. A block that ends out
//! of order is marked: it is popped once it is the last, or reused when its chunk is full. Chunks are allocated lazily, the
//! newest one is kept, and empty ones below it are deallocated. So awaits that suspend in a loop allocate once.
//!
//! # Who may access what
//!
//! The *owner* of the memory is the thread that polls or frees the frame. It has exclusive access to the chunks and their
//! blocks, except the flag in a block's word. Any thread may end a block with [`BlockHead::set_free`], its last access. The
//! frame's counts keep the memory alive: a block in flight is an await, or its future holds a reference.

mod block;
mod chunk;

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

pub(in crate::task) use self::block::BlockContent;
use self::block::{BlockHead, BlockVtable};
use self::chunk::{BLOCK, Chunk, HEAD, Orphans, UNIT};
use super::{Header, Polling, header_of};
use crate::Transfer;
use crate::sync::atomic::Ordering::Relaxed;

/// The chunks of a frame: a pointer to the newest, or null.
pub(super) struct FrameMemory(Cell<*mut Chunk>);

/// The limit up to which the sizes of chunks grow. A large block gets a chunk of its own size.
const LARGE: usize = 16 * 1024;
/// Up to this number, chunks are not searched for empty ones.
const FEW: u32 = 4;
/// The largest size of a chunk: twice the size in units fits into a `u32`.
const LARGEST: usize = if size_of::<usize>() == 4 {
    isize::MAX as usize
} else {
    UNIT * (u32::MAX / 2) as usize
};

impl FrameMemory {
    pub(super) const fn new() -> Self {
        FrameMemory(Cell::new(ptr::null_mut()))
    }

    /// Returns whether there is a chunk.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        !self.0.get().is_null()
    }

    /// Returns whether a block was not popped.
    #[inline]
    pub(super) fn has_blocks(&self) -> bool {
        // SAFETY: chunks in the list are alive, and the caller owns them.
        unsafe { self.0.get().as_ref() }.is_some_and(|chunk| chunk.last != 0 || !chunk.previous.is_null())
    }

    /// Allocates a block for a content, which the caller writes. `None` if the allocator has no memory.
    ///
    /// # Safety
    ///
    /// The caller polls the frame. It writes the content that the vtable expects before any other use of the memory.
    #[inline]
    pub(super) unsafe fn allocate(
        &self,
        content: Layout,
        vtable: &'static BlockVtable,
        frame: NonNull<Header>,
    ) -> Option<NonNull<()>> {
        if let Some(chunk) = NonNull::new(self.0.get()) {
            // SAFETY: the caller owns the chunk, and writes the content.
            if let Some(block) = unsafe { Chunk::bump(chunk, content, vtable) } {
                return Some(block);
            }
        }
        // SAFETY: this function asks for the same.
        unsafe { self.allocate_slowly(content, vtable, frame) }
    }

    /// Allocates a block when the newest chunk has no room: sweeps it, reuses a block, or adds a chunk.
    ///
    /// # Safety
    ///
    /// As for [`allocate`](FrameMemory::allocate).
    #[cold]
    unsafe fn allocate_slowly(
        &self,
        content: Layout,
        vtable: &'static BlockVtable,
        frame: NonNull<Header>,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller polls the frame, and so owns all chunks. The size of a new one is checked against `LARGEST`.
        unsafe {
            if let Some(chunk) = NonNull::new(self.0.get()) {
                // Older chunks are not swept, so that the cost of a block does not grow with their number. A destructor may
                // begin and end blocks, even in a newer chunk. This chunk stays: the block being destroyed has not ended.
                Chunk::each(chunk, |block| {
                    BlockHead::sweep(block);
                });
            }
            // Read the newest chunk again, since a destructor may have added one.
            let mut size = 0;
            if let Some(chunk) = NonNull::new(self.0.get()) {
                Chunk::pop(chunk);
                if let Some(block) =
                    Chunk::bump(chunk, content, vtable).or_else(|| Chunk::reuse(chunk, content, vtable))
                {
                    return Some(block);
                }
                size = chunk.as_ref().bytes();
                if chunk.as_ref().last == 0 {
                    // The chunk is empty and too small: a larger one replaces it. The orphans are in the chunks below.
                    if let Some(previous) = chunk.as_ref().previous.as_mut() {
                        previous.orphans = chunk.as_ref().orphans;
                    }
                    self.0.set(chunk.as_ref().previous);
                    Chunk::deallocate(chunk, frame);
                } else if chunk.as_ref().chunks >= chunk.as_ref().limit {
                    FrameMemory::pop_beneath(chunk, frame, true);
                }
            }
            let needed = content
                .size()
                .checked_add(HEAD + BLOCK - UNIT + content.align().max(UNIT))?;
            // The first chunk has the size of its first block; later ones grow.
            let size = needed.max((2 * size).min(LARGE)).checked_next_multiple_of(64)?;
            if size > LARGEST {
                return None;
            }
            let layout = Layout::from_size_align_unchecked(size, align_of::<Chunk>());
            let chunk = Header::allocate(frame, layout)?.cast::<Chunk>();
            let previous = self.0.replace(chunk.as_ptr());
            let (chunks, limit, orphans) = previous.as_ref().map_or((0, FEW, Orphans::default()), |chunk| {
                (chunk.chunks, chunk.limit, chunk.orphans)
            });
            chunk.write(Chunk {
                previous,
                size: (size / UNIT) as u32,
                last: 0,
                chunks: chunks.saturating_add(1),
                limit,
                orphans,
            });
            Chunk::bump(chunk, content, vtable)
        }
    }

    /// Ends a block. Pops it, and those below it that have ended.
    ///
    /// # Safety
    ///
    /// The caller polls or frees the frame. The content is that of a block of the frame, destroyed and unused from now on.
    #[inline]
    pub(super) unsafe fn free(&self, content: NonNull<()>, frame: NonNull<Header>) {
        // SAFETY: the caller owns the memory. Since there is a block, there is a chunk.
        unsafe {
            let (chunk, block) = (NonNull::new_unchecked(self.0.get()), BlockHead::of(content));
            let last = chunk.as_ref().last;
            if last != 0 && Chunk::block(chunk, last) == block && block.as_ref().previous == 0 {
                // The common case: the only block of the newest chunk.
                block.as_ref().content.claim();
                (*chunk.as_ptr()).last = 0;
            } else {
                block.as_ref().end(Relaxed);
                if !Chunk::pop(chunk) {
                    return;
                }
            }
            // The newest chunk, which is the largest, stays.
            if !chunk.as_ref().previous.is_null() {
                FrameMemory::pop_beneath(chunk, frame, false);
            }
        }
    }

    /// Deallocates the empty chunks right below the newest one, or `all` of them. Blocks that always overlap would keep those
    /// forever. But the search visits every chunk, so it runs only when there are twice as many as the last time left.
    ///
    /// # Safety
    ///
    /// The caller owns the chunks.
    #[cold]
    unsafe fn pop_beneath(newest: NonNull<Chunk>, frame: NonNull<Header>, all: bool) {
        // SAFETY: the caller owns the chunks; an empty one is unused.
        unsafe {
            // Unlink the empty chunks first: the list is consistent before the allocator, which is user code, is called.
            let (mut at, mut left, mut empty) = (newest, 1_u32, ptr::null_mut::<Chunk>());
            while let Some(chunk) = NonNull::new(at.as_ref().previous) {
                if Chunk::pop(chunk) {
                    (*at.as_ptr()).previous = chunk.as_ref().previous;
                    (*chunk.as_ptr()).previous = empty;
                    empty = chunk.as_ptr();
                } else if all {
                    left = left.saturating_add(1);
                    at = chunk;
                } else {
                    break;
                }
            }
            if all {
                (*newest.as_ptr()).chunks = left;
                (*newest.as_ptr()).limit = left.saturating_mul(2).max(FEW);
            }
            while let Some(chunk) = NonNull::new(empty) {
                empty = chunk.as_ref().previous;
                Chunk::deallocate(chunk, frame);
            }
        }
    }

    /// Calls `visit` with every block that has not ended, newest first.
    ///
    /// # Safety
    ///
    /// The caller polls or frees the frame. `visit` may end the block. It writes the content of each block that it begins.
    unsafe fn each(&self, mut visit: impl FnMut(NonNull<BlockHead>)) {
        let mut chunk = self.0.get();
        while let Some(at) = NonNull::new(chunk) {
            // SAFETY: the caller owns the chunks. A chunk with a block that is visited is not deallocated.
            unsafe {
                Chunk::each(at, &mut visit);
                chunk = at.as_ref().previous;
            }
        }
    }

    /// Notes an orphan, which [`sweep_some`](FrameMemory::sweep_some) destroys after its completion.
    ///
    /// # Safety
    ///
    /// The caller polls the frame.
    pub(super) unsafe fn add_orphan(&self) {
        // SAFETY: the caller owns the chunks.
        if let Some(chunk) = unsafe { self.0.get().as_mut() } {
            chunk.orphans.many = chunk.orphans.many.saturating_add(1);
            chunk.orphans.sweep_after = 1;
        }
    }

    /// Destroys orphans that have completed. The more there are, the less often it looks for them.
    ///
    /// # Safety
    ///
    /// As for [`each`](FrameMemory::each).
    #[inline]
    pub(super) unsafe fn sweep_some(&self) {
        // SAFETY: the caller owns the chunks. The newest is read again after the sweep, whose destructors may add one.
        unsafe {
            let Some(chunk) = self.0.get().as_mut().filter(|chunk| chunk.orphans.many != 0) else {
                return;
            };
            chunk.orphans.sweep_after -= 1;
            if chunk.orphans.sweep_after == 0 {
                let left = self.sweep();
                let orphans = &mut (*self.0.get()).orphans;
                orphans.many = left.min(orphans.many.into()) as u16;
                orphans.sweep_after = orphans.many.max(1);
            }
        }
    }

    /// Destroys every content that was left to the frame. Returns how many blocks have not ended.
    ///
    /// # Safety
    ///
    /// As for [`each`](FrameMemory::each).
    pub(super) unsafe fn sweep(&self) -> usize {
        let mut left = 0;
        // SAFETY: the caller owns the chunks, and `each` visits blocks that have not ended.
        unsafe {
            self.each(|block| left += usize::from(!BlockHead::sweep(block)));
        }
        left
    }

    /// Asks everything in flight to stop, because the future of the frame was dropped.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, and calls this once.
    pub(super) unsafe fn abandon(&self, polling: Polling<'_>, mut resumed: impl FnMut(Transfer)) {
        // SAFETY: the caller polls the frame, and `each` visits each block once.
        unsafe { self.each(|block| resumed((block.as_ref().vtable.abandon)(BlockHead::content(block), polling))) };
    }

    /// Deallocates all chunks.
    ///
    /// # Safety
    ///
    /// The caller frees the frame, so all blocks have ended, or are swept here.
    pub(super) unsafe fn release(&self, frame: NonNull<Header>) {
        // SAFETY: a thread that frees the frame owns its chunks.
        unsafe {
            if self.has_blocks() {
                self.sweep();
            }
            while let Some(chunk) = NonNull::new(self.0.get()) {
                let is_empty = Chunk::pop(chunk);
                if cfg!(any(loom, debug_assertions)) {
                    assert!(is_empty, "a block outlives its frame");
                }
                self.0.set(chunk.as_ref().previous);
                Chunk::deallocate(chunk, frame);
            }
        }
    }
}

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
    #[inline]
    pub(in crate::task) unsafe fn release_memory(this: NonNull<Header>) {
        let header = header_of(this);
        if header.memory.is_used() {
            // SAFETY: a thread that frees the frame has exclusive access.
            unsafe { header.memory.release(this) };
        }
    }
}
