//! A thread that looks for tasks which wait for too long.

use core::fmt;
use core::time::Duration;
use std::boxed::Box;
use std::collections::HashSet;
use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::{TaskId, TaskTree, dump_all};
use crate::Panic;

/// The shortest and the longest time between two looks.
const PERIODS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Calls `report` with all tasks whenever one of them has waited for longer than `limit` at one await.
///
/// A thread looks at the tasks about four times in each `limit`, and at least once a second. Each wait is reported once, along
/// with others that have become too long since the last look. A panic of `report` is caught, and the watch goes on.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
///
/// use bowline::task;
///
/// let (send, reports) = channel();
/// let watchdog = task::watch(Duration::from_millis(100), move |tasks| _ = send.send(tasks.to_string())).unwrap();
///
/// let stuck = task::detach(std::future::pending::<()>());
/// let report = reports.recv().unwrap();
/// assert!(report.contains("waiting for"), "{report}");
/// # stuck.cancel();
/// ```
///
/// # Errors
///
/// The thread cannot be started.
pub fn watch(limit: Duration, report: impl FnMut(&TaskTree) + Send + 'static) -> io::Result<Watchdog> {
    crate::coarse_clock::start();
    let (ends, ended) = mpsc::channel::<()>();
    let mut watch = Watch {
        limit,
        report: Box::new(report),
        reported: HashSet::new(),
    };
    let period = (limit / 4).clamp(PERIODS.0, PERIODS.1);
    let thread = thread::Builder::new().name("bowline-watchdog".into()).spawn(move || {
        // Ended by the drop of the other half.
        while ended.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
            watch.look();
        }
    })?;
    Ok(Watchdog {
        ends: Some(ends),
        thread: Some(thread),
    })
}

/// The thread of [`watch`], which ends when this is dropped.
///
/// The drop waits for a report that is being made, unless it is called by that.
#[must_use = "the watch ends when this is dropped"]
pub struct Watchdog {
    ends: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.ends.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // Its panics are caught.
            _ = thread.join();
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

/// The state of the thread.
struct Watch {
    limit: Duration,
    report: Box<dyn FnMut(&TaskTree) + Send>,
    /// The waits that were reported, and go on.
    reported: HashSet<(TaskId, Instant)>,
}

impl Watch {
    fn look(&mut self) {
        let tasks = dump_all();
        let long: HashSet<_> = tasks
            .iter()
            .filter(|node| tasks.waiting(node).is_some_and(|time| time > self.limit))
            .filter_map(|node| Some((node.id(), node.waits()?.since()?)))
            .collect();
        let is_new = !long.is_subset(&self.reported);
        self.reported = long;
        if is_new {
            // The panic hook has reported it.
            _ = Panic::catch(|| (self.report)(&tasks)).map_err(Panic::discard);
        }
    }
}
