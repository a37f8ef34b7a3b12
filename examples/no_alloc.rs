//! Work on two threads without an allocation: a race, an error, and a hundred thousand hops between the threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bowline::prelude::*;
use bowline::scheduler::RunLoop;

/// Counts the allocations of all threads.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work`, and checks that no thread allocates during it.
fn counted<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    let result = work();
    let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
    println!("{allocations} allocations: {what}");
    assert_eq!(allocations, 0);
    result
}

fn main() {
    let numbers: Vec<u64> = (1..=1000).collect();
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        let there = run_loop.scheduler();
        // Both threads are initialised before allocations are counted.
        sync_wait(there.schedule()).unwrap();

        let sum = counted("two sums at once, one of them on another thread", || {
            let (low, high) = numbers.split_at(500);
            sync_wait(when_all((
                just(low).continues_on(there).then(|part| part.iter().sum::<u64>()),
                just(high).then(|part| part.iter().sum::<u64>()),
            )))
            .unwrap()
        });
        assert_eq!(sum.0 + sum.1, 500_500);

        let rounds = counted("a hundred thousand hops to the other thread and back", || {
            let mut rounds = 0;
            let trip = just(()).continues_on(there).affine();
            sync_wait(trip.repeat_until(|()| {
                rounds += 1;
                rounds == 100_000
            }))
            .unwrap();
            rounds
        });
        assert_eq!(rounds, 100_000);

        let winner = counted("a race; the loser is stopped and awaited", || {
            sync_wait(when_any((never(), just("the winner").continues_on(there)))).unwrap()
        });
        assert_eq!(winner, "the winner");

        let answer = counted("an error, handled", || {
            sync_wait(just_error::<u32, _>("no").continues_on(there).upon_error(|_| 42)).unwrap()
        });
        assert_eq!(answer, 42);
        run_loop.finish();
    });
}
