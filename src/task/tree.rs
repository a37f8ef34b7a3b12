//! Snapshots of tasks: what they do, and which tasks they wait for.

use core::fmt;
use core::panic::Location;
use std::time::Instant;
use std::vec::Vec;

use super::current::current;
#[cfg(feature = "inspect")]
use super::frame::ActivityKind;
#[cfg(feature = "inspect")]
use super::strand::Roots;
use super::strand::{Snapshot, TaskId, TaskRef};
use crate::Priority;
use crate::stop::Reason;

/// The maximum number of tasks in a tree.
const TASKS: usize = if cfg!(feature = "inspect") { 1_000_000 } else { 1000 };
/// The number of children that a tree has memory for at first.
const ROOM: usize = 1000;

/// Returns the tree of tasks below the current task, or `None` outside of tasks.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let task = Task::new(async { task::dump().unwrap().to_string() });
/// let text = sync_wait(task).unwrap();
/// assert!(text.contains("running, priority Default\n"), "{text}");
/// ```
pub fn dump() -> Option<TaskTree> {
    current().map(|task| task.tree())
}

/// Returns all tasks of the process that have not ended, each below the task that waits for it.
///
/// With the feature `inspect` every task is listed, with what it does, where it waits and for what, where it was spawned, and
/// since when it is cancelled. Print it when a program hangs, for example on a signal.
///
/// ```
/// use bowline::task;
///
/// let handle = task::detach(async {
///     task::shield(std::future::pending::<()>()).await
/// });
/// handle.cancel();
/// # while !task::dump_all().iter().any(|node| node.waits().is_some()) {
/// #     std::thread::yield_now();
/// # }
/// let text = task::dump_all().to_string();
/// assert!(text.contains("waiting"), "{text}");
/// assert!(text.contains("cancelled"), "{text}");
/// ```
#[cfg(feature = "inspect")]
pub fn dump_all() -> TaskTree {
    let mut roots = Vec::with_capacity(ROOM);
    // Allocated here, because nothing is allocated under a lock.
    while Roots::look(&mut roots) > roots.len() && roots.len() < TASKS {
        let room = roots.len() * 2;
        roots.clear();
        roots.reserve(room);
    }
    TaskTree::below(roots)
}

impl TaskRef {
    /// Returns the tree of tasks that this task waits for, directly and indirectly, and that have not ended.
    ///
    /// The tasks are inspected one after the other while they run, so the tree is not an atomic snapshot. With the feature
    /// `inspect` all tasks are listed, up to a million. Without it a task is listed if it has a name or was asked for by
    /// [`current`]. Other children of groups are only counted, as are those beyond a thousand.
    ///
    /// Each lock is held for the inspection of one task only, and the stack does not grow with the depth.
    pub fn tree(&self) -> TaskTree {
        TaskTree::below(Vec::from([self.clone()]))
    }
}

/// A snapshot of tasks and the tasks below them, created by [`TaskRef::tree`], [`dump`] and `dump_all`.
///
/// `Display` prints one line per task, indented below the task that waits for it, and beneath it what else is known.
/// [`to_json`](TaskTree::to_json) is for programs, and [`to_html`](TaskTree::to_html) is a page for a browser.
#[derive(Clone)]
pub struct TaskTree {
    /// In preorder: each task precedes those below it.
    entries: Vec<TreeEntry>,
    /// When the tree was created.
    at: Instant,
}

#[derive(Clone)]
struct TreeEntry {
    task: TaskRef,
    depth: usize,
    look: Snapshot,
}

impl TaskTree {
    /// Creates the tree of all tasks below these, which are the newest first.
    fn below(roots: Vec<TaskRef>) -> Self {
        let mut entries = Vec::new();
        let mut waiting: Vec<_> = roots.into_iter().map(|root| (root, 0)).collect();
        // Allocated here, because nothing is allocated under a lock.
        let mut children = Vec::with_capacity(ROOM);
        while let Some((task, depth)) = waiting.pop() {
            let room = TASKS.saturating_sub(entries.len() + 1 + waiting.len());
            let look = loop {
                let most = room.min(children.capacity());
                let look = task.record().look(&mut children, most);
                if look.left_out == 0 || children.len() >= room {
                    break look;
                }
                let wanted = children.len() + look.left_out;
                children.clear();
                children.reserve(wanted + wanted / 2);
            };
            // Newest first: the oldest child is popped next.
            waiting.extend(children.drain(..).map(|child| (child, depth + 1)));
            entries.push(TreeEntry { task, depth, look });
        }
        TaskTree {
            entries,
            at: Instant::now(),
        }
    }

    /// Returns the first task: that for which the tree was created. `None` if the tree is empty, because no task runs.
    pub fn root(&self) -> Option<TaskNode<'_>> {
        self.iter().next()
    }

    /// Iterates over the tasks that no other task waits for.
    pub fn roots(&self) -> impl Iterator<Item = TaskNode<'_>> {
        self.iter().filter(|node| node.depth() == 0)
    }

    /// Iterates over all listed tasks in preorder.
    pub fn iter(&self) -> impl Iterator<Item = TaskNode<'_>> {
        (0..self.entries.len()).map(|index| TaskNode { tree: self, index })
    }

    /// Returns the number of listed tasks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no task is listed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns when the tree was created.
    pub fn created_at(&self) -> Instant {
        self.at
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
    tree: &'a TaskTree,
    index: usize,
}

impl<'a> TaskNode<'a> {
    fn entry(&self) -> &'a TreeEntry {
        &self.tree.entries[self.index]
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

    /// Returns the priority that the task was given, without later raises.
    pub fn base_priority(&self) -> Priority {
        self.entry().look.facts.base
    }

    /// Returns the task's state at that time.
    pub fn state(&self) -> TaskState {
        match (self.entry().look.is_live, self.entry().look.facts.why) {
            (false, _) => TaskState::Finished,
            (true, Some(_)) => TaskState::Cancelled,
            (true, None) => TaskState::Running,
        }
    }

    /// Returns why the task was asked to stop, or `None` if it was not.
    pub fn cancellation_reason(&self) -> Option<Reason> {
        self.entry().look.facts.why.map(Reason::from)
    }

    /// Returns when the task was asked to stop. `None` if it was not, or without the feature `inspect`.
    pub fn cancelled_at(&self) -> Option<Instant> {
        self.entry().look.facts.stopped_at
    }

    /// Returns the deadline of the task as a whole, if it has one.
    pub fn deadline(&self) -> Option<Instant> {
        self.entry().look.facts.deadline
    }

    /// Returns what the task did. `None` if it had ended, or without the feature `inspect`.
    pub fn activity(&self) -> Option<TaskActivity> {
        #[cfg(feature = "inspect")]
        return self.entry().look.activity.map(|look| match look.kind {
            ActivityKind::Queued => TaskActivity::Queued,
            ActivityKind::Running => TaskActivity::Running,
            ActivityKind::Waiting => TaskActivity::Waiting,
        });
        #[cfg(not(feature = "inspect"))]
        None
    }

    /// Returns the await that the task waited at. `None` if it did not wait, or without the feature `inspect`.
    pub fn waits(&self) -> Option<TaskWait> {
        #[cfg(feature = "inspect")]
        return self
            .entry()
            .look
            .activity
            .filter(|look| look.kind == ActivityKind::Waiting)
            .map(|look| TaskWait {
                location: look.site.location(),
                what: look.what,
                task: look.task.map(TaskId::of_number),
                deadline: look.deadline,
                since: look.since,
            });
        #[cfg(not(feature = "inspect"))]
        None
    }

    /// Returns where the task was spawned, or created. `None` if that is unknown, or without the feature `inspect`.
    pub fn spawned_at(&self) -> Option<&'static Location<'static>> {
        #[cfg(feature = "inspect")]
        return self.entry().look.activity.and_then(|look| look.begun_at.location());
        #[cfg(not(feature = "inspect"))]
        None
    }

    /// Returns the distance from the root.
    pub fn depth(&self) -> usize {
        self.entry().depth
    }

    /// Returns the task that waited for this one, unless this is a root of the tree.
    pub fn parent(&self) -> Option<TaskNode<'a>> {
        let depth = self.depth().checked_sub(1)?;
        let index = (0..self.index)
            .rev()
            .find(|&index| self.tree.entries[index].depth == depth)?;
        Some(TaskNode { tree: self.tree, index })
    }

    /// Iterates over the listed tasks that this one waited for, the oldest first.
    pub fn children(&self) -> impl Iterator<Item = TaskNode<'a>> + use<'a> {
        let (tree, depth) = (self.tree, self.depth());
        (self.index + 1..tree.entries.len())
            .take_while(move |&index| tree.entries[index].depth > depth)
            .filter(move |&index| tree.entries[index].depth == depth + 1)
            .map(move |index| TaskNode { tree, index })
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
            .field("activity", &self.activity())
            .field("waits", &self.waits())
            .field("priority", &self.priority())
            .field("others", &self.others())
            .finish_non_exhaustive()
    }
}

/// What a task did when a [`TaskTree`] was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskActivity {
    /// It was ready to run, and in the queue of its scheduler.
    Queued,
    /// A thread ran it.
    Running,
    /// It was suspended at an await.
    Waiting,
}

impl fmt::Display for TaskActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TaskActivity::Queued => "queued",
            TaskActivity::Running => "running",
            TaskActivity::Waiting => "waiting",
        })
    }
}

/// The await at which a task waited when a [`TaskTree`] was created.
///
/// If a task waits for several things at once, such as the futures of a `join!`, this is the one that was polled last. The place, the
/// description and the deadline are those of that await.
#[derive(Clone, Copy, Debug)]
pub struct TaskWait {
    location: Option<&'static Location<'static>>,
    what: Option<&'static str>,
    task: Option<TaskId>,
    deadline: Option<Instant>,
    since: Option<Instant>,
}

impl TaskWait {
    /// Returns the place of the `.await`, or of the function that made the awaited future.
    ///
    /// A future of another crate has no place of its own. For that it is the innermost shield, deadline, handler, group or other scope of
    /// this crate around it, and `None` if there is none. So it is for a group that is polled as a `Stream`, by code of another crate.
    /// A [`Handle`](super::Handle) or an [`AsyncLet`](super::AsyncLet) that another future polls, such as that of a `join!`, has the
    /// place of that poll.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.location
    }

    /// Returns a description of what is awaited in a group or of a task, such as `"the next child of a group"`. For anything else of this
    /// crate it is the name of its type. `None` for a future of another crate.
    pub fn what(&self) -> Option<&'static str> {
        self.what
    }

    /// Returns the task whose end is awaited, by a [`Handle`](super::Handle) or an [`AsyncLet`](super::AsyncLet).
    pub fn task(&self) -> Option<TaskId> {
        self.task
    }

    /// Returns the earliest deadline of the scopes of the task around the await, such as a [`with_timeout`](super::with_timeout). `None` if
    /// there is none.
    ///
    /// If it has passed and the task still waits, something inside does not heed it, such as a [`shield`](super::shield). So a deadline
    /// around a shield counts, although [`deadline`](super::deadline) is `None` inside. What the task has inherited is the
    /// [deadline of the task](TaskNode::deadline).
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns since when the task waits, to some hundredths of a second.
    pub fn since(&self) -> Option<Instant> {
        self.since
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
