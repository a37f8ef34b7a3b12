//! An adaptor: a sender made from another sender.

use bowline::{Completes, Panic, Receiver, Sender, Transfer};

/// Passes a reference to the value to a function, and forwards the value.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Inspect<S, F> {
    sender: S,
    function: F,
}

/// Adds `inspect` to every sender.
pub trait InspectExt: Sender {
    fn inspect<F: FnOnce(&Self::Value) + Send>(self, function: F) -> Inspect<Self, F> {
        Inspect { sender: self, function }
    }
}

impl<S: Sender> InspectExt for S {}

// SAFETY: the operation is the child's, which keeps the contract. The receiver completes inside the child's completion.
unsafe impl<S, F> Sender for Inspect<S, F>
where
    S: Sender,
    F: FnOnce(&S::Value) + Send,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    // The operation is the child's, with a wrapped receiver.
    type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<InspectReceiver<F, R>>;

    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(InspectReceiver {
            function: self.function,
            receiver,
        })
    }
}

/// The receiver of the child.
#[derive(Debug)]
pub struct InspectReceiver<F, R> {
    function: F,
    receiver: R,
}

impl<T, E, F, R> Receiver<T, E> for InspectReceiver<F, R>
where
    F: FnOnce(&T) + Send,
    R: Receiver<T, E>,
{
    type Env = R::Env;

    fn env(&self) -> R::Env {
        self.receiver.env()
    }

    fn set_value(self, value: T) -> Transfer {
        // The function may panic. The panic has its own completion.
        match Panic::catch(|| (self.function)(&value)) {
            Ok(()) => self.receiver.set_value(value),
            Err(payload) => self.receiver.set_panicked(payload),
        }
    }

    fn set_error(self, error: E) -> Transfer {
        self.receiver.set_error(error)
    }

    fn set_stopped(self) -> Transfer {
        self.receiver.set_stopped()
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.receiver.set_panicked(payload)
    }
}
