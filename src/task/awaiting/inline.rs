//! Awaiting a sender that completes inside `start`: the operation is on the stack.

use core::pin::pin;
use core::ptr::NonNull;

use super::{TaskEnv, environment};
use crate::sender::receiver::receive_as_completion;
use crate::sender::start;
use crate::task::frame::Polling;
use crate::task::strand::Context;
use crate::{Completion, Receiver, Sender, Transfer};

/// Starts a sender that completes inside `start`, in the frame that this thread polls, if any. Allocates nothing.
#[inline]
pub(super) fn run_inline<S: Sender<Value: Send, Error: Send>>(
    sender: S,
    polling: Option<Polling<'_>>,
) -> Completion<S::Value, S::Error> {
    let mut result = None;
    let operation = pin!(sender.connect(InlineReceiver {
        result: NonNull::from(&mut result),
        context: polling.map(|polling| NonNull::from(polling.context())),
    }));
    // SAFETY: the operation is pinned on this stack, started once, and has completed when `start` returns.
    unsafe { start(operation) }.run();
    result.unwrap_or(Completion::Stopped)
}

/// The receiver of a sender that completes inside `start`.
struct InlineReceiver<T, E> {
    result: NonNull<Option<Completion<T, E>>>,
    /// The context of the task, which is being polled; `None` outside of a task.
    context: Option<NonNull<Context>>,
}

// SAFETY: the sender completes on the thread that started it, by its declaration.
unsafe impl<T, E> Send for InlineReceiver<T, E> {}

impl<T, E> InlineReceiver<T, E> {
    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        // SAFETY: the starting code waits on this stack, so the result is alive.
        unsafe { self.result.write(Some(completion)) };
        Transfer::none()
    }
}

impl<T, E> Receiver<T, E> for InlineReceiver<T, E> {
    type Env = TaskEnv;

    #[inline]
    fn env(&self) -> TaskEnv {
        match self.context {
            // SAFETY: the frame is being polled, on this stack.
            Some(context) => unsafe { TaskEnv::new(context, None) },
            None => environment::anywhere(),
        }
    }

    receive_as_completion!(T, E);
}
