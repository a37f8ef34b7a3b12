//! Tasks with an allocator of their own, and with an environment that everything inside them sees.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use allocator_api2::vec::Vec;
use bowline::prelude::*;
use bowline::task::{CurrentAllocator, FromEnv, Providing, Task};

/// An allocator with a limit, which says how much is in use.
#[derive(Debug)]
struct Budget {
    limit: usize,
    used: AtomicUsize,
    allocations: AtomicUsize,
}

/// An allocator is cloned into what it allocates, so the handle is small.
#[derive(Clone, Copy, Debug)]
struct Within(&'static Budget);

// SAFETY: the memory is the global allocator's, which keeps the contract; copies stand for the same budget.
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
        // SAFETY: the memory is from there, by the caller's promise.
        unsafe { Global.deallocate(memory, layout) }
    }
}

static BUDGET: Budget = Budget {
    limit: 4096,
    used: AtomicUsize::new(0),
    allocations: AtomicUsize::new(0),
};

/// What the outermost caller writes into the environment.
#[derive(Clone, Debug)]
struct RequestId(u32);

/// What the tasks inside want to have: made once, when the task starts, of the environment that it is started in.
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

/// Deep inside: nobody handed the prefix down.
fn log(text: String) -> Task<()> {
    Task::new(async move {
        let Ok(prefix) = read_env(Get::<LogPrefix>::new()).await;
        println!("{}{text}", prefix.map_or_else(String::new, |LogPrefix(prefix)| prefix));
    })
}

fn main() {
    // The allocator: one allocation for each task, and what the task keeps, if it asks for it.
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

    // Memory that has run out is an error where one asks for it.
    let large = [0_u8; 8192];
    let refused = Task::builder()
        .allocator(Within(&BUDGET))
        .build(async move { large.len() });
    match refused {
        Ok(task) => println!("there was room for {} bytes", sync_wait(task).unwrap()),
        Err(error) => println!("no task: {error}"),
    }

    // The environment: a value of one's own, made of what is there.
    let handler = Task::builder().context::<Providing<LogPrefix>>().task(async {
        let Ok(()) = log("begins".to_owned()).await;
        let Ok(()) = log("ends".to_owned()).await;
    });
    sync_wait(handler.with_env(RequestId(7))).unwrap();
}
