//! The functions that a header calls on its type-erased future.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::start::Complete;
use super::{Header, Placement, Polled, TrackerPlace};
use crate::Panic;

type Adopt = unsafe fn(NonNull<Header>, NonNull<Placement>) -> NonNull<Placement>;

/// The type-erased part of a frame.
pub(in crate::task) struct FrameVtable {
    /// Polls the future, or drops it if the frame is to stop.
    ///
    /// The first poll of a child on the stack of its parent has a room for the result. A child that is done then, and known to no
    /// other thread, moves its result there and is freed, if its memory is from the global allocator.
    pub(in crate::task) poll: unsafe fn(NonNull<Header>, Option<NonNull<()>>) -> Polled,
    /// Moves the result to the pointer. Frees the memory if the flag is set.
    pub(in crate::task) take: unsafe fn(NonNull<Header>, NonNull<()>, bool),
    /// Drops the future or the result, and frees the memory.
    pub(in crate::task) free: unsafe fn(NonNull<Header>),
    /// Handles the end of a spawned child, whose frame it is called with.
    pub(in crate::task) complete: Option<Complete>,
    /// Where the tracker of the frame's strand is.
    pub(in crate::task) tracker: TrackerPlace,
    /// Drops the result, and keeps the memory.
    pub(in crate::task) discard: unsafe fn(NonNull<Header>),
    /// Creates the frame's own context inside another one. `None` if the frame uses that other context.
    pub(in crate::task) adopt: Option<Adopt>,
    /// Drops the frame's own context, if it has one.
    pub(in crate::task) leave: Option<unsafe fn(NonNull<Header>)>,
    /// Allocates from the frame's allocator.
    pub(in crate::task) allocate: unsafe fn(NonNull<Header>, Layout) -> Option<NonNull<u8>>,
    /// Deallocates memory of the frame's allocator.
    pub(in crate::task) deallocate: unsafe fn(NonNull<Header>, NonNull<u8>, Layout),
    /// Drops the future, and stores the panic as the result.
    pub(in crate::task) fail: unsafe fn(NonNull<Header>, Panic),
    /// Whether the frame's own context lets it run anywhere. If so, it may end where its parent is not at home.
    pub(in crate::task) wanders: bool,
    /// Whether the frame stays on its thread.
    pub(in crate::task) is_local: bool,
}
