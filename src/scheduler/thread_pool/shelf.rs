//! The shelf of a seat: entries that were handed over together, and run one after the other.

use core::ptr::{self, NonNull};

use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use crate::{Job, Transfer};

/// A list of jobs, linked from the first to the last, or none.
///
/// The occupant of the seat fills it while it is empty, runs the jobs in order, and has the rest in here while one of them runs. Any
/// thread may take all of it, so a job that blocks hides none of the others.
///
/// | value | the jobs belong to |
/// |---|---|
/// | null | no thread: there are none; or the thread that took them |
/// | a job | the thread that takes it next, with those that are linked to it |
pub(super) struct Shelf(
    /// Made non-null by the occupant alone, with a sequentially consistent swap: that releases the jobs and their links, and
    /// orders the loads of the occupant that come after it. Made null by any thread with a swap that acquires them.
    AtomicPtr<Job>,
);

impl Shelf {
    pub(super) fn new() -> Self {
        Shelf(AtomicPtr::new(ptr::null_mut()))
    }

    /// Whether there is nothing, as seen by the occupant. To others that is old news.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Whether there is something. Sequentially consistent.
    pub(super) fn has_items(&self) -> bool {
        !self.0.load(SeqCst).is_null()
    }

    /// Puts jobs there. The caller is the occupant, and it is empty.
    pub(super) fn fill(&self, jobs: Transfer) {
        // A swap, which costs what such a store does, and which `loom` orders with the other swaps.
        let before = self.0.swap(jobs.into_raw(), SeqCst);
        debug_assert!(before.is_null(), "the shelf was empty");
    }

    /// Takes all.
    #[inline]
    pub(super) fn take(&self) -> Transfer {
        // SAFETY: it was made of a list, and is taken by this thread alone.
        unsafe { Transfer::from_raw(self.0.swap(ptr::null_mut(), Acquire)) }
    }

    /// Takes the first, and leaves the others where they are found. The caller is the occupant.
    pub(super) fn take_first(&self) -> Option<NonNull<Job>> {
        let mut jobs = self.take();
        let first = jobs.pop();
        if !jobs.is_none() {
            self.fill(jobs);
        }
        first
    }
}
