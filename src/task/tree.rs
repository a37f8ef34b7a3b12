//! What is beneath a task, and so why it waits.

use core::fmt;
use std::vec::Vec;

use super::current::current;
use super::strand::record::Facts;
use super::strand::task_ref::{TaskId, TaskRef};
use crate::Priority;

/// How many tasks a tree shows. It is for people to read.
const TASKS: usize = 1000;
/// How far the lines of a tree are indented at most.
const LEVELS: usize = 40;

/// The tree of the task that the calling code is part of. None outside of tasks.
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
    /// What is beneath the task: the tasks that it waits for, and those that these wait for, which have not ended.
    ///
    /// They are looked at one after the other while they run, so it is not one moment of the whole. Tasks that have a
    /// name, or were asked about by [`current`], are shown; the others are counted where they are children of a group. It
    /// shows a thousand at most, and counts the rest.
    ///
    /// It takes no lock for longer than a look at one task, and no stack that grows with the depth.
    pub fn tree(&self) -> TaskTree {
        let mut entries = Vec::new();
        let mut waiting = Vec::from([(self.clone(), 0)]);
        // Nothing is allocated under a lock.
        let mut children = Vec::with_capacity(TASKS);
        while let Some((task, depth)) = waiting.pop() {
            let room = TASKS - entries.len() - 1 - waiting.len();
            let look = task.record().look(&mut children, room);
            // The newest comes first, and so goes last.
            waiting.extend(children.drain(..).map(|child| (child, depth + 1)));
            entries.push(TreeEntry {
                task,
                depth,
                facts: look.facts,
                is_live: look.is_live,
                others: look.others,
            });
        }
        TaskTree { entries }
    }
}

/// What is beneath a task: made by [`TaskRef::tree`] and [`dump`].
///
/// It is printed with a line for each task, those that a task waits for beneath it.
#[derive(Clone)]
pub struct TaskTree {
    /// Each task comes before those beneath it.
    entries: Vec<TreeEntry>,
}

#[derive(Clone)]
struct TreeEntry {
    task: TaskRef,
    depth: usize,
    facts: Facts,
    is_live: bool,
    others: usize,
}

impl TaskTree {
    /// The task that was asked for.
    pub fn root(&self) -> TaskNode<'_> {
        self.node(0)
    }

    /// All tasks that are shown, each before those beneath it.
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

/// One task of a [`TaskTree`], as it was when that was made.
#[derive(Clone, Copy)]
pub struct TaskNode<'a> {
    entries: &'a [TreeEntry],
    index: usize,
}

impl<'a> TaskNode<'a> {
    fn entry(&self) -> &'a TreeEntry {
        &self.entries[self.index]
    }

    /// The task.
    pub fn task(&self) -> &'a TaskRef {
        &self.entry().task
    }

    /// Its number.
    pub fn id(&self) -> TaskId {
        self.task().id()
    }

    /// Its name.
    pub fn name(&self) -> Option<&'a str> {
        self.task().name()
    }

    /// How urgent it was.
    pub fn priority(&self) -> Priority {
        self.entry().facts.priority
    }

    /// Whether it was running.
    pub fn state(&self) -> TaskState {
        match (self.entry().is_live, self.entry().facts.why) {
            (false, _) => TaskState::Finished,
            (true, Some(_)) => TaskState::Cancelled,
            (true, None) => TaskState::Running,
        }
    }

    /// How far it is beneath the task that was asked for.
    pub fn depth(&self) -> usize {
        self.entry().depth
    }

    /// The tasks that it waited for and that are shown, the oldest first.
    pub fn children(&self) -> impl Iterator<Item = TaskNode<'a>> + use<'a> {
        let (entries, depth) = (self.entries, self.depth());
        (self.index + 1..entries.len())
            .take_while(move |&index| entries[index].depth > depth)
            .filter(move |&index| entries[index].depth == depth + 1)
            .map(move |index| TaskNode { entries, index })
    }

    /// How many more it waited for: children of groups about which nobody has asked, and what there was no room for.
    pub fn others(&self) -> usize {
        self.entry().others
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

/// What a task was at when a [`TaskTree`] was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskState {
    /// It has not ended: it runs, waits to run, or waits for something.
    Running,
    /// It has not ended, and was asked to stop.
    Cancelled,
    /// It has ended.
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
