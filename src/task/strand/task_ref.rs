//! References to tasks that outlive them, and the records behind these.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ptr::NonNull;
use std::borrow::Cow;
use std::time::Instant;
use std::vec::Vec;

use super::{Context, Unit};
use crate::Priority;
use crate::memory::{Links, List, links};
use crate::stop::{Reason, Why};
#[cfg(feature = "inspect")]
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, Mutex, lock, unique};
#[cfg(feature = "inspect")]
use crate::task::frame::ActivityLook;

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
pub struct TaskRef(pub(super) Arc<Record>);

impl TaskRef {
    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// The pointer is that of the [`Arc`], and another owner has a reference.
    pub(super) unsafe fn of(record: *const Record) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Arc::increment_strong_count(record);
            TaskRef(Arc::from_raw(record))
        }
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

    /// Returns where the task was spawned, or created. `None` if that is unknown, or without the feature `inspect`.
    pub fn spawned_at(&self) -> Option<&'static core::panic::Location<'static>> {
        #[cfg(feature = "inspect")]
        return self.record().begun_at.location();
        #[cfg(not(feature = "inspect"))]
        None
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

    /// Returns the task with this number.
    #[cfg(feature = "inspect")]
    pub(in crate::task) fn of_number(number: u64) -> Self {
        TaskId(number)
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

/// The facts that can change while a strand runs.
#[derive(Clone, Copy)]
pub(in crate::task) struct Facts {
    pub(in crate::task) priority: Priority,
    pub(in crate::task) why: Option<Why>,
    pub(in crate::task) deadline: Option<Instant>,
    /// The priority without raises.
    pub(in crate::task) base: Priority,
    /// When the stop was requested, if that is known.
    pub(in crate::task) stopped_at: Option<Instant>,
}

impl Facts {
    pub(in crate::task) fn of(context: &Context, raised: Option<Priority>) -> Self {
        let given = context.priority.unwrap_or_default();
        Facts {
            priority: raised.map_or(given, |raised| raised.max(given)),
            why: context.token.why(),
            deadline: context.deadline,
            base: given,
            #[cfg(feature = "inspect")]
            stopped_at: context.token.stopped_at(),
            #[cfg(not(feature = "inspect"))]
            stopped_at: None,
        }
    }
}

/// The record of a strand. Created lazily by the first query, after the record of the strand above.
///
/// A [`TaskRef`] is a reference to it. The strand has one until it is destroyed, and so has each record of a strand below.
pub(in crate::task) struct Record {
    id: TaskId,
    name: Option<Cow<'static, str>>,
    parent: Option<TaskRef>,
    /// Whether a counter attached to the parent counts the strand.
    spawned: bool,
    /// Held for a few instructions, and never while user code runs. The strand's end takes it, so a strand found under the lock
    /// is alive.
    state: Mutex<RecordState>,
    /// The links to the other children of the parent, or to the other roots. Protected by the parent's lock, or by that of the roots.
    siblings: Links<Record>,
    /// Whether the record is among the [roots](Roots). Accessed by the party that links the record, and then by the end.
    #[cfg(feature = "inspect")]
    is_root: crate::sync::atomic::AtomicBool,
    /// Whether the instrument knows that the task is cancelled.
    #[cfg(feature = "inspect")]
    told_cancelled: crate::sync::atomic::AtomicBool,
    /// Where the task was spawned.
    #[cfg(feature = "inspect")]
    begun_at: crate::task::frame::Site,
}

struct RecordState {
    /// The strand, until it ends.
    strand: Option<NonNull<Unit>>,
    /// The facts at the end.
    last: Facts,
    /// The records of running strands below, the newest first. Each is kept alive by its strand's reference.
    children: List<Record>,
    /// The number of these, and how many of them an attached counter counts too.
    known: usize,
    spawned: usize,
}

// SAFETY: a shared record changes only under its lock, or its parent's.
unsafe impl Send for Record {}
// SAFETY: as for `Send`.
unsafe impl Sync for Record {}

links!(Record, siblings);

impl Drop for Record {
    /// Releases the references of the records above, iteratively.
    fn drop(&mut self) {
        let mut last = self.parent.take();
        while let Some(mut record) = last.and_then(|task| Arc::try_unwrap(task.0).ok()) {
            last = record.parent.take();
        }
    }
}

/// The result of inspecting a strand and those below it.
#[derive(Clone)]
pub(in crate::task) struct Snapshot {
    pub(in crate::task) facts: Facts,
    pub(in crate::task) is_live: bool,
    /// The number of running strands below, beside the listed ones.
    pub(in crate::task) others: usize,
    /// How many of these were left out, because there was no room.
    pub(in crate::task) left_out: usize,
    #[cfg(feature = "inspect")]
    pub(in crate::task) activity: Option<ActivityLook>,
}

impl Record {
    /// Creates the record of a strand.
    ///
    /// # Safety
    ///
    /// If the strand has not ended, its end finds this record.
    pub(super) unsafe fn new(
        strand: &Unit,
        last: Facts,
        is_live: bool,
        parent: Option<TaskRef>,
        name: Option<Cow<'static, str>>,
    ) -> Self {
        Record {
            id: TaskId::unique(),
            name,
            parent,
            spawned: strand.spawned.get(),
            state: Mutex::new(RecordState {
                strand: is_live.then_some(NonNull::from(strand)),
                last,
                children: List::new(),
                known: 0,
                spawned: 0,
            }),
            siblings: Links::new(),
            #[cfg(feature = "inspect")]
            is_root: crate::sync::atomic::AtomicBool::new(false),
            #[cfg(feature = "inspect")]
            told_cancelled: crate::sync::atomic::AtomicBool::new(false),
            #[cfg(feature = "inspect")]
            begun_at: strand.activity.look().begun_at,
        }
    }

    /// Returns `true` to the first caller, which tells the instrument that the task is cancelled.
    #[cfg(feature = "inspect")]
    pub(super) fn is_first_to_tell(&self) -> bool {
        !self.told_cancelled.load(Relaxed) && !self.told_cancelled.swap(true, Relaxed)
    }

    /// Links the record with those of the parent.
    ///
    /// # Safety
    ///
    /// The strand owns a reference to the record, and does not end before this returns. Called once.
    pub(super) unsafe fn link(&self) {
        let Some(parent) = &self.parent else {
            #[cfg(feature = "inspect")]
            // SAFETY: the caller's promise. The record is alive until `end` removes it, and in no list.
            unsafe {
                Roots::add(self);
            }
            return;
        };
        let mut state = lock(&parent.0.state);
        // SAFETY: the parent's lock is held. The record is alive until `end` removes it, and in no list.
        unsafe { state.children.push_front(NonNull::from(self)) };
        state.known += 1;
        state.spawned += usize::from(self.spawned);
    }

    /// Ends the record with the strand: it keeps the last facts.
    ///
    /// # Safety
    ///
    /// Called once, by the strand of the record, after [`link`](Record::link).
    #[cold]
    pub(super) unsafe fn end(&self, last: Facts) {
        {
            let mut state = lock(&self.state);
            state.last = last;
            state.strand = None;
        }
        let Some(parent) = &self.parent else {
            #[cfg(feature = "inspect")]
            Roots::remove(self);
            return;
        };
        let mut state = lock(&parent.0.state);
        // SAFETY: the parent's lock is held, and `link` has listed the record.
        unsafe { state.children.remove(NonNull::from(self)) };
        state.known -= 1;
        state.spawned -= usize::from(self.spawned);
    }

    /// Returns the facts, and whether the strand is alive.
    pub(in crate::task) fn facts(&self) -> (Facts, bool) {
        let state = lock(&self.state);
        match state.strand {
            // SAFETY: the strand's end needs the lock that is held.
            Some(strand) => (unsafe { strand.as_ref().facts() }, true),
            None => (state.last, false),
        }
    }

    /// Returns the facts, and collects at most `room` running strands below, the newest first.
    pub(in crate::task) fn look(&self, children: &mut Vec<TaskRef>, room: usize) -> Snapshot {
        let state = lock(&self.state);
        let Some(strand) = state.strand else {
            return Snapshot {
                facts: state.last,
                is_live: false,
                others: 0,
                left_out: 0,
                #[cfg(feature = "inspect")]
                activity: None,
            };
        };
        let before = children.len();
        // SAFETY: the strand of a listed record has not ended, and owns a reference to it.
        children.extend(
            state
                .children
                .iter()
                .take(room)
                .map(|child| unsafe { TaskRef::of(child.as_ptr()) }),
        );
        let given = children.len() - before;
        // SAFETY: the strand's end needs the lock that is held.
        let (facts, running) = unsafe { (strand.as_ref().facts(), strand.as_ref().running()) };
        Snapshot {
            facts,
            is_live: true,
            // A counted strand may be about to end, and so not be listed.
            others: running.saturating_sub(state.spawned) + (state.known - given),
            left_out: state.known - given,
            // SAFETY: as above.
            #[cfg(feature = "inspect")]
            activity: Some(unsafe { strand.as_ref() }.activity.look()),
        }
    }
}

/// The records of the running strands without a parent, the newest first.
#[cfg(feature = "inspect")]
pub(in crate::task) struct Roots(List<Record>);

// SAFETY: records may be used by any thread, and their links under the lock.
#[cfg(feature = "inspect")]
unsafe impl Send for Roots {}

#[cfg(feature = "inspect")]
static ROOTS: Mutex<Roots> = Mutex::new(Roots(List::new()));

#[cfg(feature = "inspect")]
impl Roots {
    /// # Safety
    ///
    /// The record is in no list, and alive until it is [removed](Roots::remove).
    unsafe fn add(record: &Record) {
        let mut roots = lock(&ROOTS);
        record.is_root.store(true, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { roots.0.push_front(NonNull::from(record)) };
    }

    /// Removes a record that may be among the roots.
    fn remove(record: &Record) {
        let mut roots = lock(&ROOTS);
        if record.is_root.swap(false, Relaxed) {
            // SAFETY: the record was added, and is removed once.
            unsafe { roots.0.remove(NonNull::from(record)) };
        }
    }

    /// Collects the roots, up to the capacity of `tasks`. Returns how many there are.
    pub(in crate::task) fn look(tasks: &mut Vec<TaskRef>) -> usize {
        let roots = lock(&ROOTS);
        let room = tasks.capacity() - tasks.len();
        // SAFETY: the strand of a listed record has not ended, and owns a reference to it.
        tasks.extend(
            roots
                .0
                .iter()
                .take(room)
                .map(|root| unsafe { TaskRef::of(root.as_ptr()) }),
        );
        roots.0.iter().count()
    }
}
