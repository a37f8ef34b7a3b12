//! A completion that waits for something else to complete first: the end of `finally`, the hop of `continues_on`.

use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Panic, Receiver, Sender, Transfer};

/// Runs `sender` for its effect, then delivers the kept completion.
#[derive(Debug)]
pub struct Conclude<S, T, E> {
    sender: S,
    kept: Kept<T, E>,
}

#[derive(Debug)]
struct Kept<T, E> {
    completion: Completion<T, E>,
    on_stop: OnStop,
}

/// The effect of a stop of the sender on a kept value. Any other kept completion is delivered in any case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnStop {
    /// The value is delivered.
    Deliver,
    /// The value is dropped, and the completion is a stop.
    Stop,
}

impl<S, T, E> Conclude<S, T, E> {
    #[inline]
    pub(crate) fn new(sender: S, completion: Completion<T, E>, on_stop: OnStop) -> Self {
        Conclude {
            sender,
            kept: Kept { completion, on_stop },
        }
    }
}

// SAFETY: the operation is the child's, and the receiver completes inside the child's completion.
unsafe impl<S: Sender<Value = ()>, T: Send, E: Send> Sender for Conclude<S, T, E> {
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<T, E>> = S::Operation<ConcludeReceiver<T, E, R>>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(ConcludeReceiver {
            kept: self.kept,
            receiver,
        })
    }

    dismantle!(sender);
}

/// The receiver of [`Conclude`].
#[derive(Debug)]
pub struct ConcludeReceiver<T, E, R> {
    kept: Kept<T, E>,
    receiver: R,
}

impl<T: Send, E: Send, E2, R: Receiver<T, E>> Receiver<(), E2> for ConcludeReceiver<T, E, R> {
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        self.receiver.env()
    }

    #[inline]
    fn set_value(self, (): ()) -> Transfer {
        self.kept.completion.deliver(self.receiver)
    }

    /// Delivers the kept completion, also after an error: the sender was required not to fail, at compile time.
    #[inline]
    fn set_error(self, error: E2) -> Transfer {
        drop(error);
        self.kept.completion.deliver(self.receiver)
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        match (self.kept.on_stop, self.kept.completion) {
            (OnStop::Stop, Completion::Value(value)) => {
                // Dropped before the completion, which may invalidate what it borrows.
                drop(value);
                self.receiver.set_stopped()
            }
            (_, completion) => completion.deliver(self.receiver),
        }
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        match self.kept.completion {
            Completion::Panicked(first) => self.receiver.set_panicked(first),
            kept => {
                // Dropped before the completion, which may invalidate what it borrows.
                drop(kept);
                self.receiver.set_panicked(payload)
            }
        }
    }
}
