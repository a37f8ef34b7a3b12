//! Memory for the frames of tasks, their blocks, and the cores of groups, which each thread keeps in slabs.
//!
//! Tasks are made and freed at high rates, in a few sizes, and often end on another thread than they began on.
//! That pattern is slow in most allocators.
//!
//! | file | contents |
//! |---|---|
//! | `slab.rs` | [`Slab`](slab::Slab): aligned memory with slots of one size, its states, and its free slots |
//! | `heap.rs` | [`Heap`](heap::Heap): the slabs that one thread owns |
//! | `depot.rs` | [`Depot`](depot::Depot): the slabs without an owner |
//!
//! # Why it is fast
//!
//! A thread allocates from slabs that it owns, without an atomic read-modify-write. It frees slots of its own slabs in the
//! same way. A full slab has no owner, and a thread that frees one of its slots becomes the owner. So slabs move to the
//! threads that free, and most frees of a thread are frees of its own slots.
//!
//! # What is kept
//!
//! A heap has at most a few slabs of each size, and a few empty ones. The depot keeps a fraction of the slabs in use, and
//! a constant number. All other empty slabs are freed once they were not needed for a few seconds, by the threads that go on,
//! or by threads that rest: see [`tidy`] and [`release`]. Slabs with used and free slots are reused before empty ones.

mod depot;
mod heap;
#[cfg(loom)]
pub(crate) mod model;
mod slab;

use core::alloc::Layout;
use core::ptr::NonNull;
use core::time::Duration;

use allocator_api2::alloc::{AllocError, Allocator, Global};

/// The global allocator with slabs that each thread keeps.
///
/// Slots have up to `LARGEST` bytes. Under AddressSanitizer and `loom` there are no slabs, so that these tools
/// see each allocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cached;

/// Up to this size, classes are `STEP` apart, and above `LARGE_STEP`.
const SMALL: usize = 1024;
const STEP: usize = 16;
const LARGEST: usize = 4096;
const LARGE_STEP: usize = 128;
const SMALL_CLASSES: usize = SMALL / STEP;
const CLASSES: usize = SMALL_CLASSES + (LARGEST - SMALL) / LARGE_STEP;
/// The alignment of slots. Allocations with a larger alignment are from the global allocator.
const ALIGN: usize = 16;

/// Returns the size class of a layout, or `None` if such memory is not from a slab.
#[inline(always)]
fn class_of(layout: Layout) -> Option<usize> {
    let cached = layout.size().wrapping_sub(1) < LARGEST && layout.align() <= ALIGN;
    (cached && cfg!(not(any(loom, sanitized = "address")))).then(|| match layout.size() - 1 {
        small @ ..SMALL => small / STEP,
        large => SMALL_CLASSES + (large - SMALL) / LARGE_STEP,
    })
}

/// Returns the size of the slots of a class.
#[inline]
fn size_of_class(class: usize) -> usize {
    match class + 1 {
        small @ ..=SMALL_CLASSES => small * STEP,
        large => SMALL + (large - SMALL_CLASSES) * LARGE_STEP,
    }
}

// SAFETY: a slot is at least as large as its class says, aligned to `ALIGN`, and used once at a time. Whether memory is
// a slot depends only on its layout.
unsafe impl Allocator for Cached {
    // Always: the layout is nearly always a constant, and so the class is.
    #[inline(always)]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match class_of(layout) {
            Some(class) => {
                let slot = process::allocate(class).ok_or(AllocError)?;
                Ok(NonNull::slice_from_raw_parts(slot, layout.size()))
            }
            None => Global.allocate(layout),
        }
    }

    #[inline(always)]
    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        match class_of(layout) {
            // SAFETY: `allocate` used a heap for this layout, and so for this class.
            Some(class) => unsafe { process::deallocate(memory, class) },
            // SAFETY: `allocate` used the global allocator for this layout.
            None => unsafe { Global.deallocate(memory, layout) },
        }
    }
}

/// Frees the slabs that were not needed for a while. Returns after what time an idle thread calls this again, if it has to.
pub(crate) fn tidy() -> Option<Duration> {
    process::tidy().then_some(depot::REST)
}

/// Frees the slabs that no task uses, except for a few: a pool has ended.
pub(crate) fn release() {
    process::release();
}

/// The heaps of this process.
#[cfg(not(loom))]
mod process {
    use core::cell::Cell;
    use core::ptr::NonNull;
    use std::time::Instant;

    use super::depot::Depot;
    use super::heap::Heap;
    use crate::sync::{Mutex, lock, per_thread};

    static DEPOT: Depot = Depot::new();

    /// The heap of threads whose own heap has ended: they allocate and free while their thread-local values are dropped.
    static LAST: Mutex<LastHeap> = Mutex::new(LastHeap(Heap::new()));

    struct LastHeap(Heap);

    // SAFETY: a heap may be used by any thread, one at a time, which the lock ensures.
    unsafe impl Send for LastHeap {}

    /// The heap of threads whose own heap has not begun, or has ended. It never gets a slab.
    static NONE: NoHeap = NoHeap(Heap::new());

    struct NoHeap(Heap);

    // SAFETY: a heap without slabs is only read.
    unsafe impl Sync for NoHeap {}

    /// The heap of a thread, which ends when it is dropped.
    struct OwnHeap(Heap);

    impl Drop for OwnHeap {
        fn drop(&mut self) {
            HEAP.with(|heap| heap.set(&raw const NONE.0));
            self.0.end(&DEPOT);
        }
    }

    per_thread! {
        /// The heap of the thread, or that of [`NONE`]. Set by [`with_lasting_heap`].
        ///
        /// The heap itself has a destructor, since on some platforms a thread frees its other values in any order.
        static HEAP: Cell<*const Heap> = Cell::new(&raw const NONE.0);
    }

    std::thread_local! {
        static OWN: OwnHeap = const { OwnHeap(Heap::new()) };
    }

    /// Calls `f` with the heap of the thread, or with one that has no slabs.
    #[inline(always)]
    fn with_heap<T>(f: impl FnOnce(&Heap) -> T) -> T {
        // SAFETY: the pointer is reset before the thread's heap is dropped, and `f` drops no value of the thread.
        f(unsafe { &*HEAP.with(Cell::get) })
    }

    /// Allocates a slot of a class.
    #[inline(always)]
    pub(super) fn allocate(class: usize) -> Option<NonNull<u8>> {
        match with_heap(|heap| heap.take(class)) {
            Some(slot) => Some(slot),
            None => allocate_slowly(class),
        }
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// The slot is from [`allocate`] with this class, and is not used afterwards.
    #[inline(always)]
    pub(super) unsafe fn deallocate(slot: NonNull<u8>, class: usize) {
        // SAFETY: the contract of this function. All heaps have one depot.
        unsafe {
            if !with_heap(|heap| heap.put(slot, class, &DEPOT)) {
                deallocate_slowly(slot, class);
            }
        }
    }

    /// Frees the slabs that were not needed for a while. Returns whether others are kept for some time.
    pub(super) fn tidy() -> bool {
        DEPOT.tidy(Instant::now())
    }

    /// Frees the slabs that no task uses, except for a few.
    pub(super) fn release() {
        DEPOT.release();
    }

    #[cold]
    #[inline(never)]
    fn allocate_slowly(class: usize) -> Option<NonNull<u8>> {
        with_lasting_heap(|heap| heap.allocate(class, &DEPOT))
    }

    /// # Safety
    ///
    /// The contract of [`deallocate`].
    #[cold]
    #[inline(never)]
    unsafe fn deallocate_slowly(slot: NonNull<u8>, class: usize) {
        // SAFETY: the contract of this function.
        with_lasting_heap(|heap| unsafe { heap.deallocate(slot, class, &DEPOT) });
    }

    /// Calls `f` with a heap that may get slabs, because it ends later. The calling thread has exclusive use of it.
    fn with_lasting_heap<T>(f: impl Fn(&Heap) -> T) -> T {
        let own = OWN.try_with(|own| {
            HEAP.with(|heap| heap.set(&raw const own.0));
            f(&own.0)
        });
        match own {
            Ok(result) => result,
            // The thread's destructors run.
            Err(_) => f(&lock(&LAST).0),
        }
    }
}

/// A model has heaps of its own.
#[cfg(loom)]
mod process {
    use core::ptr::NonNull;

    pub(super) fn tidy() -> bool {
        false
    }

    pub(super) fn release() {}

    pub(super) fn allocate(_: usize) -> Option<NonNull<u8>> {
        unreachable!("a model allocates from the global allocator")
    }

    pub(super) unsafe fn deallocate(_: NonNull<u8>, _: usize) {
        unreachable!("a model allocates from the global allocator")
    }
}
