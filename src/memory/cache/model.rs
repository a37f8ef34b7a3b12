//! Access to slabs for the models in `tests/model/`, whose threads have heaps of their own.
#![allow(missing_debug_implementations, reason = "for the models alone")]

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

use super::depot::Depot;
use super::heap::Heap;

/// The class of all slots of a model. A slab has two.
const CLASS: usize = 31;

/// The depot that the heaps of a model share.
#[derive(Clone)]
pub struct DepotModel(Arc<World>);

struct World {
    depot: Depot,
    /// The heaps that have ended. The system orders the end of a heap before another one gets its address. `loom` does not know of
    /// that, so no address is used twice.
    ended: Mutex<Vec<Box<Heap>>>,
}

/// The heap of one thread, which ends when this is dropped.
pub struct HeapModel {
    /// Boxed, because a heap with slabs does not move.
    heap: ManuallyDrop<Box<Heap>>,
    world: Arc<World>,
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
        DepotModel(Arc::new(World {
            depot: Depot::new(),
            ended: Mutex::default(),
        }))
    }

    /// Creates a heap.
    pub fn heap(&self) -> HeapModel {
        HeapModel {
            heap: ManuallyDrop::new(Box::new(Heap::new())),
            world: self.0.clone(),
        }
    }

    /// Returns the number of slabs that were not deallocated.
    pub fn slabs(&self) -> usize {
        self.0.depot.slabs()
    }
}

impl HeapModel {
    /// Allocates a slot.
    pub fn allocate(&self) -> SlotModel {
        let slot = self.heap.take(CLASS);
        let slot = slot.or_else(|| self.heap.allocate(CLASS, &self.world.depot));
        SlotModel(slot.expect("a model has enough memory"))
    }

    /// Frees a slot of any heap.
    pub fn free(&self, slot: SlotModel) {
        // SAFETY: the slot is from a heap of the same model, and is moved.
        unsafe { self.heap.deallocate(slot.0, CLASS, &self.world.depot) };
    }
}

impl Drop for HeapModel {
    fn drop(&mut self) {
        self.heap.end(&self.world.depot);
        // SAFETY: the heap is not used afterwards.
        let heap = unsafe { ManuallyDrop::take(&mut self.heap) };
        (self.world.ended.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .push(heap);
    }
}
