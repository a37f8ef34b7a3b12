//! The current task, and its priority.

use super::cancellation::in_context;
use super::frame::Polling;
use super::strand::{TaskRef, current_level};
use crate::Priority;

/// Returns the current task: the one whose code, `async` or not, is running. Returns `None` outside of tasks.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// /// A plain function, which is passed no task.
/// fn log(text: &str) -> String {
///     match task::current() {
///         Some(task) => format!("[task {}] {text}", task.id()),
///         None => text.to_owned(),
///     }
/// }
///
/// assert_eq!(log("outside"), "outside");
/// let task = Task::new(async {
///     let me = task::current().unwrap();
///     assert_eq!(log("inside"), format!("[task {}] inside", me.id()));
///     me
/// });
/// let me = sync_wait(task).unwrap();
/// assert!(me.is_finished());
/// ```
///
/// A task that is awaited in another runs as part of it and returns the same [`TaskRef`]. A spawned or detached task is a task
/// of its own. So is one connected to another receiver, as in `when_all((task, other)).await`; its [parent](TaskRef::parent)
/// waits for it.
///
/// The first call in a task allocates its record and those of its parents. Later calls only increment a reference count. A task
/// that is never asked for pays nothing.
pub fn current() -> Option<TaskRef> {
    // SAFETY: this thread polls a frame of the strand, so the strand has not ended.
    Polling::with(|polling| polling.map(|polling| unsafe { polling.unit().task() }))
}

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
