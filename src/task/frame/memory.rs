//! The memory that a frame owns for operations, scopes, and everything else that work in flight points at.
//!
//! A future can be dropped, moved or forgotten while its operation is in flight. So the operation does not live in the
//! future. It lives in a *block* of its frame's memory, and the frame is not done before the work of the block has ended.
//!
//! Each block is one allocation of the frame's allocator. The blocks of a frame form a ring. A block that has ended stays
//! there, and the next content that fits takes it over. So awaits that suspend in a loop allocate once. Every allocation
//! looks at a few blocks only, and the place where it looks moves round the ring. So the cost of a block does not grow with
//! their number, and only a few times as many are kept as are in use.
//!
//! # Who may access what
//!
//! The *owner* of the memory is the thread that polls or frees the frame. It has exclusive access to the ring and the heads
//! of its blocks, except `has_ended`. Any thread may [end](Block::end) a block, its last access. The frame's counts keep the
//! memory alive: a block in flight is an await, or its future holds a reference.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::{Header, Polling, header_of};
use crate::Transfer;
use crate::sender::stage::container_of;
use crate::sync::Owned;
use crate::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// How many blocks are looked at when the next one cannot be taken. More of them keep the ring shorter. At least two, so
/// that a block that is too small is passed over for one behind it: a loop whose awaits have several sizes, nested in any
/// order, soon has all the blocks that it needs.
const LOOKED_AT: usize = 4;
/// How many times in a row a block is not needed before it is deallocated. A loop whose rounds have several awaits keeps its blocks.
const SPARED: u8 = 16;

/// A content with its head.
#[repr(C)]
pub(in crate::task) struct Block<T> {
    head: BlockHead,
    content: T,
}

/// The head of a block, which precedes its content: three words.
pub(super) struct BlockHead {
    /// The next block of the ring.
    next: Cell<NonNull<BlockHead>>,
    /// The functions of the content.
    vtable: Cell<&'static BlockVtable>,
    /// The size that the block was allocated with.
    size: u32,
    /// The binary logarithm of the alignment that the block was allocated with.
    align: u8,
    /// Whether the content was destroyed. The thread that ends the block stores `true` with release. That pairs with the
    /// acquire load of the owner, which clears it to use the block again.
    has_ended: AtomicBool,
    /// How many times in a row the block had ended when the one before it was taken. From [`SPARED`] on the frame needs fewer.
    spared: Cell<u8>,
    /// Claimed by the party that ends the block, and then by the owner.
    content: Owned,
}

/// The content of a block. Another party owns it, until that ends the block or leaves it to the frame.
///
/// # Safety
///
/// Content for which `sweep` returned `true` is not used afterwards.
pub(in crate::task) unsafe trait BlockContent: Sized {
    #[doc(hidden)]
    const VTABLE: &'static BlockVtable = &BlockVtable {
        layout: {
            assert!(
                size_of::<Block<Self>>() as u64 <= u32::MAX as u64,
                "an operation of a task has up to 4 GiB"
            );
            Layout::new::<Block<Self>>()
        },
        // SAFETY: `VTABLE` is used for blocks of this type only; the rest is what both functions ask for.
        abandon: |block, polling| unsafe { Self::abandon(Block::content(block), polling) },
        // SAFETY: as for `abandon`.
        sweep: |block| unsafe { Self::sweep(Block::content(block)) },
        // SAFETY: as for `abandon`.
        holds: |block| unsafe { Self::holds(Block::content(block)) },
    };

    /// Asks the work in flight to stop, because the future of the frame was dropped.
    ///
    /// # Safety
    ///
    /// The block belongs to the polled frame and has not ended. This is called once.
    unsafe fn abandon(this: NonNull<Self>, polling: Polling<'_>) -> Transfer;

    /// Destroys the content if it was left to the frame, and returns whether it did; then the block ends. May be called any
    /// number of times, even by a destructor that it runs, and destroys once.
    ///
    /// # Safety
    ///
    /// The block has not ended. The caller polls the frame, or frees it.
    unsafe fn sweep(_: NonNull<Self>) -> bool {
        false
    }

    /// Returns whether the future of the frame is not to be dropped because of a stop, even if its last poll did not reach
    /// this.
    ///
    /// # Safety
    ///
    /// As for [`sweep`](BlockContent::sweep).
    unsafe fn holds(_: NonNull<Self>) -> bool {
        false
    }
}

/// The layout of a block, and the type-erased functions of its content.
pub(in crate::task) struct BlockVtable {
    layout: Layout,
    abandon: unsafe fn(NonNull<BlockHead>, Polling<'_>) -> Transfer,
    sweep: unsafe fn(NonNull<BlockHead>) -> bool,
    holds: unsafe fn(NonNull<BlockHead>) -> bool,
}

impl<T> Block<T> {
    /// # Safety
    ///
    /// The block has the layout of this type.
    #[inline]
    unsafe fn content(head: NonNull<BlockHead>) -> NonNull<T> {
        // SAFETY: the caller's promise; the head is the first field.
        unsafe { NonNull::new_unchecked(&raw mut (*head.cast::<Block<T>>().as_ptr()).content) }
    }

    /// Ends a block. The owner of the memory uses it again, or deallocates it.
    ///
    /// # Safety
    ///
    /// The content is that of a block, destroyed and unused from now on. The frame is alive during the call.
    #[inline]
    pub(in crate::task) unsafe fn end(content: NonNull<T>) {
        // SAFETY: the caller's promise; the head is alive as long as the frame.
        unsafe { container_of!(content, Block<T>, content).cast::<BlockHead>().as_ref() }.end();
    }
}

impl BlockHead {
    #[inline]
    fn has_ended(&self) -> bool {
        self.has_ended.load(Acquire)
    }

    #[inline]
    fn end(&self) {
        self.content.claim();
        self.has_ended.store(true, Release);
    }

    /// Returns whether the block was allocated with room for a content.
    #[inline]
    fn has_room(&self, content: &BlockVtable) -> bool {
        let layout = self.layout();
        layout.size() >= content.layout.size() && layout.align() >= content.layout.align()
    }

    /// Returns the layout that the block was allocated with.
    #[inline]
    fn layout(&self) -> Layout {
        // SAFETY: these are the parts of a valid layout.
        unsafe { Layout::from_size_align_unchecked(self.size as usize, 1 << self.align) }
    }

    /// Destroys the content if that was left to the frame, and then ends the block. Returns whether it did.
    ///
    /// # Safety
    ///
    /// The caller owns the memory, and the block has not ended. Destructors may change the ring. This block stays in it,
    /// because it ends last.
    unsafe fn sweep(this: NonNull<BlockHead>) -> bool {
        // SAFETY: the caller owns the memory, so it polls or frees the frame. The content is of the vtable's type.
        unsafe {
            let head = this.as_ref();
            let swept = (head.vtable.get().sweep)(this);
            if swept {
                head.end();
            }
            swept
        }
    }
}

/// The owner of the memory calls these, except [`allocate`](Header::allocate) and [`deallocate`](Header::deallocate).
impl Header {
    /// Returns whether a block has not ended.
    #[inline]
    pub(super) fn has_blocks(&self) -> bool {
        let mut found = false;
        if !self.blocks.get().is_null() {
            self.each_block(|_| found = true);
        }
        found
    }

    /// Calls `visit` with every block that has not ended. `visit` may end the block, and does not change the ring.
    #[inline]
    fn each_block(&self, mut visit: impl FnMut(NonNull<BlockHead>)) {
        let Some(last) = NonNull::new(self.blocks.get()) else {
            return;
        };
        let mut at = last;
        loop {
            at = head_of(at).next.get();
            if !head_of(at).has_ended() {
                visit(at);
            }
            if at == last {
                return;
            }
        }
    }

    /// Allocates a block for a content, which the caller writes. `None` if the allocator has no memory.
    ///
    /// # Safety
    ///
    /// The caller polls the frame. It writes the content before any other use of the memory.
    #[inline]
    pub(super) unsafe fn allocate_block<T: BlockContent>(this: NonNull<Header>) -> Option<NonNull<T>> {
        // SAFETY: the caller owns the memory, and writes the content that the vtable expects.
        unsafe {
            let header = header_of(this);
            if let Some(last) = NonNull::new(header.blocks.get()) {
                let first = head_of(last).next.get();
                let second = head_of(head_of(first).next.get());
                let are_both_free = head_of(first).has_ended() && second.has_ended();
                if are_both_free && !ptr::eq(head_of(first), second) {
                    second.spared.set(second.spared.get() + 1);
                    if second.spared.get() == SPARED {
                        Header::remove_after(this, first);
                    }
                }
            }
            let taken = header.take_block(T::VTABLE);
            let block = taken.or_else(|| Header::allocate_slowly(this, T::VTABLE))?;
            Some(Block::content(block))
        }
    }

    /// Takes the next block of the ring, if it has ended and is large enough.
    #[inline]
    fn take_block(&self, vtable: &'static BlockVtable) -> Option<NonNull<BlockHead>> {
        let block = head_of(NonNull::new(self.blocks.get())?).next.get();
        let head = head_of(block);
        if !head.has_ended() || !head.has_room(vtable) {
            return None;
        }
        head.content.claim();
        head.vtable.set(vtable);
        head.spared.set(0);
        // Published by whatever makes the content known to another thread.
        head.has_ended.store(false, Relaxed);
        Some(block)
    }

    /// Allocates a block when the next one is in use or too small.
    ///
    /// # Safety
    ///
    /// As for [`allocate_block`](Header::allocate_block).
    #[cold]
    unsafe fn allocate_slowly(this: NonNull<Header>, vtable: &'static BlockVtable) -> Option<NonNull<BlockHead>> {
        let header = header_of(this);
        // SAFETY: the caller owns the memory. Destructors and the allocator are user code, which may change the ring: it is
        // read again after each of them.
        unsafe {
            for look in 1..=LOOKED_AT {
                let Some(last) = NonNull::new(header.blocks.get()) else {
                    break;
                };
                let block = head_of(last).next.get();
                if !head_of(block).has_ended() && !BlockHead::sweep(block) {
                    header.blocks.set(block.as_ptr());
                } else if let Some(block) = header.take_block(vtable) {
                    return Some(block);
                } else if let Some(last) = NonNull::new(header.blocks.get()) {
                    // Too small, unless a destructor took it. The new block replaces the last one of these.
                    if look == LOOKED_AT {
                        Header::remove_after(this, last);
                    } else {
                        header.blocks.set(head_of(last).next.get().as_ptr());
                    }
                }
            }
            let block = Header::allocate(this, vtable.layout)?.cast::<BlockHead>();
            let last = NonNull::new(header.blocks.replace(block.as_ptr()));
            block.write(BlockHead {
                next: Cell::new(last.map_or(block, |last| head_of(last).next.replace(block))),
                vtable: Cell::new(vtable),
                // `VTABLE` checks that it fits.
                size: vtable.layout.size() as u32,
                align: vtable.layout.align().trailing_zeros() as u8,
                has_ended: AtomicBool::new(false),
                spared: Cell::new(0),
                content: Owned::new(),
            });
            Some(block)
        }
    }

    /// Deallocates the block after this one, if it has ended.
    ///
    /// # Safety
    ///
    /// `before` is in the ring.
    #[cold]
    unsafe fn remove_after(this: NonNull<Header>, before: NonNull<BlockHead>) {
        let header = header_of(this);
        let block = head_of(before).next.get();
        let head = head_of(block);
        if !head.has_ended() {
            return;
        }
        head.content.claim();
        // The ring is consistent before the allocator, which is user code, is called.
        head_of(before).next.set(head.next.get());
        if header.blocks.get() == block.as_ptr() {
            header.blocks.set(if block == before {
                ptr::null_mut()
            } else {
                before.as_ptr()
            });
        }
        // SAFETY: the block was allocated with this layout.
        unsafe { Header::deallocate(this, block.cast(), head.layout()) };
    }

    /// Notes an orphan, which [`sweep_some`](Header::sweep_some) destroys after its completion.
    pub(super) fn add_orphan(&self) {
        let before = self.orphans.get();
        self.orphans.set(before.saturating_add(1));
        if before == 0 {
            self.sweep_after.set(1);
        }
    }

    /// Destroys orphans that have completed. The more there are, the less often it looks for them.
    ///
    /// # Safety
    ///
    /// As for [`sweep`](Header::sweep).
    #[inline]
    pub(super) unsafe fn sweep_some(&self) {
        let orphans = self.orphans.get();
        if orphans == 0 {
            return;
        }
        self.sweep_after.set(self.sweep_after.get() - 1);
        if self.sweep_after.get() == 0 {
            // SAFETY: this function asks for the same.
            let left = unsafe { self.sweep() }.min(orphans.into()) as u8;
            self.orphans.set(left);
            self.sweep_after.set(left.max(1));
        }
    }

    /// Destroys every content that was left to the frame. Returns how many blocks have not ended.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, which is not the current one, or frees it. So no block begins.
    pub(super) unsafe fn sweep(&self) -> usize {
        let mut left = 0;
        // SAFETY: the caller owns the memory, and `each_block` visits blocks that have not ended.
        self.each_block(|block| left += usize::from(!unsafe { BlockHead::sweep(block) }));
        left
    }

    /// Returns whether a content [holds](BlockContent::holds) the future of the frame.
    pub(super) fn has_holding_block(&self) -> bool {
        let mut holds = false;
        // SAFETY: the caller owns the memory, and `each_block` visits blocks that have not ended.
        self.each_block(|block| holds |= unsafe { (head_of(block).vtable.get().holds)(block) });
        holds
    }

    /// Asks everything in flight to stop, because the future of the frame was dropped.
    ///
    /// # Safety
    ///
    /// The token is for this frame, which is not the current one. This is called once.
    pub(super) unsafe fn abandon_blocks(&self, polling: Polling<'_>, resumed: &mut Transfer) {
        // SAFETY: the caller polls the frame, and `each_block` visits each block once.
        self.each_block(|block| resumed.append(unsafe { (head_of(block).vtable.get().abandon)(block, polling) }));
    }

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

    /// Destroys the blocks that were left to the frame, and deallocates its memory.
    ///
    /// # Safety
    ///
    /// The caller frees the frame, so all blocks have ended, or are swept here.
    #[inline]
    pub(in crate::task) unsafe fn release_memory(this: NonNull<Header>) {
        if !header_of(this).blocks.get().is_null() {
            // SAFETY: this function asks for the same.
            unsafe { Header::release_blocks(this) };
        }
    }

    /// # Safety
    ///
    /// As for [`release_memory`](Header::release_memory).
    #[inline(never)]
    unsafe fn release_blocks(this: NonNull<Header>) {
        let header = header_of(this);
        // SAFETY: a thread that frees the frame owns its memory, and every block has ended after the sweep.
        unsafe {
            header.sweep();
            while let Some(last) = NonNull::new(header.blocks.get()) {
                assert!(head_of(last).has_ended(), "a block outlives its frame");
                Header::remove_after(this, last);
            }
        }
    }
}

/// Returns the head of a block in the ring of a frame that is alive.
fn head_of<'a>(block: NonNull<BlockHead>) -> &'a BlockHead {
    // SAFETY: a block is deallocated after it was removed from the ring, and the caller owns the memory.
    unsafe { block.as_ref() }
}
