use core::convert::Infallible;
use core::fmt;

use super::kind::Kind;
use super::state::ScopeRef;
use crate::adaptors::Affine;
use crate::adaptors::waiters::{Awaited, Begin, WaitOperation, Waiters};
use crate::sender::demand::demand;
use crate::sync::SpinLock;
use crate::{Completes, Completion, Env, Receiver, Scheduler, Sender, Transfer};

/// Completes when everything in a scope has ended. Made by [`Scope::join`](super::Scope::join).
///
/// From then on the scope is *joined*: it refuses whatever comes, and every other join of it completes. Until then it goes
/// on taking work, unless it is [closed](super::Scope::close); what runs in it may spawn more. Joining a scope in which
/// nothing runs is joining it, too.
///
/// There may be any number of joins, at the same time and later.
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
/// `()`, after the last association has ended, on the scheduler it was started on, which must be there and infallible.
///
/// # Panics
///
/// With the first panic of what was [spawned](super::Scope::spawn) in the scope. The first join gets the payload itself,
/// the others its message.
///
/// # Cancellation
///
/// A receiver whose stop is requested leaves at once, with a stop. What runs in the scope goes on, and the scope is not
/// joined: join it again. `scope.join().unstoppable()` does not leave.
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

impl<K: Kind> fmt::Debug for Join<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").finish_non_exhaustive()
    }
}

// SAFETY: the operation is that of `affine`, which keeps the promises.
unsafe impl<K: Kind> Sender for Join<K> {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Affine::<JoinWait<K>>::COMPLETES;
    type Operation<R: Receiver<(), Infallible>> = <Affine<JoinWait<K>> as Sender>::Operation<R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`join` completes on a scheduler, and there is none here: write `starts_on(scheduler, scope.join())`, or give it one with `.write_env(WithScheduler(scheduler))`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`join` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        Affine::new(JoinWait { handle: self.handle }).operation(receiver)
    }
}

/// The same, but where the last association ended is where it completes.
#[derive(Debug)]
pub struct JoinWait<K: Kind> {
    handle: ScopeRef<K>,
}

// SAFETY: the operation touches nothing once it is in the list, nor after its completion, and is `!Unpin`.
unsafe impl<K: Kind> Sender for JoinWait<K> {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = WaitOperation<Self, R>;

    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        WaitOperation::new(Some(self), receiver)
    }
}

// SAFETY: a handle keeps the state, and so the list. The waiters are taken when the scope is joined, which `begin` says too.
// A handle may be used on any thread.
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
