//! A receiver: the destination of a result.

use std::sync::mpsc;

use bowline::stop::SharedStopToken;
use bowline::{Completion, EmptyEnv, Panic, Patched, Receiver, Transfer, WithStopToken};

/// Sends the completion to a channel. The work sees the given stop token.
///
/// If it is dropped without a completion, the channel closes.
#[derive(Debug)]
pub struct Report<T, E> {
    channel: mpsc::Sender<Completion<T, E>>,
    token: SharedStopToken,
}

impl<T, E> Report<T, E> {
    pub fn new(token: SharedStopToken) -> (Self, mpsc::Receiver<Completion<T, E>>) {
        let (channel, reports) = mpsc::channel();
        (Report { channel, token }, reports)
    }

    fn send(self, completion: Completion<T, E>) -> Transfer {
        // The other end may have been dropped. The work ignores that.
        let _ = self.channel.send(completion);
        // There is no job to resume.
        Transfer::none()
    }
}

impl<T: Send, E: Send> Receiver<T, E> for Report<T, E> {
    type Env = Patched<WithStopToken<SharedStopToken>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        Patched::new(WithStopToken(self.token.clone()), EmptyEnv)
    }

    fn set_value(self, value: T) -> Transfer {
        self.send(Completion::Value(value))
    }

    fn set_error(self, error: E) -> Transfer {
        self.send(Completion::Error(error))
    }

    fn set_stopped(self) -> Transfer {
        self.send(Completion::Stopped)
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.send(Completion::Panicked(payload))
    }
}
