use super::chain::{ChainOperation, Successor, make};
use super::conclude::{Conclude, OnStop};
use crate::sender::demand::demand;
use crate::sender::dismantle::dismantle;
use crate::{Completes, Completion, Receiver, Scheduler, Sender};

/// Carries the completion of a sender over to a scheduler: what comes after runs there. Made by
/// [`Sender::continues_on`].
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::RunLoop;
/// use std::thread;
///
/// let run_loop = RunLoop::new();
/// thread::scope(|scope| {
///     scope.spawn(|| run_loop.run());
///     let data = [1, 2, 3];
///     let sum = just(&data[..]).continues_on(run_loop.scheduler()).then(|data| data.iter().sum::<i32>());
///     assert_eq!(sync_wait(sum).unwrap(), 6);
///     run_loop.finish();
/// });
/// ```
///
/// # Completions
///
/// That of the sender, on the scheduler. Stopped, in place of a value, when the stop was requested while the value was
/// waiting for its turn; an error or a panic is never lost that way.
///
/// # Panics
///
/// None of its own. Where the scheduler's `schedule` panics, that is the completion, unless the sender panicked before.
///
/// # Cancellation
///
/// That of the sender, then that of the scheduler.
///
/// # Allocation
///
/// None: the operation is the scheduler's queue node.
///
/// # Stack
///
/// Constant.
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

// SAFETY: a `ChainOperation` keeps the promises. A scheduler that completes inline changes nothing; any other completes
// where it likes.
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
    type Operation<R: Receiver<S::Value, S::Error>> = ChainOperation<S, Hop<C>, R>;

    #[inline]
    fn connect<R: Receiver<S::Value, S::Error>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                C::INFALLIBLE,
                "`continues_on` needs a scheduler that cannot fail: write `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        ChainOperation::new(self.sender, Hop(self.scheduler), receiver)
    }

    dismantle!(sender);
}

/// The way to the scheduler.
#[derive(Debug)]
pub struct Hop<C>(C);

impl<T: Send, E: Send, C: Scheduler> Successor<T, E> for Hop<C> {
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
