//! The receiver that points back: how an operation hears from the children inside it.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::{Completion, Env, Receiver, Transfer};
use crate::sender::receiver::receive_as_completion;

/// An operation that has started children inside itself, each with a [`ChildReceiver`] that points back at it.
///
/// `INDEX` tells children apart that complete differently.
///
/// # Safety
///
/// The functions may be called on any thread: everything that they reach is `Send`. It is what makes a [`ChildReceiver`]
/// `Send`.
pub(crate) unsafe trait Parent<const INDEX: usize>: Sized {
    type Value;
    type Error;
    type Env: Env;

    /// Returns the environment of the child, which runs. It does so in a cell of the parent, so that may be borrowed.
    fn env(this: &Waiting<Self>) -> Self::Env;

    /// Takes the completion of the child. That may be destroyed right here: its operation touches nothing of itself any more.
    fn child_completed(this: Waiting<Self>, completion: Completion<Self::Value, Self::Error>) -> Transfer;
}

/// A parent that waits for one of its children. It is pinned, and stays alive for as long as this does.
///
/// The receiver of a child has one, and consumes it with the completion. So there is one for each child.
pub(crate) struct Waiting<P>(NonNull<P>);

impl<P> Waiting<P> {
    #[inline]
    pub(crate) fn parent(&self) -> &P {
        // SAFETY: the parent is alive until the child has completed, by the promise of `ChildReceiver::new`.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<P> {
        self.0
    }

    /// The parent, where the child has completed and was all that it waited for.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the parent until that completes.
    #[inline]
    pub(crate) unsafe fn alone<'a>(mut self) -> &'a mut P {
        // SAFETY: the parent is alive, by the promise of `ChildReceiver::new`, and the caller has exclusive access.
        unsafe { self.0.as_mut() }
    }
}

/// The receiver of a child: one pointer to its [`Parent`].
///
/// Dropped without completion, it tells the parent that the child was stopped: a child that loses its receiver never
/// makes its parent wait for ever.
pub(crate) struct ChildReceiver<P: Parent<INDEX>, const INDEX: usize> {
    parent: Waiting<P>,
}

// SAFETY: what is reached through the pointer may be used on any thread, by the promise of `Parent`.
unsafe impl<P: Parent<INDEX>, const INDEX: usize> Send for ChildReceiver<P, INDEX> {}

impl<P: Parent<INDEX>, const INDEX: usize> ChildReceiver<P, INDEX> {
    /// # Safety
    ///
    /// `parent` is pinned and stays alive until the child has completed; it expects exactly one completion.
    pub(crate) unsafe fn new(parent: NonNull<P>) -> Self {
        ChildReceiver {
            parent: Waiting(parent),
        }
    }

    #[inline]
    fn complete(self, completion: Completion<P::Value, P::Error>) -> Transfer {
        let parent = Waiting(self.parent.0);
        mem::forget(self);
        P::child_completed(parent, completion)
    }
}

impl<P: Parent<INDEX>, const INDEX: usize> Receiver<P::Value, P::Error> for ChildReceiver<P, INDEX> {
    type Env = P::Env;

    #[inline]
    fn env(&self) -> P::Env {
        P::env(&self.parent)
    }

    receive_as_completion!(P::Value, P::Error);
}

impl<P: Parent<INDEX>, const INDEX: usize> Drop for ChildReceiver<P, INDEX> {
    #[cold]
    fn drop(&mut self) {
        // A receiver that has completed is forgotten, so this is the one completion.
        P::child_completed(Waiting(self.parent.0), Completion::Stopped).run();
    }
}

impl<P: Parent<INDEX>, const INDEX: usize> fmt::Debug for ChildReceiver<P, INDEX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildReceiver").field("index", &INDEX).finish()
    }
}
