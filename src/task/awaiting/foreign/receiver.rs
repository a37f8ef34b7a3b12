//! The receiver of a sender that is awaited outside of a task.

use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::ptr::NonNull;

use super::ForeignShared;
use super::core::ForeignRef;
use crate::sender::receiver::receive_as_completion;
use crate::stop::Relay;
use crate::task::awaiting::{TaskEnv, environment};
use crate::{Completion, Receiver, Transfer};

/// The receiver of a sender that is awaited outside of a task. It owns a reference to the block.
pub(in crate::task) struct ForeignReceiver<T, E> {
    pub(super) block: ForeignRef,
    pub(super) _result: PhantomData<fn() -> (T, E)>,
}

impl<T, E> ForeignReceiver<T, E> {
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        let this = ManuallyDrop::new(self);
        // SAFETY: the reference is moved out, and `this` is not dropped.
        let block = unsafe { (&raw const this.block).read() };
        Self::deliver(block, completion)
    }

    /// Delivers the one completion.
    fn deliver(block: ForeignRef, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the result is not read before `done`. The relay is ended once; a stop that is still being passed on holds a
        // reference of its own.
        unsafe {
            *block.0.cast::<ForeignShared<T, E>>().as_ref().result.get() = Some(completion);
            // Released when the relay is over.
            mem::forget(ForeignRef::of(block.0));
            Relay::end(NonNull::new_unchecked(&raw mut (*block.0.as_ptr()).relay))
        }
    }
}

impl<T: Send, E: Send> Receiver<T, E> for ForeignReceiver<T, E> {
    type Env = TaskEnv;

    fn env(&self) -> TaskEnv {
        match &self.block.core().context {
            // SAFETY: the receiver's reference keeps the block alive until the completion.
            Some(context) => unsafe { TaskEnv::of_foreign(NonNull::from(context)) },
            None => environment::anywhere(),
        }
    }

    receive_as_completion!(T, E);
}

impl<T, E> Drop for ForeignReceiver<T, E> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: the receiver's own reference is released after this.
        Self::deliver(unsafe { ForeignRef::of(self.block.0) }, Completion::Stopped).run();
    }
}
