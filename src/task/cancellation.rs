//! Whether, and why, the current task is cancelled.

use core::error::Error;
use core::fmt;

use super::frame::Polling;
use super::strand::context::Context;
use super::strand::reason::Reason;
use crate::stop::StopToken;

/// Whether the current task has been asked to stop. `false` outside of a task.
///
/// Cancellation is cooperative. It sets this flag, which is never cleared, runs the
/// [handlers](super::with_cancellation_handler), and is seen by every sender that the task awaits, also by one that is begun
/// afterwards. Code that takes long between two awaits asks here.
///
/// What is asked is the innermost scope that the code is in: in a [`shield`](super::shield) it is `false`, and under
/// [`with_deadline`](super::with_deadline) also `true` when that has passed. Any function may ask, `async` or not.
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
/// // It is not prevented from giving what it has.
/// let outcome = sync_wait(search.write_env(WithStopToken(source.token())));
/// assert_eq!(outcome.unwrap(), 3);
/// assert!(!task::is_cancelled());
/// ```
#[inline]
pub fn is_cancelled() -> bool {
    in_context(|context| context.token.stop_requested()).unwrap_or(false)
}

/// Fails where the current task has been asked to stop: [`is_cancelled`], for `?`.
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

/// Why the current task has been asked to stop. None where it was not, and outside of a task.
///
/// Of several reasons it is the one that came first.
#[inline]
pub fn cancellation_reason() -> Option<Reason> {
    in_context(|context| context.token.why()).flatten().map(Reason::from)
}

/// Asks the context of the frame that this thread polls.
#[inline]
pub(super) fn in_context<T>(ask: impl FnOnce(&Context) -> T) -> Option<T> {
    Polling::with(|polling| polling.map(|polling| ask(polling.context())))
}

/// The task has been asked to stop: the error of [`check_cancellation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cancelled {
    reason: Reason,
}

impl Cancelled {
    /// Why.
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
