//! Memory and its owners: type-erased values in words or in allocated memory, reference counts, intrusive lists, and
//! prefetches.

#[cfg(feature = "alloc")]
mod allocator;
#[cfg(feature = "std")]
mod cache;
#[cfg(feature = "alloc")]
mod count;
mod list;
#[cfg(feature = "alloc")]
mod owned;
#[cfg(feature = "std")]
mod prefetch;
#[cfg(feature = "std")]
mod shared;
mod words;

#[cfg(feature = "alloc")]
pub(crate) use allocator::AnyAllocator;
#[cfg(feature = "alloc")]
pub use allocator::OutOfMemoryError;
#[cfg(all(feature = "std", loom))]
pub(crate) use cache::model;
#[cfg(feature = "std")]
pub(crate) use cache::{Cached, release, tidy};
#[cfg(feature = "alloc")]
pub(crate) use count::Count;
#[cfg(feature = "std")]
pub(crate) use list::Beside;
pub(crate) use list::{Linked, Links, List, links};
#[cfg(feature = "alloc")]
pub(crate) use owned::OwnedMemory;
#[cfg(feature = "std")]
pub(crate) use prefetch::prefetch;
#[cfg(feature = "std")]
pub(crate) use shared::{Counted, Shareable, Shared};
pub(crate) use words::Words;
