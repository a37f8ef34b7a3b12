use super::associate::Associated;
use super::kind::Kind;
use crate::adaptors::EnsureStarted;
use crate::{Completes, Receiver, Sender};

/// The result of work in a scope: a sender, which can also be awaited. Created by
/// [`Scope::spawn_future`](super::Scope::spawn_future).
///
/// The work is associated with the scope until it has ended. The result is kept here, and can be taken after the
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
/// The completions of the sender. If the scope refused it, the sender was dropped, and this completes stopped.
///
/// # Panics
///
/// Panics of the sender are passed on. If the result was dropped, the panic hook has reported the panic, and it is not
/// passed on.
///
/// # Cancellation
///
/// Dropping it requests a stop of the work, which then ends on its own, still associated with the scope. If the
/// receiver's stop is requested, it completes stopped at once, and drops the result. A stop of the
/// [`CountingScope`](super::CountingScope) reaches the work.
///
/// # Allocation
///
/// One, in `spawn_future`.
///
/// # Stack
///
/// Constant: `spawn_future` is a driver.
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

crate::opaque!([S, K: Kind] SpawnFuture<S, K>);

// SAFETY: the operation is the one of `EnsureStarted`, which meets the contract.
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
