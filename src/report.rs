//! Failures that no caller receives, and the one hook that reports all of them.

use core::fmt;
use core::panic::Location;

use crate::Panic;
use crate::sync::Setting;
use crate::task::SpawnErrorKind;

/// A failure that no caller received, passed to the hook of [`set_report_hook`].
///
/// Its `Display` is one line of text.
#[derive(Debug)]
#[non_exhaustive]
pub enum Report<'a> {
    /// A [`Continuation`](crate::task::Continuation) was dropped without being resumed. The waiting task is stopped.
    #[non_exhaustive]
    ContinuationDropped {
        /// The caller of [`continuation`](crate::task::continuation()).
        location: &'static Location<'static>,
    },
    /// A detached task panicked, and its result was never taken.
    #[non_exhaustive]
    DetachedPanic {
        /// The name of the task, if it has one.
        name: Option<&'a str>,
        /// The payload of the panic.
        panic: &'a Panic,
    },
    /// A child of a [`supervised_group`](crate::task::supervised_group) panicked, and its result was never taken.
    #[non_exhaustive]
    ChildPanic {
        /// The payload of the panic.
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
                    "the detached task {} panicked, and its result was never taken: {}",
                    name.unwrap_or("(no name)"),
                    panic.message().unwrap_or("(no message)"),
                )
            }
            Report::ChildPanic { panic } => {
                write!(
                    f,
                    "a child of a supervised group panicked, and its result was never taken: {}",
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

/// Sets the function that receives every [`Report`], instead of a line on the standard error output.
///
/// The hook runs on the thread where the failure happened, outside all locks of this crate, so it may call this
/// function. Several threads may call it at once. A panic of the hook is caught, after the panic hook has reported it.
/// The new hook replaces the previous one.
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
/// let unanswered = task::continuation(|continuation: Continuation<()>| drop(continuation));
/// assert!(sync_wait(unanswered).is_stopped());
/// assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
/// task::reset_report_hook();
/// ```
pub fn set_report_hook(hook: impl Fn(&Report<'_>) + Send + Sync + 'static) {
    // The previous hook is dropped after the lock is released.
    drop(HOOK.replace(Some(std::sync::Arc::new(hook))));
}

/// Restores the default: a line on the standard error output for each [`Report`].
pub fn reset_report_hook() {
    drop(HOOK.replace(None));
}

/// Calls the hook.
#[cold]
pub(crate) fn report(report: Report<'_>) {
    let hook = HOOK.get();
    // A panic of the hook has been reported by the panic hook.
    drop(Panic::catch(move || match hook {
        Some(hook) => hook(&report),
        None => std::eprintln!("bowline: {report}"),
    }));
}
