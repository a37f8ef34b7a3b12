//! The task that runs here, and what is known of it.

use super::frame::Polling;
use super::strand::task_ref::TaskRef;

/// The task that the calling code is part of, `async` or not. None outside of tasks.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// /// Plain code, which does not know who calls it.
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
/// A task that is awaited in another runs as part of that, and is the same one. What is spawned, detached, or connected to a
/// receiver of its own, as in `when_all((task, other)).await`, is another, whose [parent](TaskRef::parent) waits for
/// it.
///
/// The first call in a task allocates what is kept for its [`TaskRef`]s, and for those of its parents; further ones count. A
/// task that nobody asks about pays nothing.
pub fn current() -> Option<TaskRef> {
    // SAFETY: this thread polls a frame of the strand, so it has not ended.
    Polling::with(|polling| polling.map(|polling| unsafe { polling.unit().task() }))
}
