//! The priority of the current task.

use super::frame::Polling;
use crate::Priority;

/// Returns the priority of the current task, including raises. Returns [`Priority::Default`] outside of tasks, and in a task
/// that was given none.
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
/// Children inherit the priority. Awaiting a task from a more urgent one raises it permanently to the awaiting task's level.
/// The raise reaches its children and the tasks that it awaits, whether queued, suspended or running.
pub fn priority() -> Priority {
    Polling::with(|polling| polling.and_then(Polling::level).unwrap_or_default())
}

/// Returns the priority that the current task was given, without later raises: see [`priority`].
pub fn base_priority() -> Priority {
    Polling::with(|polling| {
        polling
            .and_then(|polling| polling.context().priority())
            .unwrap_or_default()
    })
}
