//! What a frame's header knows of its future.

use core::alloc::Layout;
use core::ptr::NonNull;

use super::{Header, Placement, Polled};
use crate::Panic;

/// Makes a frame's own context inside another, and returns it.
pub(super) type Adopt = unsafe fn(NonNull<Header>, NonNull<Placement>) -> NonNull<Placement>;

/// What is known of the type of a frame.
pub(in crate::task) struct FrameVtable {
    /// Polls the future, or drops it if it is to stop. `true` when it is gone, and the result is in the frame.
    pub(in crate::task) poll: unsafe fn(NonNull<Header>) -> bool,
    /// The first poll of a child, on the stack of its parent. Where it is done by that, and no other thread knows it, the
    /// result is moved to where the pointer points, and the frame is gone.
    pub(in crate::task) poll_here: unsafe fn(NonNull<Header>, NonNull<()>) -> Polled,
    /// Moves the result to where the pointer points, and frees the memory if it is told to.
    pub(in crate::task) take: unsafe fn(NonNull<Header>, NonNull<()>, bool),
    /// Drops the future or the result, and frees the memory.
    pub(in crate::task) free: unsafe fn(NonNull<Header>),
    /// Makes the frame's own context, inside another. None where it uses that other.
    pub(in crate::task) adopt: Option<Adopt>,
    /// Drops the frame's own context. None where it has none.
    pub(in crate::task) leave: Option<unsafe fn(NonNull<Header>)>,
    /// Allocates from the allocator that the frame is from.
    pub(in crate::task) allocate: unsafe fn(NonNull<Header>, Layout) -> Option<NonNull<u8>>,
    /// Gives that back.
    pub(in crate::task) deallocate: unsafe fn(NonNull<Header>, NonNull<u8>, Layout),
    /// Drops the future. The result is this panic.
    pub(in crate::task) fail: unsafe fn(NonNull<Header>, Panic),
    /// By its own context it runs anywhere, and so ends where the frame that awaits it need not be at home.
    pub(in crate::task) wanders: bool,
    /// It stays on its thread.
    pub(in crate::task) is_local: bool,
}
