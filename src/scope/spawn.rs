use super::kind::Kind;
use super::state::Association;
use crate::{EmptyEnv, Panic, Patched, Receiver, Transfer, WithStopToken};

/// The value type of a sender without a value.
///
/// [`Scope::spawn`](super::Scope::spawn) requires it.
#[diagnostic::on_unimplemented(
    message = "spawned work must have no value, but this sender completes with `{Self}`",
    label = "this value would be lost",
    note = "drop it with `.then(drop)`, or receive it from the sender that `spawn_future(..)` returns"
)]
pub trait NoValue {}

impl NoValue for () {}

/// The receiver of spawned work. Its operation is freed before it completes.
pub(super) struct SpawnedReceiver<K: Kind> {
    pub(super) association: Association<K>,
}

impl<T, E, K: Kind> Receiver<T, E> for SpawnedReceiver<K> {
    type Env = Patched<WithStopToken<K::Token>, EmptyEnv>;

    fn env(&self) -> Self::Env {
        // SAFETY: the environment is not used after the receiver is completed, and only the completion ends the
        // association.
        Patched::new(WithStopToken(unsafe { self.association.token() }), EmptyEnv)
    }

    fn set_value(self, _: T) -> Transfer {
        self.association.end()
    }

    fn set_error(self, _: E) -> Transfer {
        self.association.end()
    }

    fn set_stopped(self) -> Transfer {
        self.association.end()
    }

    fn set_panicked(self, payload: Panic) -> Transfer {
        self.association.panicked(payload);
        self.association.end()
    }
}
