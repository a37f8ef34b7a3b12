use core::convert::Infallible;

use super::kind::Kind;
use super::state::ScopeRef;
use crate::adaptors::Affine;
use crate::adaptors::waiters::{Awaited, Begin, WaitOperation, Waiters};
use crate::sender::demand::demand;
use crate::sync::SpinLock;
use crate::{Completes, Completion, Env, Receiver, Scheduler, Sender, Transfer};

/// A sender that completes when all work in a scope has ended. Created by [`Scope::join`](super::Scope::join).
///
/// From then on the scope is *joined*: it refuses work, and every other join of it completes. Until then it accepts
/// work, unless it is [closed](super::Scope::close), and work in it may spawn more. Joining a scope without running
/// work makes it joined at once.
///
/// There may be any number of joins, concurrently and later.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// // A service is given a moment to end in peace, and is told to stop then.
/// let scope = CountingScope::new();
/// scope.spawn(starts_on(ThreadPool::global().scheduler(), never::<(), Infallible>()));
/// scope.close();
/// let peace = scope.join().timeout(Duration::from_millis(1));
/// if !sync_wait(peace).is_value() {
///     scope.request_stop();
///     sync_wait(scope.join()).unwrap();
/// }
/// assert_eq!(scope.in_use(), 0);
/// ```
///
/// # Completions
///
/// `()`, after the last association has ended, on the scheduler it was started on. The environment must have an
/// infallible scheduler.
///
/// # Panics
///
/// With the first panic of the work [spawned](super::Scope::spawn) in the scope. The first join gets the payload, the
/// others its message.
///
/// # Cancellation
///
/// If the receiver's stop is requested, the join completes stopped at once. The work in the scope continues, and the
/// scope is not joined. `scope.join().unstoppable()` ignores the stop.
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[must_use = "senders do nothing until they are connected and started"]
pub struct Join<K: Kind> {
    handle: ScopeRef<K>,
}

impl<K: Kind> Join<K> {
    pub(super) fn new(handle: ScopeRef<K>) -> Self {
        Join { handle }
    }
}

impl<K: Kind> Clone for Join<K> {
    fn clone(&self) -> Self {
        Join::new(self.handle.clone())
    }
}

crate::opaque!([K: Kind] Join<K>);

// SAFETY: the operation is the one of `Affine`, which meets the contract.
unsafe impl<K: Kind> Sender for Join<K> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Affine::<JoinWait<K>>::COMPLETES;
    type Operation<R: Receiver<(), Infallible>> = <Affine<JoinWait<K>> as Sender>::Operation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`join` completes on a scheduler, and there is none here: write `starts_on(scheduler, scope.join())`, or give it one with `.with_scheduler(scheduler)`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`join` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        Affine::new(JoinWait { handle: self.handle }).operation(receiver)
    }
}

/// The join without its scheduler: completes on the thread that ends the last association.
#[derive(Debug)]
pub struct JoinWait<K: Kind> {
    handle: ScopeRef<K>,
}

// SAFETY: the operation does not access itself after it is in the list, nor after its completion. It is `!Unpin`.
unsafe impl<K: Kind> Sender for JoinWait<K> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = WaitOperation<Self, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        WaitOperation::new(Some(self), receiver)
    }
}

// SAFETY: the handle keeps the state and its list valid, and may be used on any thread. The waiters are taken when the
// scope becomes joined, and `begin` reports that state too.
unsafe impl<K: Kind> Awaited for JoinWait<K> {
    type Value = ();
    type Error = Infallible;
    type Run = Infallible;

    fn waiters(&self) -> &SpinLock<Waiters> {
        self.handle.waiters()
    }

    fn begin(&self, waiters: &mut Waiters) -> Begin<Infallible> {
        self.handle.join(waiters)
    }

    fn run(run: Infallible) -> Transfer {
        match run {}
    }

    fn left(&self, waiters: &mut Waiters) {
        if waiters.is_empty() {
            self.handle.leave(waiters);
        }
    }

    unsafe fn result(self) -> (Completion<(), Infallible>, Transfer) {
        let completion = match self.handle.panic() {
            None => Completion::Value(()),
            Some(payload) => Completion::Panicked(payload),
        };
        (completion, self.give_back())
    }

    fn give_back(self) -> Transfer {
        drop(self);
        Transfer::none()
    }
}
