//! The slabs of a thread: its allocations and its end against frees on other threads.

use std::sync::{Arc, Mutex};

use bowline::model::{DepotModel, HeapModel, SlotModel};

use crate::support::{Threads, explore_both_ways};

/// Fills one slab from a heap that is returned.
fn filled(depot: &DepotModel) -> (HeapModel, SlotModel, SlotModel) {
    let heap = depot.heap();
    let (first, second) = (heap.allocate(), heap.allocate());
    (heap, first, second)
}

/// A place where one thread of a model leaves something for the end.
fn place<T>() -> Arc<Mutex<Option<T>>> {
    Arc::new(Mutex::new(None))
}

fn take<T>(place: &Mutex<Option<T>>) -> T {
    place
        .lock()
        .expect("no thread panicked")
        .take()
        .expect("something was left")
}

fn leave<T>(place: &Mutex<Option<T>>, value: T) {
    *place.lock().expect("no thread panicked") = Some(value);
}

/// Covers a slot that is freed by another thread while the owner of its full slab allocates: the owner collects the slot, or
/// gives up the slab, which the other thread adopts.
#[test]
fn a_free_elsewhere_races_with_an_allocation() {
    explore_both_ways(3, &["collected", "another slab"], |seen, order| {
        let depot = DepotModel::new();
        let (heap, first, second) = filled(&depot);
        let (freed, third) = (first.address(), place());
        let owner: Box<dyn FnOnce()> = Box::new({
            let third = third.clone();
            move || {
                let slot = heap.allocate();
                leave(&third, (slot.address(), slot));
                heap.free(second);
            }
        });
        let other: Box<dyn FnOnce()> = Box::new({
            let depot = depot.clone();
            move || depot.heap().free(first)
        });
        Threads::default().run(order, [owner, other]);
        let (address, slot) = take(&third);
        seen.note(if address == freed { "collected" } else { "another slab" });
        assert_eq!(depot.slabs(), 1, "the last used slot keeps its slab");
        depot.heap().free(slot);
        assert_eq!(depot.slabs(), 0);
    });
}

/// Covers a slot that is freed by another thread while the heap of its slab ends. The slab is deallocated by the heap, or
/// after the other thread adopted it.
#[test]
fn a_free_elsewhere_races_with_the_end_of_a_heap() {
    explore_both_ways(3, &["the slab is gone"], |seen, order| {
        let depot = DepotModel::new();
        let (heap, first, second) = filled(&depot);
        let owner: Box<dyn FnOnce()> = Box::new(move || {
            heap.free(second);
            drop(heap);
        });
        let other: Box<dyn FnOnce()> = Box::new({
            let depot = depot.clone();
            move || depot.heap().free(first)
        });
        Threads::default().run(order, [owner, other]);
        assert_eq!(depot.slabs(), 0);
        seen.note("the slab is gone");
    });
}

/// Covers the two slots of a slab without an owner, freed by two threads: each adopts the slab, or pushes to its adopter.
#[test]
fn two_threads_free_the_slots_of_a_full_slab() {
    explore_both_ways(3, &["the slab is gone"], |seen, order| {
        let depot = DepotModel::new();
        let (heap, first, second) = filled(&depot);
        let third = heap.allocate();
        let bodies = [first, second].map(|slot| {
            let depot = depot.clone();
            let body: Box<dyn FnOnce()> = Box::new(move || depot.heap().free(slot));
            body
        });
        Threads::default().run(order, bodies);
        assert_eq!(depot.slabs(), 1, "that of the third slot");
        heap.free(third);
        drop(heap);
        assert_eq!(depot.slabs(), 0);
        seen.note("the slab is gone");
    });
}

/// Covers a slab on a shelf of the depot: one thread frees a used slot of it, while another one allocates from it.
#[test]
fn a_shelved_slab_is_adopted_once() {
    explore_both_ways(3, &["from the shelf", "another slab"], |seen, order| {
        let depot = DepotModel::new();
        let (heap, first, second) = filled(&depot);
        let freed = second.address();
        heap.free(second);
        drop(heap);
        assert_eq!(depot.slabs(), 1);
        let third = place();
        let allocates: Box<dyn FnOnce()> = Box::new({
            let (depot, third) = (depot.clone(), third.clone());
            move || leave(&third, depot.heap().allocate())
        });
        let frees: Box<dyn FnOnce()> = Box::new({
            let depot = depot.clone();
            move || depot.heap().free(first)
        });
        Threads::default().run(order, [allocates, frees]);
        let slot: SlotModel = take(&third);
        seen.note(if slot.address() == freed {
            "from the shelf"
        } else {
            "another slab"
        });
        assert_eq!(depot.slabs(), 1);
        depot.heap().free(slot);
        assert_eq!(depot.slabs(), 0);
    });
}
