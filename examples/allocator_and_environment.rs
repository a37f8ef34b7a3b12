//! Tasks with their own allocator, and with an environment that everything inside them sees.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use allocator_api2::vec::Vec;
use bowline::prelude::*;
use bowline::task::{CurrentAllocator, FromEnv, Providing};

/// The limit and the current use of an allocator.
#[derive(Debug)]
struct Budget {
    limit: usize,
    used: AtomicUsize,
    allocations: AtomicUsize,
}

/// An allocator within a budget. It is stored in each of its allocations, so it is a small handle.
#[derive(Clone, Copy, Debug)]
struct Within(&'static Budget);

// SAFETY: all memory comes from the global allocator, which keeps the contract. Copies share the budget and can free each
// other's memory.
unsafe impl Allocator for Within {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let Within(budget) = self;
        if budget.used.fetch_add(layout.size(), Relaxed) + layout.size() > budget.limit {
            budget.used.fetch_sub(layout.size(), Relaxed);
            return Err(AllocError);
        }
        budget.allocations.fetch_add(1, Relaxed);
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        self.0.used.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller passes memory of this allocator, which came from `Global` with the same layout.
        unsafe { Global.deallocate(memory, layout) }
    }
}

static BUDGET: Budget = Budget {
    limit: 4096,
    used: AtomicUsize::new(0),
    allocations: AtomicUsize::new(0),
};

/// The value that the caller writes into the environment.
#[derive(Clone, Debug)]
struct RequestId(u32);

/// The value that inner tasks read. It is made when the outer task starts, from the environment of that task.
#[derive(Clone, Debug)]
struct LogPrefix(String);

impl FromEnv for LogPrefix {
    fn from_env<N: Env>(env: &N) -> Self {
        match env.get() {
            Some(RequestId(id)) => LogPrefix(format!("request {id}: ")),
            None => LogPrefix(String::new()),
        }
    }
}

/// Reads the prefix from the environment; no caller passes it.
fn log(text: String) -> Task<()> {
    Task::new(async move {
        let Ok(prefix) = read_env(Get::<LogPrefix>::new()).await;
        println!("{}{text}", prefix.map_or_else(String::new, |LogPrefix(prefix)| prefix));
    })
}

fn main() {
    // The allocator: one allocation per task, and those that the task makes with it.
    let squares = Task::new_in(
        async {
            let Ok(allocator) = read_env(CurrentAllocator).await;
            let mut squares = Vec::new_in(allocator.clone());
            squares.extend((1..=10_u64).map(|n| n * n));
            let Ok(sum) = Task::new_in(async move { squares.iter().sum::<u64>() }, allocator).await;
            sum
        },
        Within(&BUDGET),
    );
    println!("the sum is {}", sync_wait(squares).unwrap());
    println!("it took {} allocations", BUDGET.allocations.load(Relaxed));
    assert_eq!(BUDGET.used.load(Relaxed), 0);

    // `build` returns an error when memory has run out.
    let large = [0_u8; 8192];
    let refused = Task::builder()
        .allocator(Within(&BUDGET))
        .build(async move { large.len() });
    match refused {
        Ok(task) => println!("a task of {} bytes", sync_wait(task).unwrap()),
        Err(error) => println!("no task: {error}"),
    }

    // The environment: a value made from the environment outside.
    let handler = Task::builder().context::<Providing<LogPrefix>>().task(async {
        let Ok(()) = log("begins".to_owned()).await;
        let Ok(()) = log("ends".to_owned()).await;
    });
    sync_wait(handler.with_env(RequestId(7))).unwrap();
}
