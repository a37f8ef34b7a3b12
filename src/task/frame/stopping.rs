//! Stopping a frame, or a scope of it, from the middle of a poll.

use core::task::Waker;
use std::boxed::Box;

use super::{Polling, frame_of};
use crate::Panic;

/// The panic payload that unwinds a poll with a waker of another crate.
///
/// A stopped future never wakes such a waker, and its owner may block the thread until it is woken. So the poll unwinds.
/// The scope or frame that catches this payload treats it as a stop.
pub(in crate::task) struct Stopping;

impl Stopping {
    /// Stops the innermost scope of the polled frame, or else the frame. Unwinds unless `waker` is the frame's own; with
    /// that waker the caller returns pending next.
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

    /// Returns whether a panic is a stop.
    pub(in crate::task) fn is(payload: &Panic) -> bool {
        payload.is::<Stopping>()
    }
}
