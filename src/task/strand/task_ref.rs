//! References to tasks that outlive them.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::time::Instant;

use super::{Reason, Record};
use crate::Priority;
use crate::sync::{Arc, unique};

/// A reference to a task, for queries from any thread, even after the task has ended.
///
/// [`current`](crate::task::current) returns that of the running task. It gives no access to results, and keeps only the task's
/// record alive. References to the same task are equal and hash alike.
///
/// Queries return the current state while the task runs, and the final state afterwards.
///
/// ```
/// use std::collections::HashMap;
///
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let (first, second) = (Task::new(async { task::current() }), Task::new(async { task::current() }));
/// let (first, second) = (sync_wait(first).unwrap().unwrap(), sync_wait(second).unwrap().unwrap());
/// let names = HashMap::from([(first.clone(), "first"), (second, "second")]);
/// assert_eq!(names[&first], "first");
/// ```
#[derive(Clone)]
pub struct TaskRef(Arc<Record>);

impl TaskRef {
    /// Creates the first reference to a record.
    pub(super) fn new(record: Record) -> Self {
        TaskRef(Arc::new(record))
    }

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// The pointer is from [`as_ptr`](TaskRef::as_ptr), and another owner has a reference.
    pub(super) unsafe fn of(record: *const Record) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Arc::increment_strong_count(record);
            TaskRef(Arc::from_raw(record))
        }
    }

    /// Releases a reference that was forgotten.
    ///
    /// # Safety
    ///
    /// The pointer is that of the forgotten one, which this stands for.
    pub(super) unsafe fn release(record: *const Record) {
        // SAFETY: the caller's promise.
        drop(TaskRef(unsafe { Arc::from_raw(record) }));
    }

    pub(super) fn as_ptr(&self) -> *mut Record {
        Arc::as_ptr(&self.0).cast_mut()
    }

    pub(super) fn into_record(self) -> Option<Record> {
        Arc::try_unwrap(self.0).ok()
    }

    pub(in crate::task) fn record(&self) -> &Record {
        &self.0
    }

    /// Returns a number that is unique in the process.
    pub fn id(&self) -> TaskId {
        self.record().id
    }

    /// Returns the name that the task was spawned with.
    pub fn name(&self) -> Option<&str> {
        self.record().name.as_deref()
    }

    /// Returns the task's priority.
    pub fn priority(&self) -> Priority {
        self.record().facts().0.priority
    }

    /// Returns whether the task was asked to stop. Once `true`, it stays so.
    ///
    /// This is about the task as a whole: a shield or a deadline inside it is visible only to the code inside.
    pub fn is_cancelled(&self) -> bool {
        self.record().facts().0.why.is_some()
    }

    /// Returns why the task was asked to stop, or `None` if it was not.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.record().facts().0.why.map(Reason::from)
    }

    /// Returns the deadline of the task as a whole, if it has one.
    pub fn deadline(&self) -> Option<Instant> {
        self.record().facts().0.deadline
    }

    /// Returns whether the task has ended, with everything below it.
    pub fn is_finished(&self) -> bool {
        !self.record().facts().1
    }

    /// Returns the task that waits or waited for this one. Returns `None` for a detached task, and one begun outside of tasks.
    pub fn parent(&self) -> Option<TaskRef> {
        self.record().parent.clone()
    }
}

impl PartialEq for TaskRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TaskRef {}

impl Hash for TaskRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for TaskRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRef")
            .field("id", &self.id().0)
            .field("name", &self.name())
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

/// A number that identifies a task, unique in the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

impl TaskId {
    /// Returns a number that no other task has.
    pub(super) fn unique() -> Self {
        TaskId(unique())
    }

    /// Returns the number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskId").field(&self.0).finish()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
