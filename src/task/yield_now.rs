use core::convert::Infallible;

use crate::sender::demand::demand;
use crate::stop::StopToken;
use crate::{Completes, Env, Panic, Receiver, Scheduler, Sender, Transfer};

/// Makes way: goes to the end of the queue of the scheduler, and goes on there.
///
/// It is for work that takes long and awaits nothing that waits: `.await` lets others on the same scheduler run meanwhile.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let sum = Task::new(async {
///     let mut sum = 0u64;
///     for round in 0..10_000u64 {
///         sum += round;
///         if round % 1_000 == 0 {
///             let Ok(()) = task::yield_now().await;
///         }
///     }
///     sum
/// });
/// assert_eq!(sync_wait(sum).unwrap(), 49_995_000);
/// ```
///
/// # What runs first
///
/// | where | what |
/// |---|---|
/// | on a [`RunLoop`](crate::scheduler::RunLoop) | all that is queued there |
/// | on a [`ThreadPool`](crate::scheduler::ThreadPool) | all that is queued with this worker, and all at the same priority that came from elsewhere and no worker has taken |
/// | in an executor of another crate | what that polls next: it is woken, and what it polls is pending once |
/// | on the [`InlineScheduler`](crate::scheduler::InlineScheduler) | nothing: there is no queue |
/// | on a scheduler of your own | what its `schedule` lets run first |
///
/// A pool serves what is more urgent first, so what is less urgent need not have run. With several workers, one that has
/// nothing to do may take it up at once, since nobody needs the way that is made. A worker that waits for something, and
/// works meanwhile, takes what is newest first, and so perhaps this.
///
/// # Completions
///
/// The value, on the scheduler of the receiver's environment, which must be there and infallible: otherwise it does not
/// compile. Stopped, in its turn, when the stop was requested by then, also if that was before it began.
///
/// # Panics
///
/// None: it runs no user code. Those of a scheduler of your own pass.
///
/// # Cancellation
///
/// The stop token is asked when its turn has come; the wait for that is not cut short.
///
/// # Allocation
///
/// None: the operation is the queue's node. Where it is awaited outside of a task there is the one of
/// [`SenderFuture`](super::SenderFuture).
///
/// # Stack
///
/// Constant.
#[inline]
pub fn yield_now() -> YieldNow {
    YieldNow(())
}

/// The sender that [`yield_now`] makes.
#[derive(Clone, Copy, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct YieldNow(());

// SAFETY: the operation is that of the scheduler, which keeps the promises; it completes there.
unsafe impl Sender for YieldNow {
    type Value = ();
    type Error = Infallible;
    const COMPLETES: Completes = Completes::OnStartScheduler;
    type Operation<R: Receiver<(), Infallible>> =
        <<<R::Env as Env>::Scheduler as Scheduler>::Schedule as Sender>::Operation<YieldReceiver<R>>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        const {
            demand(
                <R::Env as Env>::Scheduler::PRESENT,
                "`yield_now` needs a scheduler in the receiver's environment: write `starts_on(scheduler, sender)`, or give it one with `.write_env(WithScheduler(scheduler))`",
            );
            demand(
                <R::Env as Env>::Scheduler::INFALLIBLE,
                "`yield_now` needs a scheduler that cannot fail: start it on `scheduler.or_inline()` or `scheduler.or_abort()`",
            );
        }
        let schedule = receiver.env().scheduler().patient().schedule();
        schedule.connect(YieldReceiver(receiver))
    }
}

/// The receiver of the scheduler's operation.
#[derive(Debug)]
pub struct YieldReceiver<R>(R);

impl<R: Receiver<(), Infallible>, E> Receiver<(), E> for YieldReceiver<R> {
    type Env = R::Env;

    #[inline]
    fn env(&self) -> R::Env {
        self.0.env()
    }

    /// A scheduler need not look at the token.
    #[inline]
    fn set_value(self, (): ()) -> Transfer {
        if self.0.env().stop_token().stop_requested() {
            self.0.set_stopped()
        } else {
            self.0.set_value(())
        }
    }

    /// The scheduler was asked not to fail, at compile time. Where it does all the same, the work goes on.
    fn set_error(self, error: E) -> Transfer {
        drop(error);
        Receiver::<(), E>::set_value(self, ())
    }

    #[inline]
    fn set_stopped(self) -> Transfer {
        self.0.set_stopped()
    }

    #[inline]
    fn set_panicked(self, payload: Panic) -> Transfer {
        self.0.set_panicked(payload)
    }
}
