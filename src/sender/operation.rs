use core::pin::Pin;

use super::Transfer;
#[cfg(feature = "alloc")]
use super::unwind::AbortOnUnwind;

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

/// Starts an operation and runs what that resumes: how every driver begins.
///
/// A start that unwinds has broken its promise, and may have left children that run: the process ends.
///
/// # Safety
///
/// As for [`Operation::start`].
#[cfg(feature = "alloc")]
#[inline]
pub(crate) unsafe fn start_and_run<O: Operation>(operation: Pin<&mut O>) {
    let guard = AbortOnUnwind::new();
    // SAFETY: by the caller's promise.
    unsafe { operation.start() }.run();
    guard.defuse();
}
