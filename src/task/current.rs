//! The task that runs here, and what is known of it.

use core::cell::UnsafeCell;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem;
use core::ptr::{self, NonNull};
use std::borrow::Cow;
use std::boxed::Box;
use std::time::Instant;
use std::vec::Vec;

use super::cancellation::Reason;
use super::frame::Polling;
use super::strand::context::Context;
use super::strand::unit::Unit;
use crate::Priority;
use crate::memory::Count;
use crate::stop::Why;
use crate::sync::{Mutex, lock, unique};

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

/// A task, to ask about: on any thread, at any time, also when it is over.
///
/// [`current`] gives the one that runs here. It says nothing about results, keeps nothing alive but what it tells, and is
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
    pub(super) unsafe fn of(record: NonNull<Record>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { record.as_ref() }.count.add();
        TaskRef(record)
    }

    /// Gives back a count that was kept without one of these.
    ///
    /// # Safety
    ///
    /// There is such a count, and it is not used any more.
    pub(super) unsafe fn release(record: NonNull<Record>) {
        drop(TaskRef(record));
    }

    pub(super) fn record(&self) -> &Record {
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

/// What can change while a strand runs.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    pub(super) priority: Priority,
    pub(super) why: Option<Why>,
    pub(super) deadline: Option<Instant>,
}

impl Facts {
    pub(super) fn of(context: &Context, raised: Option<Priority>) -> Self {
        let given = context.priority.unwrap_or_default();
        Facts {
            priority: raised.map_or(given, |raised| raised.max(given)),
            why: context.token.why(),
            deadline: context.deadline,
        }
    }
}

/// What is kept for those who ask about a strand. It is made when the first does, after that of the strand above.
pub(super) struct Record {
    /// One for the strand until that is gone, and one for each [`TaskRef`]; the records of the strands beneath have one.
    count: Count,
    id: TaskId,
    name: Option<Cow<'static, str>>,
    parent: Option<TaskRef>,
    /// It is counted by something that is attached to the parent.
    spawned: bool,
    /// Held for a few instructions, and never while anything of the user's runs. The strand's end takes it, so whoever has
    /// it and finds the strand there can look at that.
    state: Mutex<State>,
    /// The links to the other children of the parent. They belong to the parent's lock.
    siblings: UnsafeCell<Siblings>,
}

struct State {
    /// The strand, until it ends.
    strand: Option<NonNull<Unit>>,
    /// What there was to be told at the end.
    last: Facts,
    /// The records of the strands beneath that have not ended, the newest first. Each is kept by its strand's count.
    children: *const Record,
    /// How many these are, and how many of them something that is attached counts too.
    known: usize,
    spawned: usize,
}

struct Siblings {
    next: *const Record,
    previous: *const Record,
}

/// What a look at a strand, and at those beneath it, has found.
pub(super) struct Look {
    pub(super) facts: Facts,
    pub(super) is_live: bool,
    /// Strands beneath that have not ended, beside those that were given.
    pub(super) others: usize,
}

impl Record {
    /// The record of a strand, which gets the count of it.
    ///
    /// # Safety
    ///
    /// The strand is there. If it is live, its end finds this.
    pub(super) unsafe fn new(
        strand: NonNull<Unit>,
        last: Facts,
        is_live: bool,
        parent: Option<TaskRef>,
        name: Option<Cow<'static, str>>,
    ) -> NonNull<Record> {
        // SAFETY: the caller's promise.
        let spawned = unsafe { strand.as_ref() }.is_spawned();
        NonNull::from(Box::leak(Box::new(Record {
            count: Count::one(),
            id: TaskId(unique()),
            name,
            parent,
            spawned,
            state: Mutex::new(State {
                strand: is_live.then_some(strand),
                last,
                children: ptr::null(),
                known: 0,
                spawned: 0,
            }),
            siblings: UnsafeCell::new(Siblings {
                next: ptr::null(),
                previous: ptr::null(),
            }),
        })))
    }

    /// Lists it with the parent's.
    ///
    /// # Safety
    ///
    /// The strand has it, and does not end before this returns. It is called once.
    pub(super) unsafe fn link(this: NonNull<Record>) {
        // SAFETY: the caller's promise.
        let record = unsafe { this.as_ref() };
        let Some(parent) = &record.parent else { return };
        let mut state = lock(&parent.record().state);
        // SAFETY: we hold the parent's lock; what is listed there is there.
        unsafe {
            (*record.siblings.get()).next = state.children;
            if let Some(next) = state.children.as_ref() {
                (*next.siblings.get()).previous = this.as_ptr();
            }
        }
        state.children = this.as_ptr();
        state.known += 1;
        state.spawned += usize::from(record.spawned);
    }

    /// The strand ends: from here on there is what is known now.
    ///
    /// # Safety
    ///
    /// It is that of the strand, which is still there, and has a count. It is called once, after [`link`](Record::link).
    #[cold]
    pub(super) unsafe fn end(this: NonNull<Record>, last: Facts) {
        // SAFETY: the caller's promise.
        let record = unsafe { this.as_ref() };
        {
            let mut state = lock(&record.state);
            state.last = last;
            state.strand = None;
        }
        let Some(parent) = &record.parent else { return };
        let mut state = lock(&parent.record().state);
        // SAFETY: we hold the parent's lock, and it is listed there.
        unsafe {
            let Siblings { next, previous } = *record.siblings.get();
            match previous.as_ref() {
                Some(previous) => (*previous.siblings.get()).next = next,
                None => state.children = next,
            }
            if let Some(next) = next.as_ref() {
                (*next.siblings.get()).previous = previous;
            }
        }
        state.known -= 1;
        state.spawned -= usize::from(record.spawned);
    }

    /// What is to be told, and whether the strand is still there.
    fn facts(&self) -> (Facts, bool) {
        let state = lock(&self.state);
        match state.strand {
            // SAFETY: it does not end while we have the lock.
            Some(strand) => (unsafe { strand.as_ref().facts() }, true),
            None => (state.last, false),
        }
    }

    /// What is to be told, and the strands beneath that have not ended, `room` of them at most, the newest first.
    pub(super) fn look(&self, children: &mut Vec<TaskRef>, room: usize) -> Look {
        let state = lock(&self.state);
        let Some(strand) = state.strand else {
            return Look {
                facts: state.last,
                is_live: false,
                others: 0,
            };
        };
        let mut at = state.children;
        let mut given = 0;
        while !at.is_null() && given < room {
            // SAFETY: it is listed, so it is there, and counted.
            unsafe {
                children.push(TaskRef::of(NonNull::new_unchecked(at.cast_mut())));
                at = (*(*at).siblings.get()).next;
            }
            given += 1;
        }
        // SAFETY: the strand does not end while we have the lock.
        let (facts, running) = unsafe { (strand.as_ref().facts(), strand.as_ref().running()) };
        Look {
            facts,
            is_live: true,
            // Some that were counted may be about to end, and so not be listed any more.
            others: running.saturating_sub(state.spawned) + (state.known - given),
        }
    }
}
