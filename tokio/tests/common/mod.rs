//! Helpers shared by the tests.
#![allow(dead_code, unreachable_pub, reason = "every test file uses some of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// A limit far beyond the duration of a test: it turns a hang into a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// An allocator that counts the allocations of the process.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, SeqCst);
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

/// Returns the number of allocations of the process so far.
pub fn allocations() -> usize {
    ALLOCATIONS.load(SeqCst)
}

pub fn multi_thread(threads: usize) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("tokio-worker")
        .enable_all()
        .build()
        .expect("a runtime")
}

pub fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A way to end a runtime, with its name.
pub type End = (&'static str, fn(Runtime));

/// Every way to end a runtime.
pub fn ends() -> [End; 3] {
    [
        ("drop", drop),
        ("shutdown_timeout", |runtime| {
            runtime.shutdown_timeout(Duration::from_millis(50))
        }),
        ("shutdown_background", Runtime::shutdown_background),
    ]
}

/// Runs a test on a thread of its own, and fails if it does not end.
pub fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        let value = test();
        let _ = done.send(value);
    });
    match result.recv_timeout(PATIENCE) {
        Ok(value) => {
            let _ = thread.join();
            value
        }
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("the test has sent its result"),
        },
    }
}

/// Waits until the condition holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} never happened");
        thread::yield_now();
    }
}

/// Returns the name of the calling thread.
pub fn here() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}
