//! Homes on any scheduler: with the scheduler's queue, or with a hop.

use core::ptr::NonNull;

use super::hop;
use crate::Scheduler;
use crate::memory::OutOfMemoryError;
use crate::sender::native::RawNative;
use crate::task::frame::{Header, Home};

impl Home {
    /// The home of a task on any scheduler, with a hop of its own where that has no queue.
    ///
    /// # Errors
    ///
    /// The allocator had no memory for the hop.
    ///
    /// # Safety
    ///
    /// - The scheduler stays where it is for as long as the home is used.
    /// - The frame is the one that is about to be started, and `owner` the operation that calls
    ///   [`take_back`](Home::take_back) when it is done.
    #[inline]
    pub(in crate::task) unsafe fn of<S: Scheduler>(
        scheduler: &S,
        frame: NonNull<Header>,
        owner: NonNull<()>,
    ) -> Result<Self, OutOfMemoryError> {
        // SAFETY: by the caller's promise.
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

    /// Frees the hop, if there is one that was made for this operation.
    ///
    /// # Safety
    ///
    /// All frames that use the home are done. The operation and the frame are those that the home was made with, if it has
    /// a hop of its own; another operation than that is allowed.
    #[inline]
    pub(in crate::task) unsafe fn take_back(&self, operation: NonNull<()>, frame: NonNull<Header>) {
        if let Some(hop) = self.hop() {
            // SAFETY: by the caller's promise.
            unsafe { hop::free(hop.cast(), operation, frame) };
        }
    }
}
