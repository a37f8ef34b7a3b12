use super::submit;
use crate::adaptors::Handled;
use crate::{EmptyEnv, Panic, Receiver, Sender, Transfer};

/// Starts a sender on the heap and lets it run on its own.
///
/// Nobody is told when it ends: prefer anything that somebody waits for. It cannot fail, since nobody would learn of
/// it: handle the error first, with [`upon_error`](Sender::upon_error), say. Whatever starting it resumed has run when
/// this returns.
///
/// ```
/// use bowline::prelude::*;
/// use std::sync::mpsc;
///
/// let (sent, received) = mpsc::channel();
/// start_detached(just(7).then(move |x| sent.send(x).unwrap()));
/// assert_eq!(received.recv().unwrap(), 7);
/// ```
///
/// # Completions
///
/// The value is dropped; a stop passes unseen.
///
/// # Panics
///
/// The sender's panic has been reported by the panic hook, and ends there.
///
/// # Cancellation
///
/// None, unless a stop token was written into its environment.
///
/// # Allocation
///
/// One, for the operation.
///
/// # Stack
///
/// Constant: this is a driver.
pub fn start_detached<S>(sender: S)
where
    S: Sender<Error: Handled> + 'static,
{
    submit(sender, Detached);
}

#[derive(Debug)]
struct Detached;

impl<T, E> Receiver<T, E> for Detached {
    type Env = EmptyEnv;

    fn env(&self) -> EmptyEnv {
        EmptyEnv
    }

    fn set_value(self, _: T) -> Transfer {
        Transfer::none()
    }

    fn set_error(self, _: E) -> Transfer {
        Transfer::none()
    }

    fn set_stopped(self) -> Transfer {
        Transfer::none()
    }

    fn set_panicked(self, _: Panic) -> Transfer {
        Transfer::none()
    }
}
