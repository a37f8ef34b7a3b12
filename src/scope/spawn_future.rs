use core::fmt;

use super::associate::Associated;
use super::kind::Kind;
use crate::adaptors::EnsureStarted;
use crate::{Completes, Receiver, Sender};

/// The result of work that runs in a scope: a sender, which can also be awaited. Made by
/// [`Scope::spawn_future`](super::Scope::spawn_future).
///
/// The work is a part of the scope until it has ended. Its result is not: it is kept here, and can be taken after the
/// [`join`](super::Scope::join).
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
///
/// let scope = CountingScope::new();
/// let sum = scope.spawn_future(starts_on(ThreadPool::global().scheduler(), just_from(|| (1..=100).sum::<u32>())));
/// sync_wait(scope.join()).unwrap();
/// assert_eq!(sync_wait(sum).unwrap(), 5050);
/// ```
///
/// # Completions
///
/// Those of the sender. Where the scope refused it, it was dropped, and this completes stopped.
///
/// # Panics
///
/// Those of the sender pass. A panic of work whose result was dropped has been reported by the panic hook, and goes with
/// the result.
///
/// # Cancellation
///
/// Dropping it asks the work to stop, and lets it end on its own, as a part of the scope. A receiver whose stop is
/// requested leaves at once, with a stop, which drops it. A stop of the [`CountingScope`](super::CountingScope) reaches the
/// work.
///
/// # Allocation
///
/// One, when it is made.
///
/// # Stack
///
/// Constant: making one is a driver.
#[must_use = "dropping it asks the work to stop; wait for it, or use `spawn`"]
pub struct SpawnFuture<S, K: Kind> {
    running: EnsureStarted<Associated<S, K>>,
}

impl<S, K> SpawnFuture<S, K>
where
    S: Sender<Value: Send, Error: Send> + 'static,
    K: Kind,
{
    pub(super) fn new(sender: Associated<S, K>) -> Self {
        SpawnFuture {
            running: EnsureStarted::new(sender),
        }
    }
}

impl<S, K: Kind> fmt::Debug for SpawnFuture<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnFuture").finish_non_exhaustive()
    }
}

// SAFETY: it is the other, which keeps the promises.
unsafe impl<S, K> Sender for SpawnFuture<S, K>
where
    S: Sender<Value: Send, Error: Send> + 'static,
    K: Kind,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = EnsureStarted::<Associated<S, K>>::COMPLETES;
    type Operation<R: Receiver<S::Value, S::Error>> = <EnsureStarted<Associated<S, K>> as Sender>::Operation<R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.running.connect(receiver)
    }
}
