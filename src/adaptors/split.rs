use super::shared::{Fetch, Interest, SharedRef};
use super::waiters::WaitOperation;
use crate::sender::dismantle::DropList;
use crate::{Completion, Panic, Receiver, Sender};

/// Sender created by [`Sender::split`].
#[must_use = "senders do nothing until they are connected and started"]
pub struct Split<S> {
    /// `None` once it was moved out to be destroyed.
    handle: Option<SharedRef<S>>,
}

impl<S: Sender<Value: Send, Error: Send>> Split<S> {
    pub(crate) fn new(sender: S) -> Self {
        Split {
            handle: Some(SharedRef::new(sender)),
        }
    }
}

impl<S: Sender> Clone for Split<S> {
    fn clone(&self) -> Self {
        Split {
            handle: self.handle.as_ref().map(SharedRef::clone),
        }
    }
}

crate::opaque!([S] Split<S>);

// SAFETY: a `WaitOperation` is `!Unpin`, and accesses nothing of itself once it is in the list, nor after its
// completion.
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

/// Delivery of a clone of the completion.
#[derive(Debug)]
pub struct FetchClone;

impl<T: Clone, E: Clone> Fetch<T, E> for FetchClone {
    unsafe fn fetch(completion: *mut Option<Completion<T, E>>) -> Completion<T, E> {
        // SAFETY: the completion was written, by the contract, and is only read.
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
