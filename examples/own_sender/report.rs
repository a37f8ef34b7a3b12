//! A receiver: where a result goes.

use std::sync::mpsc;

use bowline::stop::SharedStopToken;
use bowline::{Completion, EmptyEnv, Panic, Patched, Receiver, Transfer, WithStopToken};

/// Puts the completion into a channel. The work sees the stop token that it was made with.
///
/// Dropped without a completion, it closes the channel, from which whoever waits learns that nothing will come.
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
        // Nobody may be listening any more, which is no concern of the work.
        let _ = self.channel.send(completion);
        // Nothing waits in line to be resumed.
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
