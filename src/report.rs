//! What went wrong where nobody was there to be told: one hook for all of it.

use core::fmt;
use core::panic::Location;

use crate::Panic;
use crate::sync::Setting;
use crate::task::SpawnErrorKind;

/// Something that nobody was there to see: what the hook of [`set_report_hook`] is told.
///
/// It is shown as one line of text.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report<'a> {
    /// A [`Continuation`](crate::task::Continuation) was dropped without being resumed. The task that waited is stopped.
    #[non_exhaustive]
    ContinuationDropped {
        /// Where [`continuation`](crate::task::continuation()) was called.
        location: &'static Location<'static>,
    },
    /// A detached task has panicked, and nobody has looked at its result.
    #[non_exhaustive]
    DetachedPanic {
        /// The name of the task, if it has one.
        name: Option<&'a str>,
        /// What it panicked with.
        panic: &'a Panic,
    },
    /// A child of a [`supervised_group`](crate::task::supervised_group) has panicked, and its result was not asked for.
    #[non_exhaustive]
    ChildPanic {
        /// What it panicked with.
        panic: &'a Panic,
    },
    /// A [`TaskGroup`](crate::task::TaskGroup) has refused a child that was spawned with a method that returns nothing, and dropped
    /// it. A child that is refused because the group is cancelled is not reported.
    #[non_exhaustive]
    ChildRefused {
        /// Why the child was refused.
        kind: SpawnErrorKind,
        /// Where the child was spawned.
        location: &'static Location<'static>,
    },
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::ContinuationDropped { location } => {
                write!(f, "a continuation made at {location} was dropped without being resumed")
            }
            Report::DetachedPanic { name, panic } => {
                write!(
                    f,
                    "the detached task {} panicked, and nobody awaited it: {}",
                    name.unwrap_or("(no name)"),
                    panic.message().unwrap_or("(no message)"),
                )
            }
            Report::ChildPanic { panic } => {
                write!(
                    f,
                    "a child of a supervised group panicked, and its result was not asked for: {}",
                    panic.message().unwrap_or("(no message)"),
                )
            }
            Report::ChildRefused { kind, location } => {
                write!(f, "a child spawned at {location} was refused and dropped: {kind}")
            }
        }
    }
}

type Hook = dyn Fn(&Report<'_>) + Send + Sync;

static HOOK: Setting<std::sync::Arc<Hook>> = Setting::new();

/// Has a function told of what nobody was there to see, in place of a line on the standard error output.
///
/// It is called on the thread where it happened, in the midst of whatever that does, but outside of all locks of this crate:
/// it may call this very function. Several threads may call it at once. A panic in it is caught, and goes no further than
/// the panic hook. It takes the place of the one that was set before.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Continuation, Report};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static DROPPED: AtomicUsize = AtomicUsize::new(0);
/// task::set_report_hook(|report| {
///     if let Report::ContinuationDropped { .. } = report {
///         DROPPED.fetch_add(1, Ordering::Relaxed);
///     }
/// });
/// let nobody_answers = task::continuation(|continuation: Continuation<()>| drop(continuation));
/// assert!(sync_wait(nobody_answers).is_stopped());
/// assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
/// task::reset_report_hook();
/// ```
pub fn set_report_hook(hook: impl Fn(&Report<'_>) + Send + Sync + 'static) {
    // What was there is dropped after the lock.
    drop(HOOK.replace(Some(std::sync::Arc::new(hook))));
}

/// Prints a line for each [`Report`] again, as before the first [`set_report_hook`].
pub fn reset_report_hook() {
    drop(HOOK.replace(None));
}

/// Tells the hook.
#[cold]
pub(crate) fn report(report: Report<'_>) {
    let hook = HOOK.get();
    // There is nobody to tell of a panic in there but the panic hook.
    drop(Panic::catch(move || match hook {
        Some(hook) => hook(&report),
        None => std::eprintln!("bowline: {report}"),
    }));
}
