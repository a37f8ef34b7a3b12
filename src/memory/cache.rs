//! A per-thread cache of freed memory blocks, for the frames of child tasks.
//!
//! Children are spawned and freed at high rates, in a few sizes, and often end on another thread than they began on.
//! That pattern is slow in most allocators. So each thread caches up to `KEPT` freed blocks of each size class.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator, Global};

/// The global allocator with a per-thread cache.
///
/// Block sizes are multiples of `STEP`, up to `LARGEST`. A thread frees its cached blocks when it ends. Under
/// sanitizers and `loom` the cache is empty, so that they see each allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cached;

const STEP: usize = 64;
const LARGEST: usize = 1024;
const CLASSES: usize = LARGEST / STEP;
/// The alignment of cached blocks. Allocations with a larger alignment are not cached.
const ALIGN: usize = 16;
const KEPT: u32 = if cfg!(any(loom, sanitized)) { 0 } else { 64 };

/// The cached blocks of one size class, linked by their first word.
struct Blocks {
    first: Cell<*mut u8>,
    number: Cell<u32>,
}

/// The cached blocks of one thread, by size class.
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
                // SAFETY: `push` stored a block of this class, which the cache owns.
                unsafe { Global.deallocate(block, layout_of(class)) };
            }
        }
    }
}

impl Blocks {
    #[inline]
    fn pop(&self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first.get())?;
        // SAFETY: `push` wrote the address of the next block into the first word.
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
        // SAFETY: the caller passes ownership of the block, which is at least `STEP` bytes and aligned to `ALIGN`.
        unsafe { block.cast::<*mut u8>().write(self.first.get()) };
        self.first.set(block.as_ptr());
        self.number.set(number + 1);
        true
    }
}

/// Returns the size class of a layout, or `None` if such blocks are not cached.
#[inline]
fn class_of(layout: Layout) -> Option<usize> {
    let kept = layout.size().wrapping_sub(1) < LARGEST && layout.align() <= ALIGN;
    kept.then(|| (layout.size() - 1) / STEP)
}

/// Returns the layout of the blocks of a class.
#[inline]
fn layout_of(class: usize) -> Layout {
    // SAFETY: `ALIGN` is a power of two, and the size is at most `LARGEST`.
    unsafe { Layout::from_size_align_unchecked((class + 1) * STEP, ALIGN) }
}

// SAFETY: blocks are from the global allocator. Their layout depends only on the requested one, and fits it.
unsafe impl Allocator for Cached {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Some(class) = class_of(layout) else {
            return Global.allocate(layout);
        };
        // The access fails while the thread's destructors run.
        if let Ok(Some(block)) = KEPT_BLOCKS.try_with(|kept| kept.0[class].pop()) {
            return Ok(NonNull::slice_from_raw_parts(block, layout.size()));
        }
        Global.allocate(layout_of(class))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let Some(class) = class_of(layout) else {
            // SAFETY: such a block was allocated from the global allocator with `layout`, by `allocate`.
            return unsafe { Global.deallocate(block, layout) };
        };
        if !KEPT_BLOCKS.try_with(|kept| kept.0[class].push(block)).unwrap_or(false) {
            // SAFETY: `allocate` used this layout for the class.
            unsafe { Global.deallocate(block, layout_of(class)) };
        }
    }
}
