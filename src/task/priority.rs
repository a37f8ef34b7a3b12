//! The priority of the current task.

use super::cancellation::in_context;
use super::strand::current_level;
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
    current_level()
}

/// Returns the priority that the current task was given, without later raises: see [`priority`].
pub fn base_priority() -> Priority {
    in_context(|context| context.priority).flatten().unwrap_or_default()
}
