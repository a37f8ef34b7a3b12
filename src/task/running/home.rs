//! Homes on any scheduler: with the scheduler's queue, or with a hop.

use core::ptr::NonNull;

use super::hop;
use crate::Scheduler;
use crate::memory::OutOfMemoryError;
use crate::sender::native::RawNative;
use crate::task::frame::{Header, Home};

impl Home {
    /// Returns the home of a task on any scheduler, with a hop of its own if the scheduler has no queue.
    ///
    /// # Errors
    ///
    /// The allocator had no memory for the hop.
    ///
    /// # Safety
    ///
    /// - The scheduler does not move as long as the home is used.
    /// - `frame` is about to be started, and `owner` is the operation that calls [`take_back`](Home::take_back) when it is
    ///   done.
    #[inline]
    pub(in crate::task) unsafe fn of<S: Scheduler>(
        scheduler: &S,
        frame: NonNull<Header>,
        owner: NonNull<()>,
    ) -> Result<Self, OutOfMemoryError> {
        // SAFETY: the caller's promise.
        unsafe {
            match Home::of_queue(scheduler) {
                Some(home) => Ok(home),
                None => {
                    let hop = hop::make(scheduler, frame, owner)?;
                    Ok(Home::of_hop(scheduler, RawNative::of(hop)))
                }
            }
        }
    }

    /// Frees the hop, if this operation owns one.
    ///
    /// # Safety
    ///
    /// All frames that use the home are done. If the hop belongs to `operation`, `frame` is the one the home was created with.
    #[inline]
    pub(in crate::task) unsafe fn take_back(&self, operation: NonNull<()>, frame: NonNull<Header>) {
        if let Some(hop) = self.hop() {
            // SAFETY: the caller's promise.
            unsafe { hop::free(hop.cast(), operation, frame) };
        }
    }
}
