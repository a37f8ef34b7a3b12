//! Records of strands, for those that ask about tasks.

use core::ptr::NonNull;
use std::borrow::Cow;
use std::boxed::Box;
use std::time::Instant;
use std::vec::Vec;

use super::{Context, TaskId, TaskRef, Unit};
use crate::Priority;
use crate::memory::{Count, Links, List, links};
use crate::stop::Why;
use crate::sync::{Mutex, lock};

/// What can change while a strand runs.
#[derive(Clone, Copy)]
pub(in crate::task) struct Facts {
    pub(in crate::task) priority: Priority,
    pub(in crate::task) why: Option<Why>,
    pub(in crate::task) deadline: Option<Instant>,
}

impl Facts {
    pub(in crate::task) fn of(context: &Context, raised: Option<Priority>) -> Self {
        let given = context.priority().unwrap_or_default();
        Facts {
            priority: raised.map_or(given, |raised| raised.max(given)),
            why: context.token.why(),
            deadline: context.deadline,
        }
    }
}

/// What is kept for those who ask about a strand. It is made when the first does, after that of the strand above.
pub(in crate::task) struct Record {
    /// One for the strand until that is gone, and one for each [`TaskRef`]; the records of the strands beneath have one.
    pub(super) count: Count,
    pub(super) id: TaskId,
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) parent: Option<TaskRef>,
    /// It is counted by something that is attached to the parent.
    spawned: bool,
    /// Held for a few instructions, and never while anything of the user's runs. The strand's end takes it, so whoever has
    /// it and finds the strand there can look at that.
    state: Mutex<RecordState>,
    /// The links to the other children of the parent. They belong to the parent's lock.
    siblings: Links<Record>,
}

struct RecordState {
    /// The strand, until it ends.
    strand: Option<NonNull<Unit>>,
    /// What there was to be told at the end.
    last: Facts,
    /// The records of the strands beneath that have not ended, the newest first. Each is kept by its strand's count.
    children: List<Record>,
    /// How many these are, and how many of them something that is attached counts too.
    known: usize,
    spawned: usize,
}

links!(Record, siblings);

/// What a look at a strand, and at those beneath it, has found.
pub(in crate::task) struct Snapshot {
    pub(in crate::task) facts: Facts,
    pub(in crate::task) is_live: bool,
    /// Strands beneath that have not ended, beside those that were given.
    pub(in crate::task) others: usize,
}

impl Record {
    /// The record of a strand, which gets the count of it.
    ///
    /// # Safety
    ///
    /// The strand is there. If it is live, its end finds this.
    pub(in crate::task) unsafe fn new(
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
            id: TaskId::unique(),
            name,
            parent,
            spawned,
            state: Mutex::new(RecordState {
                strand: is_live.then_some(strand),
                last,
                children: List::new(),
                known: 0,
                spawned: 0,
            }),
            siblings: Links::new(),
        })))
    }

    /// Lists it with the parent's.
    ///
    /// # Safety
    ///
    /// The strand has it, and does not end before this returns. It is called once.
    pub(in crate::task) unsafe fn link(this: NonNull<Record>) {
        // SAFETY: the caller's promise.
        let record = unsafe { this.as_ref() };
        let Some(parent) = &record.parent else { return };
        let mut state = lock(&parent.record().state);
        // SAFETY: the parent's lock is held. The record stays in memory until `end` removes it, and is in no list.
        unsafe { state.children.push_front(this) };
        state.known += 1;
        state.spawned += usize::from(record.spawned);
    }

    /// The strand ends: from here on there is what is known now.
    ///
    /// # Safety
    ///
    /// It is that of the strand, which is still there, and has a count. It is called once, after [`link`](Record::link).
    #[cold]
    pub(in crate::task) unsafe fn end(this: NonNull<Record>, last: Facts) {
        // SAFETY: the caller's promise.
        let record = unsafe { this.as_ref() };
        {
            let mut state = lock(&record.state);
            state.last = last;
            state.strand = None;
        }
        let Some(parent) = &record.parent else { return };
        let mut state = lock(&parent.record().state);
        // SAFETY: the parent's lock is held, and `link` has listed the record.
        unsafe { state.children.remove(this) };
        state.known -= 1;
        state.spawned -= usize::from(record.spawned);
    }

    /// What is to be told, and whether the strand is still there.
    pub(in crate::task) fn facts(&self) -> (Facts, bool) {
        let state = lock(&self.state);
        match state.strand {
            // SAFETY: it does not end while we have the lock.
            Some(strand) => (unsafe { strand.as_ref().facts() }, true),
            None => (state.last, false),
        }
    }

    /// What is to be told, and the strands beneath that have not ended, `room` of them at most, the newest first.
    pub(in crate::task) fn look(&self, children: &mut Vec<TaskRef>, room: usize) -> Snapshot {
        let state = lock(&self.state);
        let Some(strand) = state.strand else {
            return Snapshot {
                facts: state.last,
                is_live: false,
                others: 0,
            };
        };
        let before = children.len();
        // SAFETY: the strand of a listed record has not ended, and owns a reference of it.
        children.extend(
            state
                .children
                .iter()
                .take(room)
                .map(|child| unsafe { TaskRef::of(child) }),
        );
        let given = children.len() - before;
        // SAFETY: the strand does not end while we have the lock.
        let (facts, running) = unsafe { (strand.as_ref().facts(), strand.as_ref().running()) };
        Snapshot {
            facts,
            is_live: true,
            // Some that were counted may be about to end, and so not be listed any more.
            others: running.saturating_sub(state.spawned) + (state.known - given),
        }
    }
}
