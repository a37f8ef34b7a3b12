use super::shared::{Fetch, Interest, SharedRef};
use super::waiters::WaitOperation;
use crate::{Completion, Receiver, Sender};

/// Sender created by [`Sender::ensure_started`].
#[must_use = "dropping it asks the sender to stop; wait for it, or use `start_detached`"]
pub struct EnsureStarted<S> {
    handle: SharedRef<S>,
}

impl<S: Sender<Value: Send, Error: Send>> EnsureStarted<S> {
    pub(crate) fn new(sender: S) -> Self {
        let handle = SharedRef::new(sender);
        handle.start().run();
        EnsureStarted { handle }
    }
}

crate::opaque!([S] EnsureStarted<S>);

// SAFETY: a `WaitOperation` is `!Unpin`, and accesses nothing of itself once it is in the list, nor after its
// completion.
unsafe impl<S> Sender for EnsureStarted<S>
where
    S: Sender + 'static,
    S::Value: Send,
    S::Error: Send,
{
    type Value = S::Value;
    type Error = S::Error;
    type Operation<R: Receiver<S::Value, S::Error>> = WaitOperation<Interest<S, FetchOnce>, R>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        WaitOperation::new(Some(Interest::new(self.handle)), receiver)
    }
}

/// Delivery of the completion itself: one handle means one waiter.
#[derive(Debug)]
pub struct FetchOnce;

impl<T, E> Fetch<T, E> for FetchOnce {
    unsafe fn fetch(completion: *mut Option<Completion<T, E>>) -> Completion<T, E> {
        // SAFETY: the completion was written, and this is the only waiter, by the contract.
        unsafe { (*completion).take() }.unwrap_or(Completion::Stopped)
    }
}
