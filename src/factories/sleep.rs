use core::convert::Infallible;
use core::time::Duration;
use std::time::Instant;

use crate::scheduler::{GlobalTimer, Timer, TimerOperation, When};
use crate::{Receiver, Sender};

/// Sleeps for a duration, from its start or first poll, by the [global timer](Timer::global).
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
/// use std::time::{Duration, Instant};
///
/// let nap = Duration::from_millis(2);
/// let begin = Instant::now();
/// let slept = Task::new(async move {
///     task::sleep(nap).await;
///     begin.elapsed()
/// });
/// assert!(sync_wait(slept).unwrap() >= nap);
/// ```
///
/// A duration of zero ends at once, after it was queued with the timer. A duration beyond what the clock can represent,
/// such as [`Duration::MAX`], never ends: only a stop ends the sleep.
///
/// See [`Sleep`] for the rest.
pub fn sleep(duration: Duration) -> Sleep {
    // The thread of the timer starts here.
    Timer::global();
    Sleep(Timer::when_after(duration))
}

/// Sleeps until a moment, by the [global timer](Timer::global).
///
/// A moment that has passed ends the sleep at once, after it was queued with the timer. A moment beyond what the
/// timer's clock can represent, which is centuries, never comes: only a stop ends the sleep.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
/// use std::time::{Duration, Instant};
///
/// let until = Instant::now() + Duration::from_millis(2);
/// sync_wait(task::sleep_until(until)).unwrap();
/// assert!(Instant::now() >= until);
/// ```
///
/// See [`Sleep`] for the rest.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep(Timer::global().when_at(deadline))
}

/// Sender created by [`sleep`] and [`sleep_until`].
///
/// # Completions
///
/// The value, when the time is over and never before, on the thread of the timer. A task that awaits it continues on
/// its own scheduler. Stopped, when the stop was requested first.
///
/// # Panics
///
/// The first call in a program starts the thread of the timer, and panics where the system refuses a thread.
///
/// # Cancellation
///
/// A stop ends the sleep at once. A stop that was requested before prevents its begin.
///
/// # Allocation
///
/// None. An await outside of a task makes the one of [`SenderFuture`](crate::task::SenderFuture): see
/// [`SleepFuture`](crate::task::SleepFuture).
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Sleep(When);

impl Sleep {
    pub(crate) fn when(&self) -> When {
        self.0
    }
}

// SAFETY: the operation is that of `TimerSchedule`, which keeps the promises of `Sender`.
unsafe impl Sender for Sleep {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = TimerOperation<R, GlobalTimer>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        TimerOperation::new(GlobalTimer, self.0, receiver)
    }
}
