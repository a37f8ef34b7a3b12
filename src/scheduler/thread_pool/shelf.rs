//! The shelf of a seat: entries that were handed over together, and run one after the other.
//!
//! [`Shelf`] is one atomic pointer to a list of jobs. The occupant of the seat fills it while it is empty, and takes
//! the first job to run it, with the rest put back. Any thread may take the whole list. So a job that blocks does not
//! hide the others. The jobs belong to the thread whose swap returned them.

use core::ptr::{self, NonNull};

use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use crate::{Job, Transfer};

/// A list of jobs, linked first to last, or none.
///
/// | value | the jobs belong to |
/// |---|---|
/// | null | no thread, or the thread that took them |
/// | a job | the thread that takes it next, with all jobs linked to it |
pub(super) struct Shelf(
    /// Set to non-null by the occupant only, with a sequentially consistent swap. That releases the jobs and their
    /// links, and orders the occupant's later loads after it. Set to null by any thread, with a swap that acquires
    /// them.
    AtomicPtr<Job>,
);

impl Shelf {
    pub(super) fn new() -> Self {
        Shelf(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns whether the shelf is empty. Exact for the occupant, a hint for other threads.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Returns whether the shelf has jobs. The load is sequentially consistent.
    pub(super) fn has_items(&self) -> bool {
        !self.0.load(SeqCst).is_null()
    }

    /// Fills the shelf. The caller is the occupant, and the shelf is empty.
    pub(super) fn fill(&self, jobs: Transfer) {
        // A swap costs as much as a sequentially consistent store, and `loom` orders it with the other swaps.
        let before = self.0.swap(jobs.into_raw(), SeqCst);
        debug_assert!(before.is_null(), "the shelf was empty");
    }

    /// Takes all jobs.
    #[inline]
    pub(super) fn take(&self) -> Transfer {
        // SAFETY: `fill` made the pointer of a `Transfer`, and the swap gives it to this thread only.
        unsafe { Transfer::from_raw(self.0.swap(ptr::null_mut(), Acquire)) }
    }

    /// Takes the first job and puts the others back. The caller is the occupant.
    pub(super) fn take_first(&self) -> Option<NonNull<Job>> {
        let mut jobs = self.take();
        let first = jobs.pop();
        if !jobs.is_none() {
            self.fill(jobs);
        }
        first
    }
}
