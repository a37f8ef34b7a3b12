use super::write_env::{WriteEnv, WriteEnvReceiver};
use crate::sender::dismantle::dismantle;
use crate::stop::NeverStop;
use crate::{Completes, Receiver, Sender, WithStopToken};

/// Sender created by [`Sender::unstoppable`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Unstoppable<S> {
    sender: WriteEnv<S, WithStopToken<NeverStop>>,
}

impl<S> Unstoppable<S> {
    #[inline]
    pub(crate) fn new(sender: S) -> Self {
        Unstoppable {
            sender: WriteEnv::new(sender, WithStopToken(NeverStop)),
        }
    }
}

// SAFETY: the operation is that of a `WriteEnv`, which keeps the promises.
unsafe impl<S: Sender> Sender for Unstoppable<S> {
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = S::COMPLETES;
    type Operation<R: Receiver<S::Value, S::Error>> = S::Operation<WriteEnvReceiver<WithStopToken<NeverStop>, R>>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        self.sender.connect(receiver)
    }

    dismantle!(sender);
}
