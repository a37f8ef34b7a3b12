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

/// A scope whose work can be asked to stop, all of it together.
pub type CountingScope = Scope<WithStop>;

/// A scope that only counts: it has no stop of its own, and what runs in it sees none of it.
pub type SimpleCountingScope = Scope<WithoutStop>;

/// Where work is started without being waited for one by one, and joined together: a [`CountingScope`] or a
/// [`SimpleCountingScope`].
///
/// Every piece of work in it is an *association*, counted until it has ended. A scope is **open** at first; it is
/// **closed** by [`close`](Scope::close), and **joined** when a [`join`](Scope::join) has completed. In both of these it
/// refuses work.
///
/// Work outlives the call that starts it, so it does not borrow. It may do so under [`task::scope`](crate::task::scope),
/// which blocks.
///
/// # Dropping it
///
/// A scope that was not used, in which everything has ended, or that was joined, is simply dropped. One in which something
/// still runs is closed, and what runs is asked to stop, where it is a [`CountingScope`]; the drop does not wait. The work
/// runs to its end, and whoever joins already is told then. Nothing is lost and nothing leaks, but nobody waits: join before
/// you let go.
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
    /// A scope that is open, and in which nothing runs. It allocates once.
    pub fn new() -> Self {
        Scope {
            token: ScopeToken {
                handle: ScopeRef::new(),
            },
        }
    }

    /// A handle with which work is started here from elsewhere, also from inside that work.
    pub fn token(&self) -> ScopeToken<K> {
        self.token.clone()
    }

    /// Starts a sender on the heap, as a part of the scope. `false` where the scope is closed or joined: the sender was
    /// dropped then, and never started.
    ///
    /// Whatever starting it resumed has run when this returns; to have it run elsewhere, write
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
    /// The sender has neither a value nor an error, since nobody would take them: `.then(drop)` and
    /// [`.upon_error(..)`](Sender::upon_error) see to that. A stop passes unseen.
    ///
    /// # Panics
    ///
    /// The sender's panic has been reported by the panic hook. The others go on; the first of them is what
    /// [`join`](Scope::join) completes with.
    ///
    /// # Cancellation
    ///
    /// The environment of the sender has the stop token of the [`CountingScope`], and nothing else.
    ///
    /// # Allocation
    ///
    /// One, for the operation.
    ///
    /// # Stack
    ///
    /// Constant: this is a driver.
    pub fn spawn<S>(&self, sender: S) -> bool
    where
        S: Sender<Value: NoValue, Error: Handled> + 'static,
    {
        self.token.spawn(sender)
    }

    /// Starts a sender on the heap, as a part of the scope, and gives a sender of its result. See [`SpawnFuture`].
    pub fn spawn_future<S>(&self, sender: S) -> SpawnFuture<S, K>
    where
        S: Sender<Value: Send, Error: Send> + 'static,
    {
        self.token.spawn_future(sender)
    }

    /// Makes a sender a part of the scope, from now until it has completed or is dropped. See [`Associated`].
    pub fn associate<S: Sender>(&self, sender: S) -> Associated<S, K> {
        self.token.associate(sender)
    }

    /// Refuses work from now on. What runs goes on.
    pub fn close(&self) {
        self.token.handle.close();
    }

    /// Whether work is refused: the scope is closed, or joined.
    pub fn is_closed(&self) -> bool {
        self.token.is_closed()
    }

    /// How much there is in the scope: what runs, and what was [associated](Scope::associate) and is not started yet.
    ///
    /// Other threads may change it at any time; [`join`](Scope::join) waits for it to be 0.
    pub fn in_use(&self) -> usize {
        self.token.handle.in_use()
    }

    /// A sender that completes when everything in the scope has ended. See [`Join`].
    pub fn join(&self) -> Join<K> {
        Join::new(self.token.handle.clone())
    }
}

impl CountingScope {
    /// Asks all that runs in the scope, and all that will, to stop: `true` for the first request, `false` for every other.
    ///
    /// It does not close the scope. Calls every registered callback on this thread, outside any lock, then runs what they
    /// resumed.
    pub fn request_stop(&self) -> bool {
        self.token.handle.request_stop()
    }

    /// Whether the stop has been requested.
    pub fn stop_requested(&self) -> bool {
        self.token.handle.stop_requested()
    }
}

impl<K: Kind> Drop for Scope<K> {
    fn drop(&mut self) {
        // SAFETY: there is one scope for a state, and this is its end.
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
