//! The receiver that points back: how an operation hears from the children inside it.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::{Completion, Env, Panic, Receiver, Transfer};

/// An operation that has started children inside itself, each with a [`ChildReceiver`] that points back at it.
///
/// `INDEX` tells children apart that complete differently.
///
/// # Safety
///
/// Whoever implements this promises that its functions may be called on any thread, that is, that everything they
/// reach is `Send`. It is what makes a [`ChildReceiver`] `Send`.
pub(crate) unsafe trait Parent<const INDEX: usize> {
    type Value;
    type Error;
    type Env: Env;

    /// The environment of the child.
    ///
    /// # Safety
    ///
    /// `this` is alive and pinned, and the child has not completed.
    unsafe fn env(this: NonNull<Self>) -> Self::Env;

    /// The child has completed. It may be destroyed right here: its operation touches nothing of itself any more.
    ///
    /// # Safety
    ///
    /// `this` is alive and pinned until it completes in turn; the child completes for the first time.
    unsafe fn child_completed(this: NonNull<Self>, completion: Completion<Self::Value, Self::Error>) -> Transfer;
}

/// The receiver of a child: one pointer to its [`Parent`].
///
/// Dropped without completion, it tells the parent that the child was stopped: a child that loses its receiver never
/// makes its parent wait for ever.
pub(crate) struct ChildReceiver<P: Parent<INDEX>, const INDEX: usize> {
    parent: NonNull<P>,
}

// SAFETY: what is reached through the pointer may be used on any thread, by the promise of `Parent`.
unsafe impl<P: Parent<INDEX>, const INDEX: usize> Send for ChildReceiver<P, INDEX> {}

impl<P: Parent<INDEX>, const INDEX: usize> ChildReceiver<P, INDEX> {
    /// # Safety
    ///
    /// `parent` is pinned and stays alive until the child has completed; it expects exactly one completion.
    pub(crate) unsafe fn new(parent: NonNull<P>) -> Self {
        ChildReceiver { parent }
    }

    #[inline]
    fn complete(self, completion: Completion<P::Value, P::Error>) -> Transfer {
        let parent = self.parent;
        mem::forget(self);
        // SAFETY: by the promise of `new`; the receiver is consumed, so this is the one completion.
        unsafe { P::child_completed(parent, completion) }
    }
}

impl<P: Parent<INDEX>, const INDEX: usize> Receiver<P::Value, P::Error> for ChildReceiver<P, INDEX> {
    type Env = P::Env;

    #[inline]
    fn env(&self) -> P::Env {
        // SAFETY: by the promise of `new`; the receiver is still there, so the child has not completed.
        unsafe { P::env(self.parent) }
    }

    #[inline]
    fn set_value(self, value: P::Value) -> Transfer {
        self.complete(Completion::Value(value))
    }

    #[inline]
    fn set_error(self, error: P::Error) -> Transfer {
        self.complete(Completion::Error(error))
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.complete(Completion::Stopped)
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.complete(Completion::Panicked(payload))
    }
}

impl<P: Parent<INDEX>, const INDEX: usize> Drop for ChildReceiver<P, INDEX> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: by the promise of `new`; a completed receiver is forgotten, so this is the one completion.
        unsafe { P::child_completed(self.parent, Completion::Stopped) }.run();
    }
}

impl<P: Parent<INDEX>, const INDEX: usize> fmt::Debug for ChildReceiver<P, INDEX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildReceiver").field("index", &INDEX).finish()
    }
}
