use super::start_detached;
use crate::{Scheduler, just_from, starts_on};

/// Runs a function on a scheduler, and lets it run on its own.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::InlineScheduler;
/// use std::sync::mpsc;
///
/// let (sent, received) = mpsc::channel();
/// execute(InlineScheduler, move || sent.send(7).unwrap());
/// assert_eq!(received.recv().unwrap(), 7);
/// ```
///
/// # Completions
///
/// Not reported: see [`start_detached`].
///
/// # Panics
///
/// The function's panic has been reported by the panic hook, and ends there.
///
/// # Allocation
///
/// One, for the operation.
///
/// # Stack
///
/// This call is a driver.
pub fn execute<C, F>(scheduler: C, function: F)
where
    C: Scheduler + 'static,
    F: FnOnce() + Send + 'static,
{
    start_detached(starts_on(scheduler, just_from(function)));
}
