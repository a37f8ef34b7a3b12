//! References to tasks, which outlive them.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem;
use core::ptr::NonNull;
use std::boxed::Box;
use std::time::Instant;

use super::{Reason, Record};
use crate::Priority;
use crate::sync::unique;

/// A task, to ask about: on any thread, at any time, also when it is over.
///
/// [`current`](crate::task::current) gives the one that runs here. It says nothing about results, keeps nothing alive but what it tells, and is
/// equal to all that are of the same task, and so good as the key of a map.
///
/// What can change is that of the moment while the task runs, and the last there was once it is over.
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
pub struct TaskRef(NonNull<Record>);

// SAFETY: a record does not change but under its lock, or its parent's.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    /// # Safety
    ///
    /// The record is there: somebody else has a count of it.
    pub(in crate::task) unsafe fn of(record: NonNull<Record>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { record.as_ref() }.count.add();
        TaskRef(record)
    }

    /// Gives back a count that was kept without one of these.
    ///
    /// # Safety
    ///
    /// There is such a count, and it is not used any more.
    pub(in crate::task) unsafe fn release(record: NonNull<Record>) {
        drop(TaskRef(record));
    }

    pub(in crate::task) fn record(&self) -> &Record {
        // SAFETY: it is counted.
        unsafe { self.0.as_ref() }
    }

    /// A number that no other task has, or will have.
    pub fn id(&self) -> TaskId {
        self.record().id
    }

    /// What whoever spawned the task has called it.
    pub fn name(&self) -> Option<&str> {
        self.record().name.as_deref()
    }

    /// How urgent the task is.
    pub fn priority(&self) -> Priority {
        self.record().facts().0.priority
    }

    /// Whether the task was asked to stop. It never becomes `false` again.
    ///
    /// It is the task as a whole: a shield, or a deadline, inside of it is for the code in there to ask about.
    pub fn is_cancelled(&self) -> bool {
        self.record().facts().0.why.is_some()
    }

    /// Why the task was asked to stop, if it was.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.record().facts().0.why.map(Reason::from)
    }

    /// When the task as a whole is to be over, if that was said.
    pub fn deadline(&self) -> Option<Instant> {
        self.record().facts().0.deadline
    }

    /// Whether the task has ended, and with it all that is beneath it.
    pub fn is_finished(&self) -> bool {
        !self.record().facts().1
    }

    /// The task that waits for this one to end, or did. None for one that was detached, or begun outside of tasks.
    pub fn parent(&self) -> Option<TaskRef> {
        self.record().parent.clone()
    }
}

impl Clone for TaskRef {
    fn clone(&self) -> Self {
        // SAFETY: it is counted.
        unsafe { TaskRef::of(self.0) }
    }
}

impl Drop for TaskRef {
    /// The last also lets go of the parent's, whatever the number of these.
    fn drop(&mut self) {
        let mut last = Some(self.0);
        while let Some(record) = last {
            // SAFETY: it is counted, and this gives a count back. The last frees it.
            unsafe {
                if !record.as_ref().count.release() {
                    return;
                }
                let mut record = Box::from_raw(record.as_ptr());
                last = record.parent.take().map(|parent| mem::ManuallyDrop::new(parent).0);
            }
        }
    }
}

impl PartialEq for TaskRef {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
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

/// A number that is one task's alone for as long as the process runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

impl TaskId {
    /// A number that no other task has.
    pub(super) fn unique() -> Self {
        TaskId(unique())
    }

    /// The number.
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
