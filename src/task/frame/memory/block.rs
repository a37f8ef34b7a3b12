//! Blocks: pieces of a chunk, each with a head that describes its content.

use core::ptr::NonNull;

use crate::Transfer;
use crate::sync::Owned;
use crate::sync::atomic::{
    AtomicU32, Ordering,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::Polling;

const FREE: u32 = 1;

/// The head of a block, which precedes its content.
#[repr(C, align(16))]
pub(in crate::task) struct BlockHead {
    pub(super) vtable: &'static BlockVtable,
    /// The offset of the block before it in its chunk, or zero. Padding may lie between the two.
    pub(super) previous: u32,
    /// Twice the size of the block with its head, which does not change, plus [`FREE`] once the block has ended.
    ///
    /// The thread that ends the block stores `FREE` with release. That pairs with the acquire load of the memory's owner,
    /// which clears `FREE` to use the block again.
    pub(super) word: AtomicU32,
    /// Claimed by the party that ends the block, and then by the memory's owner.
    pub(super) content: Owned,
}

/// The content of a block. Another party owns it, until that ends the block or leaves it to the frame.
///
/// # Safety
///
/// Content for which `sweep` returned `true` is not used afterwards.
pub(in crate::task) unsafe trait BlockContent: Sized {
    #[doc(hidden)]
    const VTABLE: &'static BlockVtable = &BlockVtable {
        // SAFETY: `VTABLE` is used for blocks of this type only; the rest is what both functions ask for.
        abandon: |content, polling| unsafe { Self::abandon(content.cast(), polling) },
        // SAFETY: as for `abandon`.
        sweep: |content| unsafe { Self::sweep(content.cast()) },
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
}

/// The type-erased functions of a block's content.
pub(in crate::task) struct BlockVtable {
    pub(super) abandon: unsafe fn(NonNull<()>, Polling<'_>) -> Transfer,
    sweep: unsafe fn(NonNull<()>) -> bool,
}

impl BlockHead {
    #[inline]
    pub(super) fn units(&self) -> u32 {
        self.word.load(Relaxed) / 2
    }

    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.word.load(Acquire) & FREE != 0
    }

    #[inline]
    pub(super) fn end(&self, order: Ordering) {
        self.content.claim();
        if cfg!(loom) {
            // `loom` misses that another thread loads before this one loads and stores.
            self.word.fetch_or(FREE, order);
        } else {
            // The rest of the word does not change.
            self.word.store(self.word.load(Relaxed) | FREE, order);
        }
    }

    /// Destroys the content if that was left to the frame, and then ends the block. Returns whether it did.
    ///
    /// # Safety
    ///
    /// The caller owns the memory, and the block has not ended. Destructors may begin and end blocks in the same memory.
    /// This block and those before it stay, because it ends last.
    pub(super) unsafe fn sweep(this: NonNull<BlockHead>) -> bool {
        // SAFETY: the caller owns the memory, so it polls or frees the frame. The content is of the vtable's type.
        unsafe {
            let swept = (this.as_ref().vtable.sweep)(BlockHead::content(this));
            if swept {
                this.as_ref().end(Relaxed);
            }
            swept
        }
    }

    /// Returns the address of a block's content.
    pub(super) fn content(this: NonNull<BlockHead>) -> NonNull<()> {
        // SAFETY: the content follows the head.
        unsafe { this.add(1).cast() }
    }

    /// Returns the block of a content.
    ///
    /// # Safety
    ///
    /// The address is that of a block's content.
    pub(super) unsafe fn of(content: NonNull<()>) -> NonNull<BlockHead> {
        // SAFETY: the caller's promise.
        unsafe { content.cast::<BlockHead>().sub(1) }
    }

    /// Ends a block. The owner of the memory pops it later.
    ///
    /// # Safety
    ///
    /// The address is that of a block's content, destroyed and unused from now on. The frame is alive during the call.
    pub(in crate::task) unsafe fn set_free(content: NonNull<()>) {
        // SAFETY: the head precedes the content, and lives as long as the frame.
        unsafe { BlockHead::of(content).as_ref() }.end(Release);
    }
}
