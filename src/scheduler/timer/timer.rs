use core::fmt;
use core::time::Duration;
use std::borrow::ToOwned;
use std::io;
use std::time::Instant;

use super::pending::{PendingTimers, nanoseconds};
use super::schedule::{TimerSchedule, TimerScheduler, When};
use crate::scheduler::RunLoop;
use crate::sync::{Arc, OnceLock, thread};

/// A timer: a clock, and the context on which its senders complete.
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
/// - [`Timer::on`] is served by the driver of a [`RunLoop`].
///
/// Senders complete on that thread, in the order of their deadlines, and for equal deadlines in the order of their
/// starts. A deadline in the past counts as the time of the start.
///
/// Senders never complete early. They may be late by the time to wake a thread, and by the work that completes before
/// them. Dense timers share a wake-up, and may then be late by a quarter of a millisecond. Long work should move on
/// with [`continues_on`](crate::Sender::continues_on), and must not block there.
///
/// Starting and stopping takes constant time, however many timers are pending. It allocates nothing, and takes a lock
/// for a moment. It wakes the thread only if no other deadline is as early.
///
/// # Handles
///
/// A `Timer` is a handle, cheap to clone. Senders and operations own one too. The thread ends when the last handle is
/// dropped, and so no sender is pending. No caller waits for that, so the last handle may be dropped anywhere, even on
/// the thread itself.
///
/// On a run loop without a driver, timers wait like all other work. A handle may outlive the loop. Senders that are
/// pending then, or started later, complete only by a stop.
#[derive(Clone)]
pub struct Timer {
    home: Arc<TimerShared>,
}

/// The state that all handles share.
struct TimerShared {
    pending: Arc<PendingTimers>,
    /// The loop of the timer's own thread, which ends with the last handle.
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
    /// Creates a timer with a thread of its own.
    ///
    /// # Panics
    ///
    /// If the system refuses a thread, like [`std::thread::spawn`].
    pub fn new() -> Self {
        match Timer::try_new() {
            Ok(timer) => timer,
            Err(error) => panic!("failed to spawn the thread of a timer: {error}"),
        }
    }

    /// Creates a timer with a thread of its own, or returns the system's error.
    ///
    /// # Errors
    ///
    /// The error of [`std::thread::Builder::spawn`].
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

    /// Returns the timer of the process. Its thread starts with the first call and never ends.
    ///
    /// # Panics
    ///
    /// Like [`Timer::new`], in the first call.
    pub fn global() -> &'static Timer {
        static GLOBAL: OnceLock<Timer> = OnceLock::new();
        GLOBAL.get_or_init(Timer::new)
    }

    /// Returns the timer of a run loop. Its senders complete on the loop's driver, which sleeps no longer than until
    /// the next deadline. A loop has one timer, and every call returns a handle to it.
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

    /// Returns a sender that completes at `deadline`. See [`TimerSchedule`].
    pub fn schedule_at(&self, deadline: Instant) -> TimerSchedule {
        TimerSchedule::new(self.clone(), self.when_at(deadline))
    }

    /// Returns a sender that completes `delay` after its start. See [`TimerSchedule`].
    ///
    /// A delay beyond the range of the clock, such as [`Duration::MAX`], never ends.
    pub fn schedule_after(&self, delay: Duration) -> TimerSchedule {
        TimerSchedule::new(self.clone(), Timer::when_after(delay))
    }

    /// Converts a deadline to the clock of this timer.
    pub(crate) fn when_at(&self, deadline: Instant) -> When {
        When::at(self.pending().clock().at(deadline))
    }

    /// Converts a delay.
    pub(crate) fn when_after(delay: Duration) -> When {
        When::after(nanoseconds(delay))
    }

    /// Returns a scheduler for the context of this timer.
    pub fn scheduler(&self) -> TimerScheduler {
        TimerScheduler::new(self.clone())
    }

    #[inline]
    pub(crate) fn pending(&self) -> &PendingTimers {
        &self.home.pending
    }
}

impl Default for Timer {
    fn default() -> Self {
        Timer::new()
    }
}

/// Two timers are equal if they complete on one context.
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
    /// Advances the clock of a model to this time since its creation.
    #[doc(hidden)]
    pub fn advance_to(&self, since: Duration) {
        self.pending().advance_to(nanoseconds(since));
    }
}
