use core::fmt;

use super::shared::{Fetch, Handle, Interest};
use super::waiters::WaitOperation;
use crate::sender::dismantle::DropList;
use crate::{Completion, Panic, Receiver, Sender};

/// Runs a sender once, for any number of receivers, each of which gets a clone of the result. Made by
/// [`Sender::split`].
///
/// The run begins when the first of its clones is started. Late receivers get the stored result.
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static RUNS: AtomicU32 = AtomicU32::new(0);
/// let shared = just_from(|| RUNS.fetch_add(1, Ordering::Relaxed)).then(|_| "loaded").split();
/// let both = when_all((shared.clone(), shared));
/// assert_eq!(sync_wait(both).unwrap(), ("loaded", "loaded"));
/// assert_eq!(RUNS.load(Ordering::Relaxed), 1);
/// ```
///
/// # Completions
///
/// A clone of the value or of the error, or the stop. Of a panic every receiver gets the message, since a payload
/// cannot be cloned.
///
/// # Panics
///
/// A panic of the sender arrives at every receiver. A panic of `Clone` arrives at the receiver it was for.
///
/// # Cancellation
///
/// A receiver whose stop is requested leaves at once, with a stop, and the others go on waiting. When the last handle
/// and the last receiver are gone, the sender is asked to stop, and ends on its own.
///
/// # Allocation
///
/// One, when it is made.
///
/// # Stack
///
/// Constant, for any number of receivers.
#[must_use = "senders do nothing until they are connected and started"]
pub struct Split<S> {
    /// `None` once it was moved out, to be destroyed.
    handle: Option<Handle<S>>,
}

impl<S: Sender<Value: Send, Error: Send>> Split<S> {
    pub(crate) fn new(sender: S) -> Self {
        Split {
            handle: Some(Handle::new(sender)),
        }
    }
}

impl<S: Sender> Clone for Split<S> {
    fn clone(&self) -> Self {
        Split {
            handle: self.handle.as_ref().map(Handle::clone),
        }
    }
}

impl<S> fmt::Debug for Split<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split").finish_non_exhaustive()
    }
}

// SAFETY: a `WaitOperation` touches nothing once it is in the list, nor after its completion, and is `!Unpin`.
unsafe impl<S> Sender for Split<S>
where
    S: Sender + Send + 'static,
    S::Value: Clone + Send + Sync,
    S::Error: Clone + Send + Sync,
{
    type Value = S::Value;
    type Error = S::Error;
    type Operation<R: Receiver<S::Value, S::Error>> = WaitOperation<Interest<S, FetchClone>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        WaitOperation::new(self.handle.map(Interest::new), receiver)
    }

    fn dismantle<'a>(&mut self, list: &mut DropList<'a>)
    where
        Self: 'a,
    {
        if let Some(handle) = self.handle.take() {
            handle.give_to(list);
        }
    }
}

/// A clone of the completion.
#[derive(Debug)]
pub struct FetchClone;

impl<T: Clone, E: Clone> Fetch<T, E> for FetchClone {
    unsafe fn fetch(completion: *mut Option<Completion<T, E>>) -> Completion<T, E> {
        // SAFETY: the completion is there, and only ever read.
        match unsafe { &*completion } {
            Some(Completion::Value(value)) => match Panic::catch(|| value.clone()) {
                Ok(value) => Completion::Value(value),
                Err(payload) => Completion::Panicked(payload),
            },
            Some(Completion::Error(error)) => match Panic::catch(|| error.clone()) {
                Ok(error) => Completion::Error(error),
                Err(payload) => Completion::Panicked(payload),
            },
            #[cfg(feature = "std")]
            Some(Completion::Panicked(payload)) => Completion::Panicked(payload.echo()),
            #[cfg(not(feature = "std"))]
            Some(Completion::Panicked(payload)) => match *payload {},
            Some(Completion::Stopped) | None => Completion::Stopped,
        }
    }
}
