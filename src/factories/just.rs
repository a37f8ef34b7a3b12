use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;

use crate::{Completes, Completion, Operation, Receiver, Sender, Transfer};

/// Makes a sender that completes with a value.
///
/// ```
/// use bowline::prelude::*;
///
/// assert_eq!(sync_wait(just(6).then(|x| x * 7)).unwrap(), 42);
/// ```
///
/// # Completions
///
/// The value, inside `start`.
///
/// # Cancellation
///
/// Ignored.
#[inline]
pub fn just<T>(value: T) -> Just<T> {
    Just { value }
}

/// Sender created by [`just`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Just<T> {
    value: T,
}

// SAFETY: a `ReadyOperation` keeps the promises of `Sender`, and completes inside `start`.
unsafe impl<T> Sender for Just<T> {
    type Value = T;
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<T, Infallible>> = ReadyOperation<T, Infallible, R>;

    #[inline]
    fn connect<R: Receiver<T, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        ReadyOperation::new(Completion::Value(self.value), receiver)
    }
}

/// The operation of a sender whose completion is known before the start: `just`, `just_error`, `just_stopped`.
///
/// It completes inside `start`, accesses nothing of itself afterwards, and is not `Unpin`.
pub struct ReadyOperation<T, E, R> {
    ready: Option<(Completion<T, E>, R)>,
    _pinned: PhantomPinned,
}

impl<T, E, R> ReadyOperation<T, E, R> {
    #[inline]
    pub(crate) fn new(completion: Completion<T, E>, receiver: R) -> Self {
        ReadyOperation {
            ready: Some((completion, receiver)),
            _pinned: PhantomPinned,
        }
    }
}

impl<T, E, R: Receiver<T, E>> Operation for ReadyOperation<T, E, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: neither the completion nor the receiver is pinned.
        match unsafe { self.get_unchecked_mut() }.ready.take() {
            Some((completion, receiver)) => completion.deliver(receiver),
            None => Transfer::none(),
        }
    }
}

impl<T, E, R> fmt::Debug for ReadyOperation<T, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyOperation")
            .field("started", &self.ready.is_none())
            .finish()
    }
}
