use core::fmt;

use super::associate::Associated;
use super::kind::{Kind, WithStop};
use super::spawn::{NoValue, SpawnedReceiver};
use super::spawn_future::SpawnFuture;
use super::state::ScopeRef;
use crate::adaptors::Handled;
use crate::{Sender, consumers};

/// A handle that starts work in a [`Scope`](super::Scope), from anywhere. Created by
/// [`Scope::token`](super::Scope::token).
///
/// It can be cloned and sent. It keeps the memory of the scope alive, but neither closes nor joins the scope. After the
/// [`Scope`](super::Scope) is dropped or joined, it starts no work. Two tokens are equal if they belong to one scope.
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::mpsc;
///
/// let scope = CountingScope::new();
/// let (sent, received) = mpsc::channel();
/// let token = scope.token();
/// scope.spawn(just_from(move || {
///     // Work in the scope may start more work there, also during a join.
///     token.spawn(just(7).then(move |x| sent.send(x).unwrap()));
/// }));
/// sync_wait(scope.join()).unwrap();
/// assert_eq!(received.recv().unwrap(), 7);
/// ```
pub struct ScopeToken<K: Kind = WithStop> {
    pub(super) handle: ScopeRef<K>,
}

impl<K: Kind> ScopeToken<K> {
    /// Starts a sender on the heap: see [`Scope::spawn`](super::Scope::spawn).
    pub fn spawn<S>(&self, sender: S) -> bool
    where
        S: Sender<Value: NoValue, Error: Handled> + 'static,
    {
        match self.handle.associate() {
            Some(association) => {
                consumers::submit(sender, SpawnedReceiver { association });
                true
            }
            None => false,
        }
    }

    /// Starts a sender and returns a sender of its result: see [`Scope::spawn_future`](super::Scope::spawn_future).
    pub fn spawn_future<S>(&self, sender: S) -> SpawnFuture<S, K>
    where
        S: Sender<Value: Send, Error: Send> + 'static,
    {
        SpawnFuture::new(self.associate(sender))
    }

    /// Associates a sender with the scope: see [`Scope::associate`](super::Scope::associate).
    pub fn associate<S: Sender>(&self, sender: S) -> Associated<S, K> {
        Associated::new(sender, self.handle.associate())
    }

    /// Returns whether the scope refuses work: see [`Scope::is_closed`](super::Scope::is_closed).
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }
}

impl<K: Kind> Clone for ScopeToken<K> {
    fn clone(&self) -> Self {
        ScopeToken {
            handle: self.handle.clone(),
        }
    }
}

impl<K: Kind> PartialEq for ScopeToken<K> {
    fn eq(&self, other: &Self) -> bool {
        self.handle == other.handle
    }
}

impl<K: Kind> Eq for ScopeToken<K> {}

impl<K: Kind> fmt::Debug for ScopeToken<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopeToken")
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
