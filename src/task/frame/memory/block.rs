//! Blocks: pieces of a chunk, each with a head that says what is in it.

use core::ptr::NonNull;

use crate::Transfer;
use crate::sync::Owned;
use crate::sync::atomic::{
    AtomicU32, Ordering,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::Polling;

const FREE: u32 = 1;

/// The head of a block. What is in the block follows it.
#[repr(C, align(16))]
pub(in crate::task) struct BlockHead {
    pub(super) vtable: &'static BlockVtable,
    /// The block before it in its chunk, or zero. Padding may lie between the two.
    pub(super) previous: u32,
    /// Twice the size of the block, with its head, which does not change; and [`FREE`] once the block has ended.
    ///
    /// `FREE` is stored with release by the thread that ends the block, and read with acquire by the owner of the memory,
    /// which clears it when it uses the block again.
    pub(super) word: AtomicU32,
    /// The memory of the content: claimed by the party that ends the block, and then by the owner of the memory.
    pub(super) content: Owned,
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
    pub(super) unsafe fn sweep(this: NonNull<BlockHead>) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            let swept = (this.as_ref().vtable.sweep)(BlockHead::content(this));
            if swept {
                this.as_ref().end(Relaxed);
            }
            swept
        }
    }

    /// Where the content of a block is.
    pub(super) fn content(this: NonNull<BlockHead>) -> NonNull<()> {
        // SAFETY: the content follows the head.
        unsafe { this.add(1).cast() }
    }

    /// The block of a content.
    ///
    /// # Safety
    ///
    /// It is the content of a block.
    pub(super) unsafe fn of(content: NonNull<()>) -> NonNull<BlockHead> {
        // SAFETY: the caller's promise.
        unsafe { content.cast::<BlockHead>().sub(1) }
    }

    /// Ends a block. The owner of the memory pops it later.
    ///
    /// # Safety
    ///
    /// It is the content of a block, destroyed, and not touched any more. The frame is alive until this returns.
    pub(in crate::task) unsafe fn set_free(content: NonNull<()>) {
        // SAFETY: the caller's promise.
        unsafe { BlockHead::of(content).as_ref() }.end(Release);
    }
}
