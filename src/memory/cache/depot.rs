use core::array;
use core::ptr::NonNull;

use super::heap::Heap;
use super::slab::Slab;
use super::{CLASSES, size_of_class};
use crate::memory::List;
use crate::sync::{Mutex, const_unless_loom, lock};

/// The number of empty slabs that the depot keeps at least.
const KEPT: usize = if cfg!(loom) { 0 } else { 64 };

/// The slabs without an owner, for the heaps of all threads: partly used ones by class, and empty ones.
///
/// The lock is held for a few instructions, and never while the system's allocator is called.
pub(crate) struct Depot(Mutex<Slabs>);

struct Slabs {
    shelves: [List<Slab>; CLASSES],
    empty: List<Slab>,
    /// The number of slabs in `empty`.
    kept: usize,
    /// The number of other slabs, of all threads.
    others: usize,
}

// SAFETY: the lists own their slabs, which may be used by any thread.
unsafe impl Send for Slabs {}

impl Depot {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Depot(Mutex::new(Slabs {
                shelves: [const { List::new() }; CLASSES],
                empty: List::new(),
                kept: 0,
                others: 0,
            }))
        }
    }

    /// Returns a slab with a free slot of a class, which `heap` owns. It is in no list. `None` if there is no memory.
    pub(super) fn take(&self, class: usize, heap: &Heap) -> Option<NonNull<Slab>> {
        let (slab, divided) = {
            let mut slabs = lock(&self.0);
            match slabs.shelves[class].pop_front() {
                Some(slab) => {
                    // SAFETY: the slab was removed from its shelf, under the lock.
                    unsafe { slab.as_ref().unshelve() };
                    (Some(slab), true)
                }
                None => {
                    slabs.others += 1;
                    let slab = slabs.empty.pop_front();
                    slabs.kept -= usize::from(slab.is_some());
                    (slab, false)
                }
            }
        };
        let Some(slab) = slab.or_else(Slab::new) else {
            lock(&self.0).others -= 1;
            return None;
        };
        // SAFETY: the slab is from a list, or new, so this thread has exclusive access.
        unsafe {
            slab.as_ref().set_owner(heap);
            if !divided {
                slab.as_ref().divide(class, size_of_class(class));
            }
        }
        Some(slab)
    }

    /// Takes a slab from its shelf for `heap`, unless another thread did.
    ///
    /// # Safety
    ///
    /// The caller owns a used slot of the slab.
    pub(super) unsafe fn take_shelved(&self, slab: NonNull<Slab>, heap: &Heap) -> bool {
        let mut slabs = lock(&self.0);
        // SAFETY: the used slot keeps the slab alive. A shelved one is in the list of its class.
        unsafe {
            if !slab.as_ref().is_shelved() {
                return false;
            }
            slabs.shelves[slab.as_ref().class()].remove(slab);
            slab.as_ref().unshelve();
            slab.as_ref().set_owner(heap);
        }
        true
    }

    /// Puts a slab on a shelf. Returns `false` if another thread has freed a slot of it.
    ///
    /// # Safety
    ///
    /// `heap` owns the slab, which is in no list and has a used slot.
    pub(super) unsafe fn shelve(&self, slab: NonNull<Slab>, heap: &Heap) -> bool {
        let mut slabs = lock(&self.0);
        // SAFETY: the contract of this function, and the lock is held.
        unsafe {
            // Read first: the slab belongs to the lock after `shelve`.
            let class = slab.as_ref().class();
            if !slab.as_ref().shelve(heap) {
                return false;
            }
            slabs.shelves[class].push_back(slab);
        }
        true
    }

    /// Takes an empty slab, and gives some of the kept ones back to the system if there are too many.
    ///
    /// # Safety
    ///
    /// The caller owns the slab, which is empty and in no list.
    pub(super) unsafe fn put_empty(&self, slab: NonNull<Slab>) {
        let surplus: [Option<NonNull<Slab>>; 2] = {
            let mut slabs = lock(&self.0);
            slabs.others -= 1;
            slabs.kept += 1;
            // SAFETY: the slab is in no list, and alive until it is removed.
            unsafe { slabs.empty.push_front(slab) };
            // Two for each that comes, so that the number of kept slabs shrinks with that of the others.
            array::from_fn(|_| {
                if slabs.kept <= KEPT + slabs.others / 4 {
                    return None;
                }
                slabs.kept -= 1;
                slabs.empty.pop_front()
            })
        };
        for slab in surplus.into_iter().flatten() {
            // SAFETY: the slab was in the list, so it is empty, and it is in no list now.
            unsafe { Slab::delete(slab) };
        }
    }

    /// Returns the number of slabs that were not deallocated.
    #[cfg(loom)]
    pub(super) fn slabs(&self) -> usize {
        let slabs = lock(&self.0);
        slabs.kept + slabs.others
    }
}
