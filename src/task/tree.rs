//! Snapshots of the tasks that a task waits for.

use core::fmt;
use std::vec::Vec;

use super::current::current;
use super::strand::{Snapshot, TaskId, TaskRef};
use crate::Priority;

/// The maximum number of tasks in a tree, which is for people to read.
const TASKS: usize = 1000;
/// The maximum indentation of a printed tree, in levels.
const LEVELS: usize = 40;

/// Returns the tree of tasks below the current task, or `None` outside of tasks.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let task = Task::new(async { task::dump().unwrap().to_string() });
/// let text = sync_wait(task).unwrap();
/// assert!(text.ends_with("running, priority Default\n"), "{text}");
/// ```
pub fn dump() -> Option<TaskTree> {
    current().map(|task| task.tree())
}

impl TaskRef {
    /// Returns the tree of tasks that this task waits for, directly and indirectly, and that have not ended.
    ///
    /// The tasks are inspected one after the other while they run, so the tree is not an atomic snapshot. A task is listed if
    /// it has a name or was asked for by [`current`]. Other children of groups are only counted, as are those beyond a
    /// thousand.
    ///
    /// Each lock is held for the inspection of one task only, and the stack does not grow with the depth.
    pub fn tree(&self) -> TaskTree {
        let mut entries = Vec::new();
        let mut waiting = Vec::from([(self.clone(), 0)]);
        // Allocated here, because nothing is allocated under a lock.
        let mut children = Vec::with_capacity(TASKS);
        while let Some((task, depth)) = waiting.pop() {
            let room = TASKS - entries.len() - 1 - waiting.len();
            let look = task.record().look(&mut children, room);
            // Newest first: the oldest child is popped next.
            waiting.extend(children.drain(..).map(|child| (child, depth + 1)));
            entries.push(TreeEntry { task, depth, look });
        }
        TaskTree { entries }
    }
}

/// A snapshot of the tasks below a task, created by [`TaskRef::tree`] and [`dump`].
///
/// `Display` prints one line per task, indented below the task that waits for it.
#[derive(Clone)]
pub struct TaskTree {
    /// In preorder: each task precedes those below it.
    entries: Vec<TreeEntry>,
}

#[derive(Clone)]
struct TreeEntry {
    task: TaskRef,
    depth: usize,
    look: Snapshot,
}

impl TaskTree {
    /// Returns the task at the root.
    pub fn root(&self) -> TaskNode<'_> {
        self.node(0)
    }

    /// Iterates over all listed tasks in preorder.
    pub fn iter(&self) -> impl Iterator<Item = TaskNode<'_>> {
        (0..self.entries.len()).map(|index| self.node(index))
    }

    fn node(&self, index: usize) -> TaskNode<'_> {
        TaskNode {
            entries: &self.entries,
            index,
        }
    }
}

impl fmt::Display for TaskTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.iter() {
            let indent = 2 * node.depth().min(LEVELS);
            write!(f, "{:indent$}task {}", "", node.id())?;
            if let Some(name) = node.name() {
                write!(f, " {name:?}")?;
            }
            writeln!(f, ": {}, priority {:?}", node.state(), node.priority())?;
            if node.others() != 0 {
                let plural = if node.others() == 1 { "" } else { "s" };
                writeln!(f, "{:indent$}  {} more task{plural}", "", node.others())?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TaskTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One task of a [`TaskTree`], as it was when the tree was created.
#[derive(Clone, Copy)]
pub struct TaskNode<'a> {
    entries: &'a [TreeEntry],
    index: usize,
}

impl<'a> TaskNode<'a> {
    fn entry(&self) -> &'a TreeEntry {
        &self.entries[self.index]
    }

    /// Returns the task.
    pub fn task(&self) -> &'a TaskRef {
        &self.entry().task
    }

    /// Returns the task's number.
    pub fn id(&self) -> TaskId {
        self.task().id()
    }

    /// Returns the task's name.
    pub fn name(&self) -> Option<&'a str> {
        self.task().name()
    }

    /// Returns the task's priority at that time.
    pub fn priority(&self) -> Priority {
        self.entry().look.facts.priority
    }

    /// Returns the task's state at that time.
    pub fn state(&self) -> TaskState {
        match (self.entry().look.is_live, self.entry().look.facts.why) {
            (false, _) => TaskState::Finished,
            (true, Some(_)) => TaskState::Cancelled,
            (true, None) => TaskState::Running,
        }
    }

    /// Returns the distance from the root.
    pub fn depth(&self) -> usize {
        self.entry().depth
    }

    /// Iterates over the listed tasks that this one waited for, the oldest first.
    pub fn children(&self) -> impl Iterator<Item = TaskNode<'a>> + use<'a> {
        let (entries, depth) = (self.entries, self.depth());
        (self.index + 1..entries.len())
            .take_while(move |&index| entries[index].depth > depth)
            .filter(move |&index| entries[index].depth == depth + 1)
            .map(move |index| TaskNode { entries, index })
    }

    /// Returns how many more tasks this one waited for: unlisted children of groups, and those beyond the limit.
    pub fn others(&self) -> usize {
        self.entry().look.others
    }
}

impl fmt::Debug for TaskNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskNode")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("depth", &self.depth())
            .field("state", &self.state())
            .field("priority", &self.priority())
            .field("others", &self.others())
            .finish()
    }
}

/// The state of a task when a [`TaskTree`] was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// Not ended: running, queued or suspended.
    Running,
    /// Not ended, and asked to stop.
    Cancelled,
    /// Ended.
    Finished,
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TaskState::Running => "running",
            TaskState::Cancelled => "cancelled",
            TaskState::Finished => "finished",
        })
    }
}
