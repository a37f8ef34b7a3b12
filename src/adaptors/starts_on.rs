use super::chain::{ChainOperation, Successor};
use super::write_env::WriteEnv;
use crate::sender::demand::demand;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Panic, Receiver, Scheduler, Sender, WithScheduler};

/// Sender created by [`Sender::starts_on`] and [`starts_on`].
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct StartsOn<S, C> {
    sender: S,
    scheduler: C,
}

impl<S, C> StartsOn<S, C> {
    #[inline]
    pub(crate) fn new(sender: S, scheduler: C) -> Self {
        StartsOn { sender, scheduler }
    }
}

// SAFETY: a `ChainOperation` keeps the promises of `Sender`. The sender's own promise is relative to the given
// scheduler, so outside only `Inline` of both holds.
unsafe impl<S: Sender + Send, C: Scheduler> Sender for StartsOn<S, C> {
    type Value = S::Value;
    type Error = S::Error;
    const COMPLETES: Completes = match C::Schedule::COMPLETES.and(S::COMPLETES) {
        Completes::Inline => Completes::Inline,
        _ => Completes::Anywhere,
    };
    type Operation<R: Receiver<S::Value, S::Error>> =
        ChainOperation<C::Schedule, (), <C::Schedule as Sender>::Error, Started<S, C>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                C::INFALLIBLE,
                "`starts_on` needs a scheduler that cannot fail: write `scheduler.or_inline()` or `scheduler.or_abort()`, or handle its error with `scheduler.schedule().map_err(..).sequence(sender)`",
            );
        }
        let Self { sender, scheduler } = self;
        let schedule = Panic::catch(|| scheduler.schedule());
        ChainOperation::made(schedule, Started { sender, scheduler }, receiver)
    }

    dismantle!(sender);
}

/// The sender that starts once the scheduler is reached.
#[derive(Debug)]
pub struct Started<S, C> {
    sender: S,
    scheduler: C,
}

impl<E, S: Sender + Send, C: Scheduler> Successor<(), E> for Started<S, C> {
    type Value = S::Value;
    type Error = S::Error;
    type Sender = WriteEnv<S, WithScheduler<C>>;

    #[inline]
    fn follow(self, completion: Completion<(), E>) -> Result<Self::Sender, Completion<S::Value, S::Error>> {
        match completion {
            Completion::Value(()) => Ok(WriteEnv::new(self.sender, WithScheduler(self.scheduler))),
            // An infallible scheduler has no error to report.
            Completion::Error(_) | Completion::Stopped => Err(Completion::Stopped),
            Completion::Panicked(payload) => Err(Completion::Panicked(payload)),
        }
    }
}

/// Starts a sender on a scheduler: [`Sender::starts_on`] with the scheduler first.
///
/// ```
/// use bowline::prelude::*;
///
/// let sum = starts_on(ThreadPool::global().scheduler(), just_from(|| (1..=100).sum::<i32>()));
/// assert_eq!(sync_wait(sum).unwrap(), 5050);
/// ```
#[inline]
pub fn starts_on<C: Scheduler, S: Sender + Send>(scheduler: C, sender: S) -> StartsOn<S, C> {
    StartsOn::new(sender, scheduler)
}
