//! Memory that a thread keeps for the next child it spawns.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator, Global};

/// The global allocator, with a few blocks kept back by each thread: children come and go by the million, are all of a few
/// sizes, and often end on another thread than the one they were made on, which is what most allocators are worst at.
///
/// Blocks are of sizes that are multiples of `STEP`, up to `LARGEST`; of each a thread keeps no more than `KEPT`. What a
/// thread has kept is given back when it ends. Sanitizers and models get to see every block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cached;

const STEP: usize = 64;
const LARGEST: usize = 1024;
const CLASSES: usize = LARGEST / STEP;
/// What is kept is aligned to this, and what asks for more is not kept.
const ALIGN: usize = 16;
const KEPT: u32 = if cfg!(any(loom, sanitized)) { 0 } else { 64 };

/// The blocks of one size, linked by their first word.
struct Blocks {
    first: Cell<*mut u8>,
    number: Cell<u32>,
}

struct ThreadCache([Blocks; CLASSES]);

std::thread_local! {
    static KEPT_BLOCKS: ThreadCache = const {
        ThreadCache([const { Blocks { first: Cell::new(ptr::null_mut()), number: Cell::new(0) } }; CLASSES])
    };
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        for (class, blocks) in self.0.iter().enumerate() {
            while let Some(block) = blocks.pop() {
                // SAFETY: it is of this class, and nobody's.
                unsafe { Global.deallocate(block, layout_of(class)) };
            }
        }
    }
}

impl Blocks {
    #[inline]
    fn pop(&self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first.get())?;
        // SAFETY: a block that is kept holds the next in its first word.
        self.first.set(unsafe { block.cast::<*mut u8>().read() });
        self.number.set(self.number.get() - 1);
        Some(block)
    }

    #[inline]
    fn push(&self, block: NonNull<u8>) -> bool {
        let number = self.number.get();
        if number >= KEPT {
            return false;
        }
        // SAFETY: it is ours, there is room for a word, and it is aligned.
        unsafe { block.cast::<*mut u8>().write(self.first.get()) };
        self.first.set(block.as_ptr());
        self.number.set(number + 1);
        true
    }
}

/// The class of a block, if such are kept.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let kept = layout.size().wrapping_sub(1) < LARGEST && layout.align() <= ALIGN;
    kept.then(|| (layout.size() - 1) / STEP)
}

/// What is allocated for a class.
#[inline]
fn layout_of(class: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and the size is small.
    unsafe { Layout::from_size_align_unchecked((class + 1) * STEP, ALIGN) }
}

// SAFETY: blocks are the global allocator's, of a layout that depends on the one asked for alone, and fits it.
unsafe impl Allocator for Cached {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Some(class) = class_of(layout) else {
            return Global.allocate(layout);
        };
        // There are none once the thread ends.
        if let Ok(Some(block)) = KEPT_BLOCKS.try_with(|kept| kept.0[class].pop()) {
            return Ok(NonNull::slice_from_raw_parts(block, layout.size()));
        }
        Global.allocate(layout_of(class))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: by the caller's promise.
            return unsafe { Global.deallocate(block, layout) };
        };
        if !KEPT_BLOCKS.try_with(|kept| kept.0[class].push(block)).unwrap_or(false) {
            // SAFETY: it was allocated with this layout.
            unsafe { Global.deallocate(block, layout_of(class)) };
        }
    }
}
