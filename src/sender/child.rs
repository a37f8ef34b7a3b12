//! The receiver that points back: how an operation gets the completions of the children inside it.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::{Completion, Env, Receiver, Transfer};
use crate::sender::receiver::receive_as_completion;

/// An operation that has started children inside itself, each with a [`ChildReceiver`] that points back at it.
///
/// `INDEX` tells children apart whose completions are handled differently.
///
/// # Safety
///
/// The functions may be called on any thread: all that they access is `Send`. A [`ChildReceiver`] is `Send` for that
/// reason.
pub(crate) unsafe trait Parent<const INDEX: usize>: Sized {
    type Value;
    type Error;
    type Env: Env;

    /// Returns the environment of a running child. The child runs in a cell of the parent, so the parent may be
    /// borrowed.
    fn env(this: &Waiting<Self>) -> Self::Env;

    /// Takes the completion of the child. The child's operation may be destroyed here: it accesses nothing of itself
    /// any more.
    fn child_completed(this: Waiting<Self>, completion: Completion<Self::Value, Self::Error>) -> Transfer;
}

/// A parent that waits for one of its children. The parent is pinned, and alive for as long as this exists.
///
/// The receiver of a child owns it, and consumes it with the completion. So each child has one.
pub(crate) struct Waiting<P>(NonNull<P>);

impl<P> Waiting<P> {
    #[inline]
    pub(crate) fn parent(&self) -> &P {
        // SAFETY: the parent is alive until the child has completed, by the contract of `ChildReceiver::new`.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn as_ptr(&self) -> NonNull<P> {
        self.0
    }

    /// Returns the parent, where the child has completed and was the last that the parent waited for.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the parent until the parent completes.
    #[inline]
    pub(crate) unsafe fn alone<'a>(mut self) -> &'a mut P {
        // SAFETY: the parent is alive, by the contract of `ChildReceiver::new`, and the caller has exclusive access.
        unsafe { self.0.as_mut() }
    }
}

/// The receiver of a child: one pointer to its [`Parent`].
///
/// Dropped without completion, it completes stopped: a child that loses its receiver never makes its parent wait for
/// ever.
pub(crate) struct ChildReceiver<P: Parent<INDEX>, const INDEX: usize> {
    parent: Waiting<P>,
}

// SAFETY: all that is accessed through the pointer may be used on any thread, by the contract of `Parent`.
unsafe impl<P: Parent<INDEX>, const INDEX: usize> Send for ChildReceiver<P, INDEX> {}

impl<P: Parent<INDEX>, const INDEX: usize> ChildReceiver<P, INDEX> {
    /// # Safety
    ///
    /// `parent` is pinned, and alive until the child has completed. It expects exactly one completion.
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
        // A receiver that has completed is forgotten, so this is the only completion.
        P::child_completed(Waiting(self.parent.0), Completion::Stopped).run();
    }
}

impl<P: Parent<INDEX>, const INDEX: usize> fmt::Debug for ChildReceiver<P, INDEX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildReceiver").field("index", &INDEX).finish()
    }
}
