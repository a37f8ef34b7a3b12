use core::pin::Pin;

use super::Transfer;

/// A sender connected to its receiver: work that is ready to start, and all the memory it needs.
///
/// An operation is made by [`Sender::connect`](crate::Sender::connect) and may still be moved then. It learns its
/// address in [`start`](Operation::start); from there on it is pinned and points at itself as it likes. It completes
/// its receiver exactly once. Dropping an operation that was never started runs nothing.
///
/// The promises that an operation keeps are those of [`Sender`](crate::Sender#safety), whose `unsafe impl` makes them.
#[must_use = "an operation does nothing until it is started"]
pub trait Operation {
    /// Starts the work and returns what is to be resumed next.
    ///
    /// # Safety
    ///
    /// The operation is started at most once. From here on it is neither moved nor dropped, nor its memory reused,
    /// until one of the receiver's completions has begun.
    unsafe fn start(self: Pin<&mut Self>) -> Transfer;
}
