//! FrameMemory that a frame owns for what it awaits: operations, contexts of scopes, and whatever else work in flight points at.
//!
//! A future can be dropped, moved or forgotten while the operation that it began is in flight. So the operation does not live
//! in the future. It lives in a *block* of its frame's memory, and the frame is not done before the block's work is.
//!
//! Blocks are bumped from chunks, and popped in LIFO order, which is the order of nearly all awaits. A block that ends out of
//! order is marked, and popped once it is the last, or used again when its chunk is full. A frame has no chunk before it
//! needs one, and keeps the newest one until it is freed. Empty chunks are deallocated. So awaits that suspend in a loop allocate
//! once.
//!
//! # Who may do what
//!
//! The chunks, and all fields of blocks but the flag in their word, belong to the thread that polls the frame, or that frees it.
//! Any thread may end a block with [`BlockHead::set_free`], after which it touches nothing of the block. The frame's counts keep the memory
//! alive: a block in flight is an await of the frame, or is pointed at by a future that holds a reference of the frame.

mod block;
mod chunk;

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

pub(in crate::task) use self::block::BlockContent;
pub(super) use self::block::BlockHead;
use self::block::BlockVtable;
pub(super) use self::chunk::ChunkSource;
use self::chunk::{BLOCK, Chunk, HEAD, Orphans, UNIT};
use super::Polling;
use crate::Transfer;
use crate::sync::atomic::Ordering::Relaxed;

/// The chunks of a frame: null, or the newest.
pub(super) struct FrameMemory(Cell<*mut Chunk>);

/// The size of a chunk, where a block does not ask for more, grows up to this.
const LARGE: usize = 16 * 1024;
/// So many chunks are not looked through for empty ones.
const FEW: u32 = 4;
/// A chunk is smaller than this, so that twice a size in units fits into a word.
const LARGEST: usize = if size_of::<usize>() == 4 {
    isize::MAX as usize
} else {
    UNIT * (u32::MAX / 2) as usize
};

impl FrameMemory {
    pub(super) const fn new() -> Self {
        FrameMemory(Cell::new(ptr::null_mut()))
    }

    /// Whether there is a chunk.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        !self.0.get().is_null()
    }

    /// Whether a block has not ended, or was not popped.
    #[inline]
    pub(super) fn has_blocks(&self) -> bool {
        // SAFETY: the chunk is alive, and the caller polls the frame.
        unsafe { self.0.get().as_ref() }.is_some_and(|chunk| chunk.last != 0 || !chunk.previous.is_null())
    }

    /// Makes a block with room for `content`, which the caller writes. None where there is no memory.
    ///
    /// # Safety
    ///
    /// The caller polls the frame. It writes what the vtable expects before anything else is done with the memory.
    #[inline]
    pub(super) unsafe fn allocate(
        &self,
        content: Layout,
        vtable: &'static BlockVtable,
        source: &impl ChunkSource,
    ) -> Option<NonNull<()>> {
        if let Some(chunk) = NonNull::new(self.0.get()) {
            // SAFETY: the chunk is alive, and the caller's.
            if let Some(block) = unsafe { Chunk::bump(chunk, content, vtable) } {
                return Some(block);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.allocate_slowly(content, vtable, source) }
    }

    /// # Safety
    ///
    /// As for [`allocate`](FrameMemory::allocate).
    #[cold]
    unsafe fn allocate_slowly(
        &self,
        content: Layout,
        vtable: &'static BlockVtable,
        source: &impl ChunkSource,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(chunk) = NonNull::new(self.0.get()) {
                // The others are not looked at, so that many blocks cost no more each than few. The destructors that run here may
                // begin and end blocks, in a newer chunk as well. This chunk stays: the block that is destroyed has not ended.
                Chunk::each(chunk, |block| {
                    BlockHead::sweep(block);
                });
            }
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
                    // It is empty, and too small. The next one is larger, and takes its place. The orphans are beneath.
                    if let Some(previous) = chunk.as_ref().previous.as_mut() {
                        previous.orphans = chunk.as_ref().orphans;
                    }
                    self.0.set(chunk.as_ref().previous);
                    Chunk::deallocate(chunk, source);
                } else if chunk.as_ref().chunks >= chunk.as_ref().limit {
                    FrameMemory::pop_all(chunk, source);
                }
            }
            let needed = content
                .size()
                .checked_add(HEAD + BLOCK - UNIT + content.align().max(UNIT))?;
            // The first chunk is as large as what it is made for; later ones grow.
            let size = needed.max((2 * size).min(LARGE)).checked_next_multiple_of(64)?;
            if size > LARGEST {
                return None;
            }
            let memory = source.allocate(Layout::from_size_align_unchecked(size, align_of::<Chunk>()))?;
            let chunk = memory.cast::<Chunk>();
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

    /// Ends a block, and pops it and those beneath that have ended.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, or frees it. The content is a block of it, destroyed, and not used any more.
    #[inline]
    pub(super) unsafe fn free(&self, content: NonNull<()>, source: &impl ChunkSource) {
        // SAFETY: the caller's promise. There is a chunk, as there is a block.
        unsafe {
            let (chunk, block) = (NonNull::new_unchecked(self.0.get()), BlockHead::of(content));
            let last = chunk.as_ref().last;
            if last != 0 && Chunk::block(chunk, last) == block && block.as_ref().previous == 0 {
                // It is the only one in the newest chunk, as most are.
                block.as_ref().content.claim();
                (*chunk.as_ptr()).last = 0;
                if !chunk.as_ref().previous.is_null() {
                    FrameMemory::pop_beneath(chunk, source);
                }
                return;
            }
            block.as_ref().end(Relaxed);
            self.pop(source);
        }
    }

    /// Pops blocks that have ended. The newest chunk, which is the largest, stays; those beneath it go when they are empty.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, or frees it.
    #[inline]
    unsafe fn pop(&self, source: &impl ChunkSource) {
        if let Some(chunk) = NonNull::new(self.0.get())
            // SAFETY: the chunk is alive, and the caller's.
            && unsafe { Chunk::pop(chunk) && !chunk.as_ref().previous.is_null() }
        {
            // SAFETY: as above.
            unsafe { FrameMemory::pop_beneath(chunk, source) };
        }
    }

    /// # Safety
    ///
    /// The chunk is the caller's.
    #[cold]
    unsafe fn pop_beneath(newest: NonNull<Chunk>, source: &impl ChunkSource) {
        // SAFETY: the caller's promise.
        unsafe {
            while let Some(chunk) = NonNull::new(newest.as_ref().previous) {
                if !Chunk::pop(chunk) {
                    return;
                }
                (*newest.as_ptr()).previous = chunk.as_ref().previous;
                Chunk::deallocate(chunk, source);
            }
        }
    }

    /// Gives back all chunks that are empty. Blocks that always overlap would keep them beneath the newest one for good.
    ///
    /// It looks at all of them, and so not before there are twice as many as were left the last time.
    ///
    /// # Safety
    ///
    /// The newest chunk is the caller's, and not empty.
    #[cold]
    unsafe fn pop_all(newest: NonNull<Chunk>, source: &impl ChunkSource) {
        // SAFETY: the caller's promise; so are the chunks beneath.
        unsafe {
            let (mut at, mut left, mut empty) = (newest, 1_u32, ptr::null_mut::<Chunk>());
            while let Some(chunk) = NonNull::new(at.as_ref().previous) {
                if Chunk::pop(chunk) {
                    (*at.as_ptr()).previous = chunk.as_ref().previous;
                    (*chunk.as_ptr()).previous = empty;
                    empty = chunk.as_ptr();
                } else {
                    left = left.saturating_add(1);
                    at = chunk;
                }
            }
            (*newest.as_ptr()).chunks = left;
            (*newest.as_ptr()).limit = left.saturating_mul(2).max(FEW);
            // The list is as it should be before the allocator is called.
            while let Some(chunk) = NonNull::new(empty) {
                empty = chunk.as_ref().previous;
                Chunk::deallocate(chunk, source);
            }
        }
    }

    /// Calls `visit` with the content of every block that has not ended, the newest first.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, or frees it. `visit` may end the block. A block that it begins is written when it returns.
    unsafe fn each(&self, mut visit: impl FnMut(NonNull<BlockHead>)) {
        let mut chunk = self.0.get();
        while let Some(at) = NonNull::new(chunk) {
            // SAFETY: the chunk is alive, and the caller's.
            unsafe {
                Chunk::each(at, &mut visit);
                chunk = at.as_ref().previous;
            }
        }
    }

    /// Notes a block that was left to the frame in flight: [`sweep_some`](FrameMemory::sweep_some) destroys it when it has ended.
    ///
    /// # Safety
    ///
    /// The caller polls the frame.
    pub(super) unsafe fn add_orphan(&self) {
        // SAFETY: the chunk is alive, and the caller's.
        if let Some(chunk) = unsafe { self.0.get().as_mut() } {
            chunk.orphans.many = chunk.orphans.many.saturating_add(1);
            chunk.orphans.sweep_after = 1;
        }
    }

    /// Destroys blocks that were left to the frame and have ended since. The more there are, the less often it looks.
    ///
    /// # Safety
    ///
    /// As for [`each`](FrameMemory::each).
    #[inline]
    pub(super) unsafe fn sweep_some(&self) {
        // SAFETY: the caller's promise.
        match unsafe { self.0.get().as_mut() } {
            Some(chunk) if chunk.orphans.many != 0 => {
                chunk.orphans.sweep_after -= 1;
                if chunk.orphans.sweep_after == 0 {
                    // SAFETY: the caller's promise.
                    unsafe { self.sweep_now() };
                }
            }
            _ => {}
        }
    }

    /// # Safety
    ///
    /// As for [`each`](FrameMemory::each). There is a chunk.
    #[cold]
    unsafe fn sweep_now(&self) {
        // SAFETY: the caller's promise. A destructor that runs here may begin blocks, in a newer chunk as well.
        unsafe {
            let left = self.sweep();
            let orphans = &mut (*self.0.get()).orphans;
            orphans.many = left.min(orphans.many.into()) as u16;
            orphans.sweep_after = orphans.many.max(1);
        }
    }

    /// Destroys what is the frame's to destroy. Returns how many blocks have not ended.
    ///
    /// # Safety
    ///
    /// As for [`each`](FrameMemory::each).
    pub(super) unsafe fn sweep(&self) -> usize {
        let mut left = 0;
        // SAFETY: the caller's promise. A block that was swept is not used any more.
        unsafe {
            self.each(|block| left += usize::from(!BlockHead::sweep(block)));
        }
        left
    }

    /// Asks all that is in flight to stop: the future of the frame is gone.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, and calls this once.
    pub(super) unsafe fn abandon(&self, polling: Polling<'_>, mut resumed: impl FnMut(Transfer)) {
        // SAFETY: the caller's promise.
        unsafe { self.each(|block| resumed((block.as_ref().vtable.abandon)(BlockHead::content(block), polling))) };
    }

    /// Gives all chunks back.
    ///
    /// # Safety
    ///
    /// The caller frees the frame, so that all blocks have ended, or are swept here.
    pub(super) unsafe fn release(&self, source: &impl ChunkSource) {
        // SAFETY: the caller's promise.
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
                Chunk::deallocate(chunk, source);
            }
        }
    }
}
