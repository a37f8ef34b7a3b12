use core::fmt;
use core::time::Duration;
use std::borrow::ToOwned;
use std::io;
use std::time::Instant;

use super::pending::{PendingTimers, nanoseconds};
use super::schedule::{TimerSchedule, TimerScheduler};
use crate::scheduler::RunLoop;
use crate::sync::{Arc, OnceLock, thread};

/// Completes at a time: a clock, and the context where what waits for it goes on.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::Timer;
/// use std::time::{Duration, Instant};
///
/// let timer = Timer::new();
/// let begin = Instant::now();
/// sync_wait(timer.schedule_after(Duration::from_millis(10))).unwrap();
/// assert!(begin.elapsed() >= Duration::from_millis(10));
/// ```
///
/// [`timeout`](crate::Sender::timeout) limits the time of any sender.
///
/// - [`Timer::new`] has a thread of its own.
/// - [`Timer::global`] has one too, which the whole program shares.
/// - [`Timer::on`] is served by whoever drives a [`RunLoop`].
///
/// Timers complete on that thread, one after the other: in the order of their deadlines, those of one deadline in the
/// order in which they were started. A deadline that has passed when the timer is started counts as the moment of the
/// start.
///
/// They are never early. They are late by what the system takes to wake a thread, by a quarter of a millisecond at most
/// where timers are so dense that they share a wake-up, and by what completes before them: work that takes long is sent
/// on, with [`continues_on`](crate::Sender::continues_on), and does not block there.
///
/// Starting and stopping a timer takes constant time and allocates nothing, however many are pending. It takes a lock,
/// for a moment, and wakes the thread only if no other deadline is as early.
///
/// # Handles
///
/// A `Timer` is a handle, cheap to clone. Senders and operations hold one too. When the last is gone, and so no timer is
/// pending any more, the thread ends. Nobody waits for that, so the last handle may go anywhere, also on the thread
/// itself.
///
/// Timers on a run loop that nobody drives wait, as everything on it does. A handle may outlive the loop; what is pending
/// then, or started afterwards, completes only when it is stopped.
#[derive(Clone)]
pub struct Timer {
    home: Arc<TimerShared>,
}

/// What every handle shares.
struct TimerShared {
    pending: Arc<PendingTimers>,
    /// The loop of the timer's own thread, which goes with the last handle.
    own: Option<Arc<RunLoop>>,
}

impl Drop for TimerShared {
    fn drop(&mut self) {
        if let Some(run_loop) = &self.own {
            run_loop.finish();
        }
    }
}

impl Timer {
    /// A timer on a thread of its own.
    ///
    /// # Panics
    ///
    /// When the system has no thread left, as [`std::thread::spawn`] does.
    pub fn new() -> Self {
        match Timer::try_new() {
            Ok(timer) => timer,
            Err(error) => panic!("failed to spawn the thread of a timer: {error}"),
        }
    }

    /// A timer on a thread of its own, where the system has one.
    ///
    /// # Errors
    ///
    /// That of [`std::thread::Builder::spawn`].
    pub fn try_new() -> io::Result<Self> {
        let own = Arc::new(RunLoop::new());
        let pending = own.timers();
        thread::Builder::new().name("bowline-timer".to_owned()).spawn({
            let own = own.clone();
            move || own.run()
        })?;
        Ok(Timer {
            home: Arc::new(TimerShared {
                pending,
                own: Some(own),
            }),
        })
    }

    /// The timer that the whole program shares. Its thread starts with the first call and does not end.
    ///
    /// # Panics
    ///
    /// As [`Timer::new`] does, in the first call.
    pub fn global() -> &'static Timer {
        static GLOBAL: OnceLock<Timer> = OnceLock::new();
        GLOBAL.get_or_init(Timer::new)
    }

    /// A timer that whoever drives `run_loop` serves: it completes there, and the driver sleeps no longer than until the
    /// next deadline. A loop has one timer; every call gives a handle to it.
    ///
    /// ```
    /// use bowline::prelude::*;
    /// use bowline::scheduler::{RunLoop, Timer};
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// let run_loop = RunLoop::new();
    /// let timer = Timer::on(&run_loop);
    /// let here = thread::current().id();
    /// let there = timer.schedule_after(Duration::from_millis(1)).then(|()| thread::current().id());
    /// assert_eq!(run_loop.run_until(there).unwrap(), here);
    /// ```
    pub fn on(run_loop: &RunLoop) -> Self {
        Timer {
            home: Arc::new(TimerShared {
                pending: run_loop.timers(),
                own: None,
            }),
        }
    }

    /// A sender that completes when the time has come. See [`TimerSchedule`].
    pub fn schedule_at(&self, deadline: Instant) -> TimerSchedule {
        TimerSchedule::at(self.clone(), self.pending().clock().at(deadline))
    }

    /// A sender that completes this long after it was started. See [`TimerSchedule`].
    ///
    /// A time too long for the clock, such as [`Duration::MAX`], never comes.
    pub fn schedule_after(&self, delay: Duration) -> TimerSchedule {
        TimerSchedule::after(self.clone(), nanoseconds(delay))
    }

    /// A scheduler for the context of this timer.
    pub fn scheduler(&self) -> TimerScheduler {
        TimerScheduler::new(self.clone())
    }

    #[inline]
    pub(super) fn pending(&self) -> &PendingTimers {
        &self.home.pending
    }
}

impl Default for Timer {
    fn default() -> Self {
        Timer::new()
    }
}

/// Equal when both are of one context.
impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.home.pending, &other.home.pending)
    }
}

impl Eq for Timer {}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer")
            .field(&core::ptr::from_ref(self.pending()))
            .finish()
    }
}

#[cfg(loom)]
impl Timer {
    /// Moves the clock of a model to this long after its beginning.
    #[doc(hidden)]
    pub fn advance_to(&self, since: Duration) {
        self.pending().advance_to(nanoseconds(since));
    }
}
