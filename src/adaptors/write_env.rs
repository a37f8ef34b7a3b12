use crate::sender::dismantle::dismantle;
use crate::{Completes, Panic, Patch, Patched, Receiver, Sender, Transfer};

/// Sender created by [`Sender::write_env`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct WriteEnv<S, P> {
    sender: S,
    patch: P,
}

impl<S, P> WriteEnv<S, P> {
    #[inline]
    pub(crate) fn new(sender: S, patch: P) -> Self {
        WriteEnv { sender, patch }
    }
}

// SAFETY: the operation is the child's, and the receiver completes inside the child's completion. The child's promise
// about its start scheduler refers to the one written here, so it does not hold outside.
unsafe impl<S: Sender, P: Patch> Sender for WriteEnv<S, P> {
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = if P::CHANGES_SCHEDULER && !S::COMPLETES.is_inline() {
        Completes::Anywhere
    } else {
        S::COMPLETES
    };
    type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<WriteEnvReceiver<P, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(WriteEnvReceiver {
            patch: self.patch,
            receiver,
        })
    }

    dismantle!(sender);
}

/// The receiver of [`WriteEnv`].
#[derive(Debug)]
pub struct WriteEnvReceiver<P, R> {
    patch: P,
    receiver: R,
}

impl<P, R> WriteEnvReceiver<P, R> {
    /// Returns the receiver. The patch is dropped before the completion, which may invalidate what the patch borrows.
    #[inline]
    fn into_receiver(self) -> R {
        self.receiver
    }
}

impl<T, E, P: Patch, R: Receiver<T, E>> Receiver<T, E> for WriteEnvReceiver<P, R> {
    type Env = Patched<P, R::Env>;

    #[inline]
    fn env(&self) -> Self::Env {
        Patched::new(self.patch.clone(), self.receiver.env())
    }

    #[inline]
    fn set_value(self, value: T) -> Transfer {
        self.into_receiver().set_value(value)
    }

    #[inline]
    fn set_error(self, error: E) -> Transfer {
        self.into_receiver().set_error(error)
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.into_receiver().set_stopped()
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.into_receiver().set_panicked(payload)
    }
}
