use core::fmt;

use super::associate::Associated;
use super::join::Join;
use super::kind::{Kind, WithStop, WithoutStop};
use super::spawn::NoValue;
use super::spawn_future::SpawnFuture;
use super::state::ScopeRef;
use super::token::ScopeToken;
use crate::Sender;
use crate::adaptors::Handled;

/// A scope with a stop source for all of its work.
pub type CountingScope = Scope<WithStop>;

/// A scope that only counts. It has no stop source, and its work sees none.
pub type SimpleCountingScope = Scope<WithoutStop>;

/// A scope in which work is started without waiting for each piece, and joined together. It is a [`CountingScope`] or a
/// [`SimpleCountingScope`].
///
/// Every piece of work in it is an *association*, counted until it has ended. A scope is **open** at first. It is
/// **closed** by [`close`](Scope::close), and **joined** when a [`join`](Scope::join) has completed. A closed or joined
/// scope refuses work.
///
/// Work outlives the call that starts it, so it cannot borrow. Under [`task::scope`](crate::task::scope), which blocks,
/// it can.
///
/// # Dropping it
///
/// Dropping a scope without running work has no effect. A scope with running work is closed, and a [`CountingScope`]
/// requests a stop of the work. The drop does not wait. The work runs to its end, and joins that are waiting complete
/// then. Nothing leaks, but no caller waits for the work: join the scope before you drop it.
///
/// ```
/// use bowline::prelude::*;
///
/// // The scope lives in the operation until the join has completed.
/// let work = just(CountingScope::new()).let_value(|scope| {
///     for _ in 0..3 {
///         scope.spawn(just(()));
///     }
///     scope.join()
/// });
/// sync_wait(work).unwrap();
/// ```
pub struct Scope<K: Kind> {
    token: ScopeToken<K>,
}

impl<K: Kind> Scope<K> {
    /// Creates an open scope without work. It allocates once.
    pub fn new() -> Self {
        Scope {
            token: ScopeToken {
                handle: ScopeRef::new(),
            },
        }
    }

    /// Returns a handle that starts work in this scope, from anywhere, also from inside that work.
    pub fn token(&self) -> ScopeToken<K> {
        self.token.clone()
    }

    /// Starts a sender on the heap, associated with the scope. Returns `false` if the scope is closed or joined. The
    /// sender is then dropped without being started.
    ///
    /// The work that the start resumes has run when this returns. To run it elsewhere, write
    /// `scope.spawn(starts_on(scheduler, sender))`.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::ThreadPool;
    /// use bowline::task::Task;
    ///
    /// let scope = CountingScope::new();
    /// let pool = ThreadPool::global().scheduler();
    /// assert!(scope.spawn(starts_on(pool, Task::new(async { /* serve a request */ }))));
    /// scope.close();
    /// assert!(!scope.spawn(just(())));
    /// sync_wait(scope.join()).unwrap();
    /// ```
    ///
    /// # Completions
    ///
    /// The sender must have neither a value nor an error, since there is no receiver for them. Use `.then(drop)` and
    /// [`.upon_error(..)`](Sender::upon_error). A stop is ignored.
    ///
    /// # Panics
    ///
    /// The panic hook reports a panic of the sender. The other work continues, and [`join`](Scope::join) completes with
    /// the first panic.
    ///
    /// # Cancellation
    ///
    /// The environment of the sender contains the stop token of the [`CountingScope`], and no other value.
    ///
    /// # Allocation
    ///
    /// One, for the operation.
    ///
    /// # Stack
    ///
    /// Constant: the call is a driver.
    pub fn spawn<S>(&self, sender: S) -> bool
    where
        S: Sender<Value: NoValue, Error: Handled> + 'static,
    {
        self.token.spawn(sender)
    }

    /// Starts a sender on the heap, associated with the scope, and returns a sender of its result. See [`SpawnFuture`].
    pub fn spawn_future<S>(&self, sender: S) -> SpawnFuture<S, K>
    where
        S: Sender<Value: Send, Error: Send> + 'static,
    {
        self.token.spawn_future(sender)
    }

    /// Associates a sender with the scope, from now until it has completed or is dropped. See [`Associated`].
    pub fn associate<S: Sender>(&self, sender: S) -> Associated<S, K> {
        self.token.associate(sender)
    }

    /// Closes the scope: it refuses work from now on. Running work continues.
    pub fn close(&self) {
        self.token.handle.close();
    }

    /// Returns whether the scope refuses work: it is closed or joined.
    pub fn is_closed(&self) -> bool {
        self.token.is_closed()
    }

    /// Returns the number of associations: running work, and [associated](Scope::associate) senders that are not
    /// started yet.
    ///
    /// Other threads may change it at any time. [`join`](Scope::join) waits until it is 0.
    pub fn in_use(&self) -> usize {
        self.token.handle.in_use()
    }

    /// Returns a sender that completes when all work in the scope has ended. See [`Join`].
    pub fn join(&self) -> Join<K> {
        Join::new(self.token.handle.clone())
    }
}

impl CountingScope {
    /// Requests a stop of all work in the scope, running and future. Returns `true` for the first request and `false`
    /// for every other.
    ///
    /// The scope is not closed. Calls every registered callback on this thread, outside any lock, and then runs the
    /// work that they resumed.
    pub fn request_stop(&self) -> bool {
        self.token.handle.request_stop()
    }

    /// Returns whether the stop has been requested.
    pub fn stop_requested(&self) -> bool {
        self.token.handle.stop_requested()
    }
}

impl<K: Kind> Drop for Scope<K> {
    fn drop(&mut self) {
        // SAFETY: a state has one `Scope`, which is dropped once.
        unsafe { self.token.handle.abandon() };
    }
}

impl<K: Kind> Default for Scope<K> {
    fn default() -> Self {
        Scope::new()
    }
}

impl<K: Kind> fmt::Debug for Scope<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token.handle.debug("Scope", f)
    }
}
