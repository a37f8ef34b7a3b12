use core::convert::Infallible;
use core::time::Duration;
use std::time::Instant;

use crate::scheduler::{Timer, TimerSchedule};
use crate::{Receiver, Sender};

/// Sleeps for so long, from the moment it is started or first awaited, by the [global timer](Timer::global).
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
/// Zero is over at once, though not before it was queued with the timer. A time that is longer than the clock can tell, such
/// as [`Duration::MAX`], does not end by itself: only a stop ends it.
///
/// See [`Sleep`] for the rest.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep(Timer::global().schedule_after(duration))
}

/// Sleeps until then, by the [global timer](Timer::global).
///
/// A moment that has passed is over at once, though not before it was queued with the timer. One that is further away than
/// the clock of the timer can tell, which is centuries, does not come: only a stop ends the wait.
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
    Sleep(Timer::global().schedule_at(deadline))
}

/// The sender that [`sleep`] and [`sleep_until`] make.
///
/// # Completions
///
/// The value, when the time is over and never before. It completes on the thread of the timer; a task that awaits it goes on
/// where it runs, as after every sender. Stopped, when the stop was requested first.
///
/// # Panics
///
/// None: it runs no user code. The first call in a program starts the thread of the timer, and panics where the system has
/// none left.
///
/// # Cancellation
///
/// A stop ends the sleep at once. It does not begin where the stop was requested before.
///
/// # Allocation
///
/// None. Where it is awaited outside of a task there is the one of [`SenderFuture`](crate::task::SenderFuture).
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct Sleep(TimerSchedule);

// SAFETY: the operation is that of the timer, which keeps the promises.
unsafe impl Sender for Sleep {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = <TimerSchedule as Sender>::Operation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> Self::Operation<R> {
        self.0.connect(receiver)
    }
}
