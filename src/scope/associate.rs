use core::fmt;
use core::pin::Pin;

use super::kind::Kind;
use super::state::Association;
use crate::sender::dismantle::DropList;
use crate::{Completes, Operation, Panic, Receiver, Sender, Transfer};

/// A sender associated with a scope. Created by [`Scope::associate`](super::Scope::associate).
///
/// The association lasts from the call until the operation has completed, or the sender is dropped. A
/// [`join`](super::Scope::join) waits for it, even if the sender is never started. A clone is a new association, which
/// the scope may refuse.
///
/// ```
/// use bowline::prelude::*;
///
/// let scope = CountingScope::new();
/// let work = scope.associate(just(7));
/// assert_eq!(scope.in_use(), 1);
/// assert_eq!(sync_wait(work).unwrap(), 7);
/// assert_eq!(scope.in_use(), 0);
///
/// scope.close();
/// assert!(sync_wait(scope.associate(just(7))).is_stopped());
/// ```
///
/// # Completions
///
/// The completions of the sender. If the scope refused it, the sender is dropped at once, and this completes stopped.
///
/// # Panics
///
/// Panics of the sender are passed on.
///
/// # Cancellation
///
/// The sender is stopped by the receiver's token and by the [`CountingScope`](super::CountingScope).
///
/// # Allocation
///
/// None.
///
/// # Stack
///
/// Constant.
#[must_use = "senders do nothing until they are connected and started; until then `join` waits for this one"]
pub struct Associated<S, K: Kind> {
    /// `None` if the scope refused. The sender is dropped before its association ends.
    inside: Option<(S, Association<K>)>,
}

impl<S, K: Kind> Associated<S, K> {
    pub(super) fn new(sender: S, association: Option<Association<K>>) -> Self {
        Associated {
            inside: association.map(|association| (sender, association)),
        }
    }

    /// Returns whether the scope refused the sender.
    pub const fn is_refused(&self) -> bool {
        self.inside.is_none()
    }
}

impl<S: Clone, K: Kind> Clone for Associated<S, K> {
    fn clone(&self) -> Self {
        let again =
            |(sender, association): &(S, Association<K>)| association.again().map(|again| (sender.clone(), again));
        Associated {
            inside: self.inside.as_ref().and_then(again),
        }
    }
}

impl<S, K: Kind> fmt::Debug for Associated<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Associated")
            .field("refused", &self.is_refused())
            .finish_non_exhaustive()
    }
}

// SAFETY: the operation is the wrapped sender's, or completes inside `start`. It is `!Unpin`, because the wrapped one
// is.
unsafe impl<S, K> Sender for Associated<S, K>
where
    S: Sender<Value: Send, Error: Send>,
    K: Kind,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = K::Wrapped::<S>::COMPLETES;
    type Operation<R: Receiver<S::Value, S::Error>> = AssociatedOperation<S, K, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> AssociatedOperation<S, K, R> {
        match self.inside {
            None => AssociatedOperation::Refused(Some(receiver)),
            Some((sender, association)) => {
                // SAFETY: only the operation uses the token. Its receiver, a `Part`, owns the association until it is
                // completed or dropped. The operation uses the token no later than that.
                let token = unsafe { association.token() };
                AssociatedOperation::Accepted(K::wrap(sender, token).connect(Part { receiver, association }))
            }
        }
    }

    fn dismantle<'a>(&mut self, list: &mut DropList<'a>)
    where
        Self: 'a,
    {
        if let Some((sender, _)) = &mut self.inside {
            sender.dismantle(list);
        }
    }
}

/// The operation of [`Associated`].
pub enum AssociatedOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: Kind,
    R: Receiver<S::Value, S::Error>,
{
    #[doc(hidden)]
    Refused(Option<R>),
    #[doc(hidden)]
    Accepted(<K::Wrapped<S> as Sender>::Operation<Part<R, K>>),
}

impl<S, K, R> Operation for AssociatedOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: Kind,
    R: Receiver<S::Value, S::Error>,
{
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the receiver is moved, and it is not pinned.
        match unsafe { self.get_unchecked_mut() } {
            AssociatedOperation::Refused(receiver) => match receiver.take() {
                Some(receiver) => receiver.set_stopped(),
                None => Transfer::none(),
            },
            // SAFETY: the inner operation is pinned with this one, and started once, by the contract of `start`.
            AssociatedOperation::Accepted(operation) => unsafe { Pin::new_unchecked(operation).start() },
        }
    }
}

impl<S, K, R> fmt::Debug for AssociatedOperation<S, K, R>
where
    S: Sender<Value: Send, Error: Send>,
    K: Kind,
    R: Receiver<S::Value, S::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssociatedOperation").finish_non_exhaustive()
    }
}

/// The receiver of an associated sender.
///
/// The association ends after the inner receiver was completed, so a join finds all work done. The association borrows
/// nothing, so it may outlive that completion.
pub struct Part<R, K: Kind> {
    receiver: R,
    association: Association<K>,
}

impl<T, E, R: Receiver<T, E>, K: Kind> Receiver<T, E> for Part<R, K> {
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        self.receiver.env()
    }

    #[inline]
    fn set_value(self, value: T) -> Transfer {
        self.receiver.set_value(value).and(self.association.end())
    }

    #[inline]
    fn set_error(self, error: E) -> Transfer {
        self.receiver.set_error(error).and(self.association.end())
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.receiver.set_stopped().and(self.association.end())
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.receiver.set_panicked(payload).and(self.association.end())
    }
}

crate::opaque!([R, K: Kind] Part<R, K>);
