//! The allocator of a task, as seen by what it awaits.

use core::alloc::Layout;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::memory::{AnyAllocator, OutOfMemoryError};
use crate::{Env, Query};

/// The type-erased allocator of a task; by [`Default`] the global one.
///
/// [`CurrentAllocator`] reads it inside a task:
///
/// ```
/// use allocator_api2::alloc::Global;
/// use allocator_api2::vec::Vec;
/// use bowline::prelude::*;
/// use bowline::task::{CurrentAllocator, Task};
///
/// let task = Task::new_in(
///     async {
///         let Ok(allocator) = read_env(CurrentAllocator).await;
///         let mut numbers = Vec::new_in(allocator.clone());
///         numbers.extend([1, 2, 3]);
///         let Ok(sum) = Task::new_in(async move { numbers.iter().sum::<i32>() }, allocator).await;
///         sum
///     },
///     Global,
/// );
/// assert_eq!(sync_wait(task).unwrap(), 6);
/// ```
///
/// # Allocation
///
/// Erasing an allocator of at most one word allocates nothing; a larger one is stored in memory of its own.
#[derive(Clone)]
pub struct TaskAllocator(AnyAllocator<'static>);

impl TaskAllocator {
    /// Erases the type of an allocator.
    ///
    /// # Errors
    ///
    /// The allocator is larger than a word, and has no memory to store itself.
    pub fn new<A: Allocator + Clone + Send + Sync + 'static>(allocator: A) -> Result<Self, OutOfMemoryError> {
        AnyAllocator::new(allocator).map(TaskAllocator)
    }
}

impl Default for TaskAllocator {
    fn default() -> Self {
        TaskAllocator(AnyAllocator::global())
    }
}

// SAFETY: forwards to the inner allocator, which keeps the contract; clones share it or are clones of it.
unsafe impl Allocator for TaskAllocator {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        match self.0.allocate(layout) {
            Ok(memory) => Ok(NonNull::slice_from_raw_parts(memory, layout.size())),
            Err(OutOfMemoryError { .. }) => Err(AllocError),
        }
    }

    unsafe fn deallocate(&self, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.0.deallocate(memory, layout) };
    }
}

crate::opaque!([] TaskAllocator);

/// A query for the allocator of the innermost enclosing task that has one; else the global allocator.
///
/// [`Get<A>`](crate::Get) reads an allocator whose type is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentAllocator;

impl Query for CurrentAllocator {
    type Answer = TaskAllocator;

    fn ask<E: Env>(self, env: &E) -> TaskAllocator {
        env.get().unwrap_or_default()
    }
}
