//! The receiver of an awaited sender, and the part of an await that it points at.

use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::boxed::Box;

use super::TaskEnv;
use crate::sender::receiver::receive_as_completion;
use crate::{Completion, Panic, Receiver, Transfer};

/// An await without the type of its sender: in the memory of a frame, or [outside of a task](super::foreign).
#[repr(C)]
pub(super) struct Await<C, T, E> {
    pub(super) core: C,
    /// Written by the completion before the core is told; afterwards it belongs to the party that destroys the operation.
    pub(super) result: UnsafeCell<Option<AwaitResult<T, E>>>,
}

/// A completion in which a panic is one word, since every await has room for one, and few have one.
pub(super) enum AwaitResult<T, E> {
    Value(T),
    Error(E),
    Stopped,
    Panicked(Box<Panic>),
}

impl<T, E> AwaitResult<T, E> {
    #[inline]
    fn new(completion: Completion<T, E>) -> Self {
        match completion {
            Completion::Value(value) => AwaitResult::Value(value),
            Completion::Error(error) => AwaitResult::Error(error),
            Completion::Stopped => AwaitResult::Stopped,
            Completion::Panicked(payload) => AwaitResult::Panicked(Box::new(payload)),
        }
    }

    #[inline]
    pub(super) fn into_completion(self) -> Completion<T, E> {
        match self {
            AwaitResult::Value(value) => Completion::Value(value),
            AwaitResult::Error(error) => Completion::Error(error),
            AwaitResult::Stopped => Completion::Stopped,
            AwaitResult::Panicked(payload) => Completion::Panicked(*payload),
        }
    }
}

/// The part of an await that does not depend on the sender.
pub(in crate::task) trait AwaitCore {
    /// Returns the environment of the sender, which is used until the completion.
    ///
    /// # Safety
    ///
    /// The sender has not completed.
    unsafe fn env(this: NonNull<Self>) -> TaskEnv;

    /// Handles the completion, after the result was written. `promised` says that it came where the sender declared.
    ///
    /// # Safety
    ///
    /// Called once. The await may be freed when this returns.
    unsafe fn completed(this: NonNull<Self>, promised: bool) -> Transfer;
}

/// The receiver of a sender that is awaited.
pub(in crate::task) struct AwaitReceiver<C: AwaitCore, T, E>(NonNull<Await<C, T, E>>);

// SAFETY: only the completion uses it, and that is ordered with the party that awaits.
unsafe impl<C: AwaitCore, T: Send, E: Send> Send for AwaitReceiver<C, T, E> {}

impl<C: AwaitCore, T, E> AwaitReceiver<C, T, E> {
    /// Creates the one receiver of an await.
    ///
    /// # Safety
    ///
    /// The await is alive until the core has handled the completion.
    pub(super) unsafe fn new(place: NonNull<Await<C, T, E>>) -> Self {
        AwaitReceiver(place)
    }

    /// Returns the core, by a pointer derived from the whole.
    #[inline]
    fn core(&self) -> NonNull<C> {
        // SAFETY: the await is alive until the completion, by the contract of `new`; the core is its field.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).core) }
    }

    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: this consumes the receiver without its `Drop`, so it is the one completion.
        unsafe { this.deliver(completion, true) }
    }

    /// Delivers the completion.
    ///
    /// # Safety
    ///
    /// Called once per receiver.
    #[inline(always)]
    unsafe fn deliver(&self, completion: Completion<T, E>, promised: bool) -> Transfer {
        // SAFETY: no other party reads the result before the core is told, once. The overwritten value is `None`.
        unsafe {
            self.0.as_ref().result.get().write(Some(AwaitResult::new(completion)));
            C::completed(self.core(), promised)
        }
    }
}

impl<C: AwaitCore, T: Send, E: Send> Receiver<T, E> for AwaitReceiver<C, T, E> {
    type Env = TaskEnv;

    #[inline]
    fn env(&self) -> TaskEnv {
        // SAFETY: the receiver has not completed.
        unsafe { C::env(self.core()) }
    }

    receive_as_completion!(T, E);
}

impl<C: AwaitCore, T, E> Drop for AwaitReceiver<C, T, E> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: dropped without a completion, so this is the one call. The sender's declaration is about completions, not
        // about where its operation drops a receiver.
        unsafe { self.deliver(Completion::Stopped, false) }.run();
    }
}
