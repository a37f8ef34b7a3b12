use super::chain::{ChainOperation, Successor, make};
use super::conclude::{Conclude, OnStop};
use crate::sender::demand::demand;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Scheduler, Sender};

/// Sender created by [`Sender::continues_on`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct ContinuesOn<S, C> {
    sender: S,
    scheduler: C,
}

impl<S, C> ContinuesOn<S, C> {
    #[inline]
    pub(crate) fn new(sender: S, scheduler: C) -> Self {
        ContinuesOn { sender, scheduler }
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. A scheduler that completes inline changes nothing. Any
// other completes on its own threads.
unsafe impl<S, C> Sender for ContinuesOn<S, C>
where
    S: Sender,
    S::Value: Send,
    S::Error: Send,
    C: Scheduler,
{
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = match C::Schedule::COMPLETES {
        Completes::Inline => S::COMPLETES,
        _ => Completes::Anywhere,
    };
    type Operation<R: Receiver<S::Value, S::Error>> = ChainOperation<S, ScheduleNext<C>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                C::INFALLIBLE,
                "`continues_on` needs a scheduler that cannot fail: write `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        ChainOperation::new(self.sender, ScheduleNext(self.scheduler), receiver)
    }

    dismantle!(sender);
}

/// The hop to the scheduler.
#[derive(Debug)]
pub struct ScheduleNext<C>(C);

impl<T: Send, E: Send, C: Scheduler> Successor<T, E> for ScheduleNext<C> {
    type Value = T;
    type Error = E;
    type Sender = Conclude<C::Schedule, T, E>;

    #[inline]
    fn follow(self, completion: Completion<T, E>) -> Result<Self::Sender, Completion<T, E>> {
        match make(|| self.0.schedule()) {
            Ok(schedule) => Ok(Conclude::new(schedule, completion, OnStop::Stop)),
            Err(panic) => Err(completion.unless_panicked(panic)),
        }
    }
}
