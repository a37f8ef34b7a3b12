use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;

use crate::{Completes, Operation, Panic, Receiver, Sender, Transfer};

/// Makes a sender that calls a function at its start, and completes with the result.
///
/// ```
/// use bowline::prelude::*;
///
/// assert_eq!(sync_wait(just_from(|| 6 * 7)).unwrap(), 42);
/// ```
///
/// # Completions
///
/// The function's result, inside `start`.
///
/// # Panics
///
/// A panic of the function is the completion.
///
/// # Cancellation
///
/// Ignored: the function is called.
#[inline]
pub fn just_from<F: FnOnce() -> T, T>(function: F) -> JustFrom<F> {
    JustFrom { function }
}

/// Sender created by [`just_from`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct JustFrom<F> {
    function: F,
}

// SAFETY: the operation completes inside `start`, accesses nothing of itself afterwards, and is `!Unpin`.
unsafe impl<F: FnOnce() -> T, T> Sender for JustFrom<F> {
    type Value = T;
    type Error = Infallible;
    const COMPLETES: Completes = Completes::Inline;
    type Operation<R: Receiver<T, Infallible>> = JustFromOperation<F, R>;

    #[inline]
    fn connect<R: Receiver<T, Infallible>>(self, receiver: R) -> Self::Operation<R> {
        JustFromOperation {
            ready: Some((self.function, receiver)),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`JustFrom`].
pub struct JustFromOperation<F, R> {
    ready: Option<(F, R)>,
    _pinned: PhantomPinned,
}

impl<F: FnOnce() -> T, T, R: Receiver<T, Infallible>> Operation for JustFromOperation<F, R> {
    #[inline]
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: neither the function nor the receiver is pinned.
        match unsafe { self.get_unchecked_mut() }.ready.take() {
            Some((function, receiver)) => match Panic::catch(function) {
                Ok(value) => receiver.set_value(value),
                Err(payload) => receiver.set_panicked(payload),
            },
            None => Transfer::none(),
        }
    }
}

impl<F, R> fmt::Debug for JustFromOperation<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JustFromOperation")
            .field("started", &self.ready.is_none())
            .finish()
    }
}
