use super::adapted::{SenderOf, adapted};
use super::chain::{ChainOperation, Successor, make};
use super::conclude::{Conclude, OnStop};
use crate::sender::demand::demand;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Scheduler, Sender};

adapted! {
    /// Sender created by [`Sender::continues_on`].
    pub struct ContinuesOn<S, C> {
        sender: S,
        scheduler: C,
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. A scheduler that completes inline changes nothing. Any
// other completes on its own threads.
unsafe impl<S, C, T, E> Sender for ContinuesOn<S, C, T, E>
where
    S: SenderOf<T, E>,
    T: Send,
    E: Send,
    C: Scheduler,
{
    type Value = T;
    type Error = E;
    const COMPLETES: Completes = match C::Schedule::COMPLETES {
        Completes::Inline => S::COMPLETES,
        _ => Completes::Anywhere,
    };
    type Operation<R: Receiver<T, E>> = ChainOperation<S, T, E, ScheduleNext<C>, R>;

    #[inline]
    fn connect<R: Receiver<T, E>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                C::INFALLIBLE,
                "`continues_on` needs a scheduler that cannot fail: write `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        ChainOperation::Ready {
            first: self.sender,
            successor: ScheduleNext(self.scheduler),
            receiver,
        }
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
