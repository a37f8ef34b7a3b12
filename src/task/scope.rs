//! Coroutines that borrow from a scope which blocks.

use core::convert::Infallible;
use core::fmt;
use core::future::Future;
use core::ptr::NonNull;

use super::coroutine::task::Task;
use crate::scheduler::thread_pool::Scope;
use crate::{EmptyEnv, Panic, Receiver, Transfer, starts_on, submit};

impl<'scope> Scope<'scope> {
    /// Runs a future as a task on the pool, some time before the scope ends. It may borrow what outlives `'scope`, and await
    /// meanwhile.
    ///
    /// It is a task as any other: it runs on the workers of the scope's pool alone, and takes none of them while it waits.
    /// What it awaits is `'static` all the same, where that is a sender, as everywhere; other futures may borrow.
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
    /// # Completions
    ///
    /// Nobody is told, but the scope, which waits. A sender that stops ends the task where it awaits that.
    ///
    /// # Panics
    ///
    /// Its panic is that of a closure: the scope goes on, and panics with the first when all have ended.
    ///
    /// # Cancellation
    ///
    /// None, unless a stop token was written into the environment of what it awaits.
    ///
    /// # Allocation
    ///
    /// Two: the task, and its operation.
    ///
    /// # Stack
    ///
    /// Constant.
    pub fn spawn_async<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'scope,
    {
        // SAFETY: the scope waits for the count below, which is given back when the task is done, and its future gone; what
        // the future borrows outlives `'scope`.
        let task = unsafe { Task::of_borrowing(future) };
        self.begin();
        let child = ScopedChild {
            // Only the lifetime is erased, which says nothing about what is in there.
            scope: NonNull::from(self).cast(),
        };
        submit(starts_on(self.pool(), task), child);
    }
}

/// The receiver of a task in a scope. Its operation is gone when it completes or is dropped.
struct ScopedChild {
    scope: NonNull<Scope<'static>>,
}

// SAFETY: a scope may be used on any thread, and waits for this.
unsafe impl Send for ScopedChild {}

impl Drop for ScopedChild {
    fn drop(&mut self) {
        // SAFETY: the task is done, and this is the only end of the one that was counted for it.
        unsafe { Scope::ended(self.scope) };
    }
}

impl Receiver<(), Infallible> for ScopedChild {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, (): ()) -> Transfer {
        Transfer::none()
    }

    fn set_error(self, error: Infallible) -> Transfer {
        match error {}
    }

    fn set_stopped(self) -> Transfer {
        Transfer::none()
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        // SAFETY: the scope waits for this.
        unsafe { self.scope.as_ref() }.panicked(payload);
        Transfer::none()
    }
}

impl fmt::Debug for ScopedChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedChild").finish_non_exhaustive()
    }
}
