//! What the tests share: an allocator that counts, threads with small stacks, values that tell when they are dropped.
#![allow(dead_code, unreachable_pub, reason = "every test file uses some of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bowline::scheduler::{RunLoop, RunLoopScheduler};

thread_local!(static ALLOCATIONS: Cell<usize> = const { Cell::new(0) });

/// Counts the allocations of each thread.
struct Counting;

fn count() {
    // A thread that is ending has no counter any more, and nobody who asks.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread allocates while `f` runs.
pub fn allocations<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = f();
    (result, ALLOCATIONS.with(Cell::get) - before)
}

/// How much larger stacks are under a sanitizer, whose frames are several times as large and whose runtime takes some
/// of the stack for itself. That the sizes hold is for the other runs to show. Set by `scripts/sanitizers`.
const STACK_SCALE: usize = if cfg!(sanitized) { 16 } else { 1 };

/// The stack in which a million rounds must fit.
pub const SMALL_STACK: usize = 64 * 1024 * STACK_SCALE;

/// The stack in which nests a hundred thousand deep must fit.
pub const DEEP_STACK: usize = 256 * 1024 * STACK_SCALE;

/// The rounds of a stack test: enough to fill any stack, should a round keep some of it.
pub const ROUNDS: usize = if cfg!(sanitized) { 100_000 } else { 1_000_000 };

/// Runs `f` on a thread with a stack of `bytes`, and passes its panic on.
pub fn with_stack<T: Send>(bytes: usize, f: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(bytes)
            .spawn_scoped(scope, f)
            .expect("a thread");
        match worker.join() {
            Ok(result) => result,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    })
}

/// Runs `f` while another thread drives a run loop.
pub fn with_loop<T>(f: impl FnOnce(RunLoopScheduler<'_>) -> T) -> T {
    let run_loop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| run_loop.run());
        // The loop ends also when `f` panics.
        struct Finish<'a>(&'a RunLoop);
        impl Drop for Finish<'_> {
            fn drop(&mut self) {
                self.0.finish();
            }
        }
        let _finish = Finish(&run_loop);
        f(run_loop.scheduler())
    })
}

/// The message of the panic that `f` ends with.
pub fn panic_message<T>(f: impl FnOnce() -> T) -> String {
    let payload = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => payload,
    };
    match payload.downcast::<&'static str>() {
        Ok(message) => (*message).to_owned(),
        Err(payload) => *payload.downcast::<String>().expect("a message"),
    }
}

/// Counts how many of its values are alive.
#[derive(Clone, Default, Debug)]
pub struct Census(Arc<AtomicUsize>);

/// A value that a [`Census`] counts. Not `Clone`: it stands for what can only be moved.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Census {
    pub fn new() -> Self {
        Census::default()
    }

    pub fn value(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.0.clone())
    }

    pub fn alive(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
