use super::chain::{ChainOperation, Successor, make};
use super::conclude::{Conclude, OnStop};
use super::starts_on::StartsOn;
use super::unstoppable::Unstoppable;
use crate::sender::demand::demand;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Env, Panic, Receiver, Scheduler, Sender};

/// Sender created by [`Sender::on`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct On<S, C> {
    sender: S,
    scheduler: C,
}

impl<S, C> On<S, C> {
    #[inline]
    pub(crate) fn new(sender: S, scheduler: C) -> Self {
        On { sender, scheduler }
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. Its last step completes on the scheduler of the receiver's
// environment. It is not inline even where the sender is.
unsafe impl<S, C> Sender for On<S, C>
where
    S: Sender + Send,
    S::Value: Send,
    S::Error: Send,
    C: Scheduler,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<S::Value, S::Error>> =
        ChainOperation<StartsOn<S, C>, S::Value, S::Error, Back<<R::Env as Env>::Scheduler>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`on` comes back to the scheduler it was started on, and the receiver's environment has none: write `starts_on(scheduler, sender)` to stay there, or give it one with `.with_scheduler(scheduler)`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`on` comes back to the scheduler it was started on, which must not fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        let back = Back(Panic::catch(|| receiver.env().scheduler()));
        ChainOperation::Ready {
            first: StartsOn::new(self.sender, self.scheduler),
            successor: back,
            receiver,
        }
    }

    dismantle!(sender);
}

/// The way back, which cannot be stopped; or the panic of the environment's scheduler.
#[derive(Debug)]
pub struct Back<C>(Result<C, Panic>);

impl<T: Send, E: Send, C: Scheduler> Successor<T, E> for Back<C> {
    type Value = T;
    type Error = E;
    type Sender = Conclude<Unstoppable<C::Schedule>, T, E>;

    #[inline]
    fn follow(self, completion: Completion<T, E>) -> Result<Self::Sender, Completion<T, E>> {
        let schedule = match self.0 {
            Ok(scheduler) => make(|| scheduler.schedule()),
            Err(payload) => Err(Completion::Panicked(payload)),
        };
        match schedule {
            Ok(schedule) => Ok(Conclude::new(schedule.unstoppable(), completion, OnStop::Deliver)),
            Err(panic) => Err(completion.unless_panicked(panic)),
        }
    }
}
