//! Queries: whether and why the current task is cancelled.

use core::error::Error;
use core::fmt;

use super::frame::Polling;
use super::strand::Context;
use crate::stop::{Reason, StopToken};

/// Returns whether the current task has been asked to stop. Returns `false` outside of tasks.
///
/// Cancellation is cooperative. It sets a flag that is never cleared, and runs the
/// [handlers](super::with_cancellation_handler). Every sender that the task awaits, now or later, sees it. A task that waits for
/// futures of other crates alone is stopped there. Code that computes for long between two awaits should poll this function.
///
/// The answer is that of the innermost scope: `false` in a [`shield`](super::shield), and `true` under a
/// [`with_deadline`](super::with_deadline) that has passed. Any function may ask, `async` or not.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::task::{self, Task};
///
/// let source = StopSource::new();
/// let inside = source.clone();
/// let search = Task::new(async move {
///     let mut found = 0;
///     while !task::is_cancelled() {
///         found += 1;
///         if found == 3 {
///             inside.request_stop();
///         }
///     }
///     found
/// });
/// // A cancelled task may still return a value.
/// let outcome = sync_wait(search.write_env(WithStopToken(source.token())));
/// assert_eq!(outcome.unwrap(), 3);
/// assert!(!task::is_cancelled());
/// ```
#[inline]
pub fn is_cancelled() -> bool {
    in_context(|context| context.token.stop_requested()).unwrap_or(false)
}

/// Returns an error if the current task has been asked to stop: [`is_cancelled`] for use with `?`.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::stop::StopSource;
/// use bowline::task::{self, Cancelled, Reason, Task};
///
/// fn chop(vegetables: usize) -> Result<usize, Cancelled> {
///     for _ in 0..vegetables {
///         task::check_cancellation()?;
///     }
///     Ok(vegetables)
/// }
///
/// assert_eq!(sync_wait(Task::try_new(async { chop(3) })).unwrap(), 3);
///
/// let source = StopSource::new();
/// source.request_stop();
/// let cancelled = Task::try_new(async { chop(3) }).write_env(WithStopToken(source.token()));
/// assert_eq!(sync_wait(cancelled).unwrap_err().reason(), Reason::Requested);
/// ```
///
/// # Errors
///
/// [`Cancelled`], with the reason.
#[inline]
pub fn check_cancellation() -> Result<(), Cancelled> {
    match cancellation_reason() {
        None => Ok(()),
        Some(reason) => Err(Cancelled { reason }),
    }
}

/// Returns why the current task has been asked to stop: the first of several reasons. Returns `None` if it was not, and outside
/// of tasks.
#[inline]
pub fn cancellation_reason() -> Option<Reason> {
    in_context(|context| context.token.why()).flatten().map(Reason::from)
}

/// Applies `ask` to the context of the frame that this thread polls.
#[inline]
pub(super) fn in_context<T>(ask: impl FnOnce(&Context) -> T) -> Option<T> {
    Polling::with(|polling| polling.map(|polling| ask(polling.context())))
}

/// The error of [`check_cancellation`]: the task has been asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cancelled {
    reason: Reason,
}

impl Cancelled {
    /// Returns why the task has been asked to stop.
    pub const fn reason(&self) -> Reason {
        self.reason
    }
}

impl From<Reason> for Cancelled {
    fn from(reason: Reason) -> Self {
        Cancelled { reason }
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cancelled: {}", self.reason)
    }
}

impl Error for Cancelled {}
