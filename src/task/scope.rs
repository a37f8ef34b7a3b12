//! Coroutines in a blocking scope, from which they may borrow.

use core::convert::Infallible;
use core::future::Future;
use core::ptr::NonNull;

use super::coroutine::Task;
use crate::scheduler::thread_pool::Scope;
use crate::sender::receiver::receive_as_completion;
use crate::{Completion, EmptyEnv, Receiver, Transfer, starts_on, submit};

impl<'scope> Scope<'scope> {
    /// Runs a future as a task on the scope's pool. The future may borrow what outlives `'scope`; the scope waits for it.
    ///
    /// The task runs only on the workers of the scope's pool, and occupies none of them while it waits. Senders that it awaits
    /// must be `'static`, as in every task; other futures may borrow.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::Timer;
    /// use bowline::task;
    /// use std::time::Duration;
    ///
    /// let names = ["tie", "the", "knot"];
    /// let mut loud = [const { String::new() }; 3];
    /// task::scope(|scope| {
    ///     for (name, loud) in names.iter().zip(&mut loud) {
    ///         scope.spawn_async(async move {
    ///             Timer::global().schedule_after(Duration::from_millis(1)).await;
    ///             *loud = name.to_uppercase();
    ///         });
    ///     }
    /// });
    /// assert_eq!(loud, ["TIE", "THE", "KNOT"]);
    /// ```
    ///
    /// # Panics
    ///
    /// A panic of the task is handled like that of a closure: the scope waits for the others, then resumes the first panic.
    ///
    /// # Cancellation
    ///
    /// The scope does not cancel the task. A sender that stops ends the task at that await.
    ///
    /// # Allocation
    ///
    /// Two: the task and its operation.
    #[track_caller]
    pub fn spawn_async<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'scope,
    {
        // SAFETY: what the future borrows outlives `'scope`, which waits for the count: `ScopedChild` releases it after the future.
        let task = unsafe { Task::of_borrowing(future) };
        self.begin();
        let child = ScopedChild {
            // Only the lifetime is erased; no data of the scope has it.
            scope: NonNull::from(self).cast(),
        };
        submit(starts_on(self.pool(), task), child);
    }
}

/// The receiver of a task in a scope. Its operation is destroyed before it completes or is dropped.
struct ScopedChild {
    scope: NonNull<Scope<'static>>,
}

// SAFETY: a scope is `Sync`, and alive until this is dropped: it waits for the count.
unsafe impl Send for ScopedChild {}

impl Drop for ScopedChild {
    fn drop(&mut self) {
        // SAFETY: `spawn_async` called `begin` once for this receiver. The task is destroyed, and its borrows have ended.
        unsafe { Scope::ended(self.scope) };
    }
}

impl Receiver<(), Infallible> for ScopedChild {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    receive_as_completion!((), Infallible);
}

impl ScopedChild {
    fn complete(self, completion: Completion<(), Infallible>) -> Transfer {
        if let Completion::Panicked(payload) = completion {
            // SAFETY: the scope is alive: the count that `drop` releases is still held.
            unsafe { self.scope.as_ref() }.panicked(payload);
        }
        Transfer::none()
    }
}
