//! Access to the current task.

use super::frame::Polling;
use super::strand::TaskRef;

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
