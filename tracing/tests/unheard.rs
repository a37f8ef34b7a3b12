//! Tasks without a subscriber cost no allocation. Alone in its process: the instrument, and the counter, are the process's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task;

/// The number of allocations of the process.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_instrument_without_a_subscriber_allocates_nothing() {
    const CHILDREN: usize = 1000;
    let pool = ThreadPool::new(1);
    let place = pool.scheduler();
    // Children that are spawned, suspended and resumed.
    let run = || {
        let work = Task::new(task::group(async move |group| {
            for _ in 0..CHILDREN {
                group.spawn(async move { place.schedule().await });
            }
        }));
        sync_wait(starts_on(place, work)).unwrap();
    };
    let count = || {
        // What the pool and its thread make once.
        run();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    let without = count();
    bowline_tracing::install().unwrap();
    let with = count();
    // The memory of a thousand frames differs by a few blocks from run to run.
    assert!(
        with < without + CHILDREN / 20,
        "{with} allocations, {without} without it"
    );
}
