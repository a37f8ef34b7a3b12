//! Futures and results that stay on the thread that created them, and check that at run time.

use core::cell::Cell;
use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context as Cx, Poll};

use super::Produce;
use crate::sync::{per_thread, thread};

/// A value that must be used on the thread that created it: a future, or its result.
///
/// A future must be dropped there, too. The owner of a task drops its result at home. If the owner was dropped during the poll, the
/// last waker drops a later result, on any thread: there it is leaked.
pub(super) struct Homed<T, const IS_FUTURE: bool = false> {
    home: thread::ThreadId,
    value: ManuallyDrop<T>,
}

/// A future that must be polled and dropped on the thread that created it.
pub(super) type HomedFuture<F> = Homed<F, true>;

// SAFETY: it is neither used nor dropped on another thread: each of these checks.
unsafe impl<T, const IS_FUTURE: bool> Send for Homed<T, IS_FUTURE> {}

impl<T, const IS_FUTURE: bool> Homed<T, IS_FUTURE> {
    #[inline]
    pub(super) fn new(value: T) -> Self {
        Homed {
            home: this_thread(),
            value: ManuallyDrop::new(value),
        }
    }

    #[inline]
    fn check(&self) {
        if self.home != this_thread() {
            stray();
        }
    }

    #[inline]
    pub(super) fn into_inner(self) -> T {
        self.check();
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is taken once, and `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.value) }
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Produce<Homed<T>, Homed<E>> for HomedFuture<F> {
    const IS_LOCAL: bool = true;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Result<Homed<T>, Homed<E>>> {
        self.check();
        // SAFETY: the future is structurally pinned.
        let future = unsafe { self.map_unchecked_mut(|this| &mut *this.value) };
        future.poll(cx).map(|result| result.map(Homed::new).map_err(Homed::new))
    }
}

impl<T, const IS_FUTURE: bool> Drop for Homed<T, IS_FUTURE> {
    #[inline]
    fn drop(&mut self) {
        if IS_FUTURE {
            self.check();
        } else if self.home != this_thread() {
            return;
        }
        // SAFETY: the value is dropped once, in place.
        unsafe { ManuallyDrop::drop(&mut self.value) };
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
