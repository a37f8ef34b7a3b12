use core::pin::Pin;
use core::ptr::NonNull;

#[cfg(feature = "alloc")]
use super::unwind::AbortOnUnwind;
use super::{Priority, Transfer};

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

    /// Says that this has become as urgent as `priority`: where the operation waits in a queue that knows of priorities,
    /// it moves up. It never moves down, and never runs twice. Elsewhere this does nothing.
    ///
    /// It may be called from any thread, any number of times, also while the operation completes; hence a pointer.
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

/// Starts an operation from a driver: a consumer, a waker, or anything else that is not called by a job or by another
/// operation's `start`. Does not unwind: an operation whose start does aborts the process, since other threads may
/// already use it.
///
/// # Safety
///
/// As for [`Operation::start`].
#[cfg(feature = "alloc")]
#[inline]
pub(crate) unsafe fn start<O: Operation>(operation: Pin<&mut O>) -> Transfer {
    let guard = AbortOnUnwind::new();
    // SAFETY: the caller's promise is the same.
    let resumed = unsafe { operation.start() };
    guard.defuse();
    resumed
}
