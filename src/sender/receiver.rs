use super::{Completion, Env, Panic, Transfer};

/// The destination of a sender's result: exactly one of four completions, each of which consumes the receiver.
///
/// `T` is the value and `E` the error that may arrive. Receivers are [`Send`], since the work between a start and its
/// completion may cross threads.
///
/// A receiver that is dropped uncompleted counts as **stopped**: the consumers of this crate then complete stopped.
/// Functions on the way that are called for a stop (`upon_stopped`, say) are dropped uncalled, while `let_stopped` and
/// `finally` run. Completions must not unwind.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot receive the value `{T}` and the error `{E}`",
    label = "this receiver takes another value or error",
    note = "a receiver implements `Receiver<T, E>` for exactly the `Value` and `Error` of its sender"
)]
pub trait Receiver<T, E>: Send + Sized {
    /// The environment of the work: see [`Env`].
    type Env: Env;

    /// Returns the environment, a cheap handle.
    fn env(&self) -> Self::Env;

    /// Completes with a value.
    fn set_value(self, value: T) -> Transfer;

    /// Completes with an error.
    fn set_error(self, error: E) -> Transfer;

    /// Completes without a result, because a stop was requested.
    fn set_stopped(self) -> Transfer;

    /// Completes with the panic of user code.
    fn set_panicked(self, payload: Panic) -> Transfer;

    /// Completes with a completion that was kept as a value. [`Completion::deliver`] calls it.
    ///
    /// The default calls one of the other four. A receiver that treats the four alike implements this one, so that its
    /// code is compiled once.
    #[inline]
    fn set_completion(self, completion: Completion<T, E>) -> Transfer {
        match completion {
            Completion::Value(value) => self.set_value(value),
            Completion::Error(error) => self.set_error(error),
            Completion::Stopped => self.set_stopped(),
            Completion::Panicked(payload) => self.set_panicked(payload),
        }
    }
}

/// Implements the completions of a [`Receiver`] by its method `complete`, which takes a [`Completion`](crate::Completion).
macro_rules! receive_as_completion {
    ($value:ty, $error:ty) => {
        #[inline]
        fn set_value(self, value: $value) -> $crate::Transfer {
            self.complete($crate::Completion::<$value, $error>::Value(value))
        }

        #[inline]
        fn set_error(self, error: $error) -> $crate::Transfer {
            self.complete($crate::Completion::<$value, $error>::Error(error))
        }

        #[inline]
        fn set_stopped(self) -> $crate::Transfer {
            self.complete($crate::Completion::<$value, $error>::Stopped)
        }

        #[inline]
        fn set_panicked(self, payload: $crate::Panic) -> $crate::Transfer {
            self.complete($crate::Completion::<$value, $error>::Panicked(payload))
        }

        #[inline]
        fn set_completion(self, completion: $crate::Completion<$value, $error>) -> $crate::Transfer {
            self.complete(completion)
        }
    };
}

pub(crate) use receive_as_completion;
