use super::submit;
use crate::adaptors::Handled;
use crate::{EmptyEnv, Panic, Receiver, Sender, Transfer};

/// Starts a sender on the heap and lets it run on its own.
///
/// Its end is not reported: prefer a consumer that waits. The sender cannot fail, since its error would be lost: handle
/// the error first, for instance with [`upon_error`](Sender::upon_error). All that the start resumed has run when this
/// returns.
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
/// The value is dropped, and a stop ignored.
///
/// # Panics
///
/// The sender's panic has been reported by the panic hook, and ends there.
///
/// # Cancellation
///
/// None, unless the sender has a token by [`with_stop_token`](Sender::with_stop_token).
///
/// # Allocation
///
/// One, for the operation.
///
/// # Stack
///
/// This call is a driver.
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
