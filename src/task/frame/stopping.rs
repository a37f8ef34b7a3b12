//! Stopping a frame, or a scope of it, from the middle of a poll.

use core::task::Waker;
use std::boxed::Box;

use super::{Polling, frame_of};
use crate::Panic;

/// The payload that unwinds a poll by a waker of another crate, because what is polled has stopped.
///
/// The code that polls with its own waker would not be polled again, and may even block the thread until it was. So the poll
/// unwinds. The scope or the frame that catches this payload takes it for the stop that it stands for.
pub(in crate::task) struct Stopping;

impl Stopping {
    /// Stops the innermost scope of the polled frame, or else the frame. Code that polls with the frame's own waker returns
    /// pending next.
    pub(in crate::task) fn stop(polling: Polling<'_>, waker: &Waker) {
        if frame_of(waker) != Some(polling.frame()) {
            Stopping::unwind(polling);
        }
        polling.stop_here();
    }

    /// Stops the innermost scope of the polled frame, or else the frame, and unwinds.
    pub(in crate::task) fn unwind(polling: Polling<'_>) -> ! {
        polling.stop_here();
        Panic::new(Box::new(Stopping)).resume()
    }

    /// Whether a panic is a stop.
    pub(in crate::task) fn is(payload: &Panic) -> bool {
        payload.is::<Stopping>()
    }
}
