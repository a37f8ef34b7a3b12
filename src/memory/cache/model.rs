//! Access to slabs for the models in `tests/model/`, whose threads have heaps of their own.
#![allow(missing_debug_implementations, reason = "for the models alone")]

use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::Arc;

use super::depot::Depot;
use super::heap::Heap;

/// The class of all slots of a model. A slab has two.
const CLASS: usize = 31;

/// The depot that the heaps of a model share.
#[derive(Clone)]
pub struct DepotModel(Arc<Depot>);

/// The heap of one thread, which ends when this is dropped.
pub struct HeapModel {
    /// Boxed, because a heap with slabs does not move.
    heap: Box<Heap>,
    depot: Arc<Depot>,
}

/// A used slot.
pub struct SlotModel(NonNull<u8>);

impl SlotModel {
    /// Returns the address.
    pub fn address(&self) -> usize {
        self.0.addr().get()
    }
}

impl DepotModel {
    /// Creates a depot without slabs.
    #[allow(clippy::new_without_default, reason = "for the models alone")]
    pub fn new() -> Self {
        DepotModel(Arc::new(Depot::new()))
    }

    /// Creates a heap.
    pub fn heap(&self) -> HeapModel {
        HeapModel {
            heap: Box::new(Heap::new()),
            depot: self.0.clone(),
        }
    }

    /// Returns the number of slabs that were not deallocated.
    pub fn slabs(&self) -> usize {
        self.0.slabs()
    }
}

impl HeapModel {
    /// Allocates a slot.
    pub fn allocate(&self) -> SlotModel {
        let slot = self.heap.take(CLASS);
        let slot = slot.or_else(|| self.heap.allocate(CLASS, &self.depot));
        SlotModel(slot.expect("a model has enough memory"))
    }

    /// Frees a slot of any heap.
    pub fn free(&self, slot: SlotModel) {
        // SAFETY: the slot is from a heap of the same model, and is moved.
        unsafe { self.heap.deallocate(slot.0, CLASS, &self.depot) };
    }
}

impl Drop for HeapModel {
    fn drop(&mut self) {
        self.heap.end(&self.depot);
    }
}
