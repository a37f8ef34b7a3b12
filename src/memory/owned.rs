use core::alloc::Layout;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::{AnyAllocator, OutOfMemoryError};

/// An allocation and the allocator it is from. Dropping frees the memory, without a destructor for its contents.
///
/// Invariant: `memory` was allocated from `allocator` or a clone of it, with `layout`, and no other owner frees it.
pub(crate) struct OwnedMemory<'a> {
    memory: NonNull<u8>,
    layout: Layout,
    allocator: AnyAllocator<'a>,
}

impl<'a> OwnedMemory<'a> {
    /// Allocates memory of the given layout.
    pub(crate) fn new(allocator: AnyAllocator<'a>, layout: Layout) -> Result<Self, OutOfMemoryError> {
        Ok(OwnedMemory {
            memory: allocator.allocate(layout)?,
            layout,
            allocator,
        })
    }

    /// Takes ownership of memory that [`OwnedMemory::into_allocator`] released.
    ///
    /// # Safety
    ///
    /// The memory was allocated with `layout`, from `allocator` or a clone of it. It has no other owner.
    pub(crate) unsafe fn from_parts(memory: NonNull<u8>, layout: Layout, allocator: AnyAllocator<'a>) -> Self {
        OwnedMemory {
            memory,
            layout,
            allocator,
        }
    }

    /// Returns the address of the memory.
    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.memory
    }

    /// Releases the memory to the caller, which becomes its owner, and returns the allocator.
    pub(crate) fn into_allocator(self) -> AnyAllocator<'a> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the allocator is moved out once.
        unsafe { (&raw const this.allocator).read() }
    }
}

impl Drop for OwnedMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: the invariant of the type. The owner does not use the memory after the drop.
        unsafe { self.allocator.deallocate(self.memory, self.layout) };
    }
}
