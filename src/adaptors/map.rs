//! The shape of every adaptor that only turns one completion into another: `then`, `upon_error`, `map_err`, …

use crate::{Completion, Panic, Receiver, Transfer};

/// The function of an adaptor from one completion to another.
pub trait Map<T, E>: Send {
    /// The value type of the result.
    type Value;
    /// The error type of the result.
    type Error;

    /// Maps a completion. It runs user code through [`Panic::catch`].
    fn map(self, completion: Completion<T, E>) -> Completion<Self::Value, Self::Error>;
}

/// Calls user code, and makes its panic the completion.
#[inline]
pub(crate) fn call<T, U, E>(
    function: impl FnOnce() -> T,
    then: impl FnOnce(T) -> Completion<U, E>,
) -> Completion<U, E> {
    match Panic::catch(function) {
        Ok(result) => then(result),
        Err(payload) => Completion::Panicked(payload),
    }
}

/// A receiver that maps the completion and passes it on.
#[derive(Debug)]
pub struct MapReceiver<M, R> {
    map: M,
    receiver: R,
}

impl<M, R> MapReceiver<M, R> {
    #[inline]
    pub(crate) fn new(map: M, receiver: R) -> Self {
        MapReceiver { map, receiver }
    }
}

impl<T, E, M, R> Receiver<T, E> for MapReceiver<M, R>
where
    M: Map<T, E>,
    R: Receiver<M::Value, M::Error>,
{
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        self.receiver.env()
    }

    #[inline]
    fn set_value(self, value: T) -> Transfer {
        self.set_completion(Completion::Value(value))
    }

    #[inline]
    fn set_error(self, error: E) -> Transfer {
        self.set_completion(Completion::Error(error))
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.set_completion(Completion::Stopped)
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.set_completion(Completion::Panicked(payload))
    }

    // Always: where the variant is known, a call would hide it from the optimiser.
    #[inline(always)]
    fn set_completion(self, completion: Completion<T, E>) -> Transfer {
        self.receiver.set_completion(self.map.map(completion))
    }
}
