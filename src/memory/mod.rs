//! What is kept without its type: in words of its owner's own, or in memory from an allocator of the user's choice.

#[cfg(feature = "alloc")]
mod allocator;
#[cfg(feature = "std")]
mod cache;
#[cfg(feature = "alloc")]
mod count;
mod words;

#[cfg(feature = "alloc")]
pub(crate) use allocator::AnyAllocator;
#[cfg(feature = "alloc")]
pub use allocator::OutOfMemory;
#[cfg(feature = "std")]
pub(crate) use cache::Cached;
#[cfg(feature = "alloc")]
pub(crate) use count::Count;
pub(crate) use words::Words;
