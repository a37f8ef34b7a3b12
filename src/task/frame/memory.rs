//! Memory that a frame owns for what it awaits: operations, contexts of scopes, and whatever else work in flight points at.
//!
//! A future can be dropped, moved or forgotten while the operation that it began is in flight. So the operation does not live
//! in the future. It lives in a *block* of its frame's memory, and the frame is not done before the block's work is.
//!
//! Blocks are bumped from chunks, and popped in LIFO order, which is the order of nearly all awaits. A block that ends out of
//! order is marked, and popped once it is the last, or used again when its chunk is full. A frame has no chunk before it
//! needs one, and keeps the newest one until it is freed. Chunks that are empty are given back. So awaits that suspend in a loop allocate once.
//!
//! # Who may do what
//!
//! The chunks, and all fields of blocks but the flag in their word, belong to the thread that polls the frame, or that frees it. Any thread
//! may end a block with [`Block::set_free`], after which it touches nothing of the block. The frame's counts keep the memory
//! alive: a block in flight is an await of the frame, or is pointed at by a future that holds a reference of the frame.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::Polling;
use crate::Transfer;
use crate::sync::Owned;
use crate::sync::atomic::{
    AtomicU32, Ordering,
    Ordering::{Acquire, Relaxed, Release},
};

/// The chunks of a frame: null, or the newest.
pub(super) struct Memory(Cell<*mut Chunk>);

/// The head of a chunk. Offsets are from its address, in units of [`UNIT`].
#[repr(C, align(16))]
struct Chunk {
    /// The chunk that was full before, or null.
    previous: *mut Chunk,
    /// The size, with the head.
    size: u32,
    /// The last block, or zero.
    last: u32,
    /// How many chunks there were when this became the newest, with itself; fewer, where some were given back since.
    chunks: u32,
    /// When there are so many, empty ones are looked for among all of them.
    limit: u32,
}

/// The head of a block. What is in the block follows it.
#[repr(C, align(16))]
pub(in crate::task) struct Block {
    vtable: &'static BlockVtable,
    /// The block before it in its chunk, or zero. Padding may lie between the two.
    previous: u32,
    /// Twice the size of the block, with its head, which does not change; and [`FREE`] once the block has ended.
    ///
    /// `FREE` is stored with release by the thread that ends the block, and read with acquire by the owner of the memory,
    /// which clears it when it uses the block again.
    word: AtomicU32,
    /// The memory of the content: claimed by the party that ends the block, and then by the owner of the memory.
    content: Owned,
}

/// What a block holds. Its owner is another party, until that ends the block or leaves it to the frame.
///
/// # Safety
///
/// What `sweep` says was destroyed is not used any more.
pub(in crate::task) unsafe trait BlockContent: Sized {
    #[doc(hidden)]
    const VTABLE: &'static BlockVtable = &BlockVtable {
        // SAFETY: the block was made for this type.
        abandon: |content, polling| unsafe { Self::abandon(content.cast(), polling) },
        // SAFETY: as above.
        sweep: |content| unsafe { Self::sweep(content.cast()) },
    };

    /// The future of the frame is gone: asks what is in flight to stop.
    ///
    /// # Safety
    ///
    /// The block has not ended. It is of that frame. This is called once.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer;

    /// Destroys the content if that was left to the frame, and says whether it did: then the block ends. It may be called any
    /// number of times, also by what it destroys, and destroys once.
    ///
    /// # Safety
    ///
    /// The block has not ended. The caller polls the frame, or frees it.
    unsafe fn sweep(this: NonNull<Self>) -> bool {
        let _ = this;
        false
    }
}

/// What is known of the content of a block.
pub(in crate::task) struct BlockVtable {
    abandon: unsafe fn(NonNull<()>, Polling<'_>) -> Transfer,
    sweep: unsafe fn(NonNull<()>) -> bool,
}

/// What offsets count.
const UNIT: usize = 16;
const FREE: u32 = 1;
const HEAD: usize = size_of::<Chunk>();
/// The head of a block: one unit, but in a model, where atomics are larger.
const BLOCK: usize = size_of::<Block>();
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

const _: () = assert!((BLOCK == UNIT || cfg!(loom)) && BLOCK.is_multiple_of(UNIT) && HEAD.is_multiple_of(UNIT));

/// Where chunks come from: the allocator of the frame.
pub(super) trait Source {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;
    /// # Safety
    ///
    /// The memory is from this source, of this layout, and not used any more.
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout);
}

impl Memory {
    pub(super) const fn new() -> Self {
        Memory(Cell::new(ptr::null_mut()))
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
        source: &impl Source,
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
    /// As for [`allocate`](Memory::allocate).
    #[cold]
    unsafe fn allocate_slowly(
        &self,
        content: Layout,
        vtable: &'static BlockVtable,
        source: &impl Source,
    ) -> Option<NonNull<()>> {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(chunk) = NonNull::new(self.0.get()) {
                // The others are not looked at, so that many blocks cost no more each than few. The destructors that run here may
                // begin and end blocks, in a newer chunk as well. This chunk stays: the block that is destroyed has not ended.
                Chunk::each(chunk, |block| {
                    Block::sweep(block);
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
                    // It is empty, and too small. The next one is larger, and takes its place.
                    self.0.set(chunk.as_ref().previous);
                    Chunk::deallocate(chunk, source);
                } else if chunk.as_ref().chunks >= chunk.as_ref().limit {
                    Memory::pop_all(chunk, source);
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
            let (chunks, limit) = previous.as_ref().map_or((0, FEW), |chunk| (chunk.chunks, chunk.limit));
            chunk.write(Chunk {
                previous,
                size: (size / UNIT) as u32,
                last: 0,
                chunks: chunks.saturating_add(1),
                limit,
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
    pub(super) unsafe fn free(&self, content: NonNull<()>, source: &impl Source) {
        // SAFETY: the caller's promise. There is a chunk, as there is a block.
        unsafe {
            let (chunk, block) = (NonNull::new_unchecked(self.0.get()), Block::of(content));
            let last = chunk.as_ref().last;
            if last != 0 && Chunk::block(chunk, last) == block && block.as_ref().previous == 0 {
                // It is the only one in the newest chunk, as most are.
                block.as_ref().content.claim();
                (*chunk.as_ptr()).last = 0;
                if !chunk.as_ref().previous.is_null() {
                    Memory::pop_beneath(chunk, source);
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
    unsafe fn pop(&self, source: &impl Source) {
        if let Some(chunk) = NonNull::new(self.0.get())
            // SAFETY: the chunk is alive, and the caller's.
            && unsafe { Chunk::pop(chunk) && !chunk.as_ref().previous.is_null() }
        {
            // SAFETY: as above.
            unsafe { Memory::pop_beneath(chunk, source) };
        }
    }

    /// # Safety
    ///
    /// The chunk is the caller's.
    #[cold]
    unsafe fn pop_beneath(newest: NonNull<Chunk>, source: &impl Source) {
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
    unsafe fn pop_all(newest: NonNull<Chunk>, source: &impl Source) {
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
    unsafe fn each(&self, mut visit: impl FnMut(NonNull<Block>)) {
        let mut chunk = self.0.get();
        while let Some(at) = NonNull::new(chunk) {
            // SAFETY: the chunk is alive, and the caller's.
            unsafe {
                Chunk::each(at, &mut visit);
                chunk = at.as_ref().previous;
            }
        }
    }

    /// Destroys what is the frame's to destroy. Returns how many blocks have not ended.
    ///
    /// # Safety
    ///
    /// As for [`each`](Memory::each).
    pub(super) unsafe fn sweep(&self) -> usize {
        let mut left = 0;
        // SAFETY: the caller's promise. A block that was swept is not used any more.
        unsafe {
            self.each(|block| left += usize::from(!Block::sweep(block)));
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
        unsafe { self.each(|block| resumed((block.as_ref().vtable.abandon)(Block::content(block), polling))) };
    }

    /// Gives all chunks back.
    ///
    /// # Safety
    ///
    /// The caller frees the frame, so that all blocks have ended, or are swept here.
    pub(super) unsafe fn release(&self, source: &impl Source) {
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

impl Chunk {
    fn bytes(&self) -> usize {
        self.size as usize * UNIT
    }

    /// # Safety
    ///
    /// The offset is that of a block in the chunk.
    #[inline]
    unsafe fn block(this: NonNull<Chunk>, offset: u32) -> NonNull<Block> {
        // SAFETY: the caller's promise.
        unsafe { this.byte_add(offset as usize * UNIT).cast() }
    }

    /// Calls `visit` with every block that has not ended, the newest first.
    ///
    /// # Safety
    ///
    /// The chunk is the caller's. `visit` may end the block. A block that it begins is written when it returns.
    unsafe fn each(this: NonNull<Chunk>, mut visit: impl FnMut(NonNull<Block>)) {
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
    unsafe fn top(this: NonNull<Chunk>) -> usize {
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
    unsafe fn bump(this: NonNull<Chunk>, content: Layout, vtable: &'static BlockVtable) -> Option<NonNull<()>> {
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
            let block = this.byte_add(head).cast::<Block>();
            let previous = (*this.as_ptr()).last;
            (*this.as_ptr()).last = (head / UNIT) as u32;
            block.write(Block {
                vtable,
                previous,
                word: AtomicU32::new(((end - head) / UNIT) as u32 * 2),
                content: Owned::new(),
            });
            Some(Block::content(block))
        }
    }

    /// Takes a block that has ended and is large enough.
    ///
    /// # Safety
    ///
    /// As for [`bump`](Chunk::bump).
    unsafe fn reuse(this: NonNull<Chunk>, content: Layout, vtable: &'static BlockVtable) -> Option<NonNull<()>> {
        // SAFETY: the caller's promise.
        unsafe {
            let mut offset = this.as_ref().last;
            while offset != 0 {
                let mut block = Chunk::block(this, offset);
                offset = block.as_ref().previous;
                let place = Block::content(block);
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
    unsafe fn pop(this: NonNull<Chunk>) -> bool {
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
    unsafe fn deallocate(this: NonNull<Chunk>, source: &impl Source) {
        // SAFETY: the caller's promise; this is the layout that it was allocated with.
        unsafe {
            let layout = Layout::from_size_align_unchecked(this.as_ref().bytes(), align_of::<Chunk>());
            source.deallocate(this.cast(), layout);
        }
    }
}

impl Block {
    #[inline]
    fn units(&self) -> u32 {
        self.word.load(Relaxed) / 2
    }

    #[inline]
    fn has_ended(&self) -> bool {
        self.word.load(Acquire) & FREE != 0
    }

    #[inline]
    fn end(&self, order: Ordering) {
        self.content.claim();
        if cfg!(loom) {
            // `loom` overlooks that another thread loads before this one loads and stores.
            self.word.fetch_or(FREE, order);
        } else {
            // The rest of the word does not change.
            self.word.store(self.word.load(Relaxed) | FREE, order);
        }
    }

    /// Destroys the content, if that is the frame's to do, and ends the block. `false` where it goes on.
    ///
    /// # Safety
    ///
    /// The caller owns the memory. The block has not ended. It does so when its content was destroyed, so what that begins or ends
    /// meanwhile, in the same memory, leaves it and those before it where they are.
    unsafe fn sweep(this: NonNull<Block>) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let swept = (this.as_ref().vtable.sweep)(Block::content(this));
            if swept {
                this.as_ref().end(Relaxed);
            }
            swept
        }
    }

    /// Where the content of a block is.
    fn content(this: NonNull<Block>) -> NonNull<()> {
        // SAFETY: the content follows the head.
        unsafe { this.add(1).cast() }
    }

    /// The block of a content.
    ///
    /// # Safety
    ///
    /// It is the content of a block.
    unsafe fn of(content: NonNull<()>) -> NonNull<Block> {
        // SAFETY: the caller's promise.
        unsafe { content.cast::<Block>().sub(1) }
    }

    /// Ends a block. The owner of the memory pops it later.
    ///
    /// # Safety
    ///
    /// It is the content of a block, destroyed, and not touched any more. The frame is alive until this returns.
    pub(in crate::task) unsafe fn set_free(content: NonNull<()>) {
        // SAFETY: the caller's promise.
        unsafe { Block::of(content).as_ref() }.end(Release);
    }
}
