use core::pin::Pin;
use core::ptr::NonNull;

#[cfg(feature = "alloc")]
use super::unwind::AbortOnUnwind;
use super::{Priority, Transfer};

/// A sender connected to its receiver: work that is ready to start, and all the memory that it needs.
///
/// An operation is made by [`Sender::connect`](crate::Sender::connect) and may still be moved then. It learns its
/// address in [`start`](Operation::start), where it is pinned: from then on it may point at itself. It completes its
/// receiver exactly once. Dropping an operation that was never started runs nothing.
///
/// The promises that an operation keeps are those of [`Sender`](crate::Sender#safety), whose `unsafe impl` makes them.
#[must_use = "an operation does nothing until it is started"]
pub trait Operation {
    /// Starts the work, and returns the jobs to resume next.
    ///
    /// # Safety
    ///
    /// The operation is started at most once. From here on it is neither moved nor dropped, nor its memory reused,
    /// until one of the receiver's completions has begun.
    unsafe fn start(self: Pin<&mut Self>) -> Transfer;

    /// Raises the operation to at least this priority, where it waits in a queue with priorities. It never moves down,
    /// and never runs twice. Elsewhere this does nothing.
    ///
    /// It may be called on any thread, any number of times, and while the operation completes. So it takes a pointer.
    ///
    /// # Safety
    ///
    /// `this` points at a started operation, which is not destroyed before this returns.
    #[inline]
    unsafe fn raise(this: NonNull<Self>, priority: Priority)
    where
        Self: Sized,
    {
        let _ = (this, priority);
    }
}

/// Starts an operation from a driver: a consumer, a waker, or other code that no job and no `start` calls. An unwind of
/// the start aborts the process, since other threads may already use the operation.
///
/// # Safety
///
/// The contract of [`Operation::start`].
#[cfg(feature = "alloc")]
#[inline]
pub(crate) unsafe fn start<O: Operation>(operation: Pin<&mut O>) -> Transfer {
    let guard = AbortOnUnwind::new();
    // SAFETY: the contract is the same.
    let resumed = unsafe { operation.start() };
    guard.defuse();
    resumed
}
