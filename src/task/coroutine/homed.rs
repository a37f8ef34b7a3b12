//! Futures and results that stay on the thread that created them, and check that at run time.

use core::cell::Cell;
use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use crate::sync::{per_thread, thread};

/// A future that must be polled and dropped on the thread that created it.
pub(super) struct HomedFuture<F> {
    home: thread::ThreadId,
    future: ManuallyDrop<F>,
}

impl<F> HomedFuture<F> {
    #[inline]
    pub(super) fn new(future: F) -> Self {
        HomedFuture {
            home: this_thread(),
            future: ManuallyDrop::new(future),
        }
    }
}

// SAFETY: it is neither polled nor dropped on another thread: both check, and abort.
unsafe impl<F> Send for HomedFuture<F> {}

impl<T, E, F: Future<Output = Result<T, E>>> Future for HomedFuture<F> {
    type Output = Result<Homed<T>, Homed<E>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Self::Output> {
        if self.home != this_thread() {
            stray();
        }
        // SAFETY: the future is structurally pinned.
        let future = unsafe { self.map_unchecked_mut(|this| &mut *this.future) };
        match future.poll(cx) {
            Poll::Ready(Ok(value)) => Poll::Ready(Ok(Homed::new(value))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(Homed::new(error))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<F> Drop for HomedFuture<F> {
    #[inline]
    fn drop(&mut self) {
        if self.home != this_thread() {
            stray();
        }
        // SAFETY: the future is dropped once, in place.
        unsafe { ManuallyDrop::drop(&mut self.future) };
    }
}

/// A result that must be used on the thread that created it.
pub(super) struct Homed<T> {
    home: thread::ThreadId,
    value: ManuallyDrop<T>,
}

// SAFETY: it is neither taken nor dropped on another thread.
unsafe impl<T> Send for Homed<T> {}

impl<T> Homed<T> {
    #[inline]
    pub(super) fn new(value: T) -> Self {
        Homed {
            home: this_thread(),
            value: ManuallyDrop::new(value),
        }
    }

    #[inline]
    pub(super) fn into_inner(self) -> T {
        if self.home != this_thread() {
            stray();
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is taken once, and `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<T> Drop for Homed<T> {
    /// The owner of a task drops its result at home. If the owner was dropped during the poll, the last waker drops a later
    /// result, on any thread. It is leaked there.
    #[inline]
    fn drop(&mut self) {
        if self.home == this_thread() {
            // SAFETY: the value is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Aborts the process. Other operations may be running in the future and use the task's environment, so it can neither be kept
/// nor dropped.
#[cold]
fn stray() -> ! {
    std::eprintln!(
        "bowline: a local task was resumed on a thread that is not its own: its scheduler is not that of a run loop, or of \
         an executor, which the thread that made it drives; aborting"
    );
    std::process::abort()
}

per_thread! {
    /// The identity of the thread, created lazily.
    static THREAD: Cell<Option<thread::ThreadId>> = Cell::new(None);
}

/// Returns the identity of the calling thread, which is never reused.
#[inline]
fn this_thread() -> thread::ThreadId {
    THREAD.with(|known| match known.get() {
        Some(id) => id,
        None => {
            let id = thread::current().id();
            known.set(Some(id));
            id
        }
    })
}
