//! The priority of the current task.

use super::frame::Polling;
use crate::Priority;

/// How urgent the current task is right now: as it was made, or as it was raised to since. [`Priority::Default`] where there
/// is no task, or nothing was said.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let task = Task::new(async { (task::priority(), task::base_priority()) });
/// let levels = sync_wait(task.write_env(With(Priority::Utility))).unwrap();
/// assert_eq!(levels, (Priority::Utility, Priority::Utility));
/// assert_eq!(task::priority(), Priority::Default);
/// ```
///
/// Children inherit it. A task that is awaited by a more urgent one is raised to the level of that, for good, with all that
/// it waits for itself: its children, and the tasks that it awaits, whether they are queued, suspended or running.
pub fn priority() -> Priority {
    Polling::with(|polling| polling.and_then(Polling::level).unwrap_or_default())
}

/// How urgent the current task was made, whatever it was raised to since: see [`priority`]. [`Priority::Default`] where there
/// is no task, or nothing was said.
pub fn base_priority() -> Priority {
    Polling::with(|polling| {
        polling
            .and_then(|polling| polling.context().priority())
            .unwrap_or_default()
    })
}
