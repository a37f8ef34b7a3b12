use core::array;
use core::ptr::NonNull;
use core::time::Duration;
use std::time::Instant;

use super::heap::Heap;
use super::slab::Slab;
use super::{CLASSES, size_of_class};
use crate::memory::List;
use crate::sync::{Mutex, const_unless_loom, lock};

/// The number of empty slabs that the depot keeps at least.
const KEPT: usize = if cfg!(loom) { 0 } else { 64 };
/// How long the depot keeps further empty slabs, at least, after they were needed. A model has no time: it keeps none.
pub(super) const REST: Duration = if cfg!(loom) {
    Duration::ZERO
} else {
    Duration::from_secs(2)
};

/// The slabs without an owner, for the heaps of all threads: partly used ones by class, and empty ones.
///
/// # When empty slabs are deallocated
///
/// The system's allocator takes longer for a slab than its children take to run, and new pages take longer still. So the
/// depot keeps the slabs of a burst for the next one. Time is divided into periods of at least [`REST`]. The slabs that
/// were kept throughout a period were not needed: they are deallocated in the next one, except for [`KEPT`] and a fraction
/// of those in use. Threads that put slabs into the depot deallocate two at a time, and [`Depot::tidy`] all of them.
///
/// The lock is held for a few instructions, and never while the system's allocator is called.
pub(crate) struct Depot(Mutex<Slabs>);

struct Slabs {
    shelves: [List<Slab>; CLASSES],
    empty: List<Slab>,
    /// The number of slabs in `empty`.
    kept: usize,
    /// The number of other slabs, of all threads.
    others: usize,
    /// The smallest value of `kept` in this period.
    unneeded: usize,
    /// When the period began.
    since: Option<Instant>,
    /// The number of kept slabs that are to be deallocated. Not more than `kept`.
    surplus: usize,
}

impl Slabs {
    const fn new() -> Self {
        Slabs {
            shelves: [const { List::new() }; CLASSES],
            empty: List::new(),
            kept: 0,
            others: 0,
            unneeded: 0,
            since: None,
            surplus: 0,
        }
    }

    /// Returns how many empty slabs are kept at all times.
    fn reserve(&self) -> usize {
        KEPT + self.others / 4
    }

    /// Begins the next period, if this one has lasted long enough.
    fn pass_time(&mut self, now: Instant) {
        if (self.since).is_none_or(|since| now.saturating_duration_since(since) >= REST) {
            let unneeded = if cfg!(loom) { self.kept } else { self.unneeded };
            self.surplus = unneeded.saturating_sub(self.reserve());
            self.unneeded = self.kept;
            self.since = Some(now);
        }
    }

    /// Takes an empty slab.
    fn take_empty(&mut self) -> Option<NonNull<Slab>> {
        let slab = self.empty.pop_front()?;
        self.kept -= 1;
        self.unneeded = self.unneeded.min(self.kept);
        self.surplus = self.surplus.min(self.kept);
        Some(slab)
    }

    /// Takes slabs that are to be deallocated.
    fn take_surplus<const N: usize>(&mut self) -> [Option<NonNull<Slab>>; N] {
        array::from_fn(|_| {
            self.surplus = self.surplus.checked_sub(1)?;
            self.take_empty()
        })
    }
}

// SAFETY: the lists own their slabs, which may be used by any thread.
unsafe impl Send for Slabs {}

impl Depot {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Depot(Mutex::new(Slabs::new()))
        }
    }

    /// Returns a slab with a free slot of a class, which `heap` owns. It is in no list. `None` if there is no memory.
    pub(super) fn take(&self, class: usize, heap: &Heap) -> Option<NonNull<Slab>> {
        let (slab, divided) = {
            let mut slabs = lock(&self.0);
            match slabs.shelves[class].pop_front() {
                Some(slab) => {
                    // SAFETY: the slab was removed from its shelf, under the lock.
                    unsafe { slab.as_ref().unshelve() };
                    (Some(slab), true)
                }
                None => {
                    slabs.others += 1;
                    (slabs.take_empty(), false)
                }
            }
        };
        let Some(slab) = slab.or_else(Slab::new) else {
            lock(&self.0).others -= 1;
            return None;
        };
        // SAFETY: the slab is from a list, or new, so this thread has exclusive access.
        unsafe {
            slab.as_ref().set_owner(heap);
            if !divided {
                slab.as_ref().divide(class, size_of_class(class));
            }
        }
        Some(slab)
    }

    /// Takes a slab from its shelf for `heap`, unless another thread did.
    ///
    /// # Safety
    ///
    /// The caller owns a used slot of the slab.
    pub(super) unsafe fn take_shelved(&self, slab: NonNull<Slab>, heap: &Heap) -> bool {
        let mut slabs = lock(&self.0);
        // SAFETY: the used slot keeps the slab alive. A shelved one is in the list of its class.
        unsafe {
            if !slab.as_ref().is_shelved() {
                return false;
            }
            slabs.shelves[slab.as_ref().class()].remove(slab);
            slab.as_ref().unshelve();
            slab.as_ref().set_owner(heap);
        }
        true
    }

    /// Puts a slab on a shelf. Returns `false` if another thread has freed a slot of it.
    ///
    /// # Safety
    ///
    /// `heap` owns the slab, which is in no list and has a used slot.
    pub(super) unsafe fn shelve(&self, slab: NonNull<Slab>, heap: &Heap) -> bool {
        let mut slabs = lock(&self.0);
        // SAFETY: the contract of this function, and the lock is held.
        unsafe {
            // Read first: the slab belongs to the lock after `shelve`.
            let class = slab.as_ref().class();
            if !slab.as_ref().shelve(heap) {
                return false;
            }
            slabs.shelves[class].push_back(slab);
        }
        true
    }

    /// Takes an empty slab, and deallocates some that were not needed for a while.
    ///
    /// # Safety
    ///
    /// The caller owns the slab, which is empty and in no list.
    pub(super) unsafe fn put_empty(&self, slab: NonNull<Slab>) {
        // SAFETY: the contract of this function.
        unsafe { self.put_empty_at(Instant::now(), slab) }
    }

    /// Does what [`put_empty`](Depot::put_empty) does, at a time.
    ///
    /// # Safety
    ///
    /// The contract of [`put_empty`](Depot::put_empty).
    unsafe fn put_empty_at(&self, now: Instant, slab: NonNull<Slab>) {
        let surplus = {
            let mut slabs = lock(&self.0);
            slabs.others -= 1;
            slabs.kept += 1;
            // SAFETY: the slab is in no list, and alive until it is removed.
            unsafe { slabs.empty.push_front(slab) };
            slabs.pass_time(now);
            // Two for each that comes, so that no thread pays for all.
            slabs.take_surplus::<2>()
        };
        // SAFETY: they were taken from the list.
        unsafe { delete(surplus) };
    }

    /// Returns the number of slabs that were not deallocated.
    #[cfg(any(loom, test))]
    pub(super) fn slabs(&self) -> usize {
        let slabs = lock(&self.0);
        slabs.kept + slabs.others
    }
}

/// What a model, which has no time, does not use.
#[cfg(not(loom))]
impl Depot {
    /// Deallocates all slabs that were not needed for a while. Returns whether there are more than are kept at all times:
    /// then an idle thread calls this again after [`REST`].
    pub(super) fn tidy(&self, now: Instant) -> bool {
        lock(&self.0).pass_time(now);
        self.delete_surplus()
    }

    /// Deallocates all slabs but those that are kept at all times.
    pub(super) fn release(&self) {
        let mut slabs = lock(&self.0);
        slabs.surplus = slabs.kept.saturating_sub(slabs.reserve());
        drop(slabs);
        self.delete_surplus();
    }

    /// Deallocates the surplus. Returns whether there are more slabs than are kept at all times.
    fn delete_surplus(&self) -> bool {
        loop {
            let surplus = {
                let mut slabs = lock(&self.0);
                if slabs.surplus == 0 {
                    return slabs.kept > slabs.reserve();
                }
                slabs.take_surplus::<32>()
            };
            // SAFETY: they were taken from the list.
            unsafe { delete(surplus) };
        }
    }
}

/// Deallocates slabs.
///
/// # Safety
///
/// They are empty, in no list, and not used afterwards.
unsafe fn delete<const N: usize>(slabs: [Option<NonNull<Slab>>; N]) {
    for slab in slabs.into_iter().flatten() {
        // SAFETY: the contract of this function.
        unsafe { Slab::delete(slab) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const BURST: usize = 3 * KEPT;

    /// Takes and returns the slabs of a burst.
    fn burst(depot: &Depot, heap: &Heap, now: Instant) {
        let slabs: Vec<_> = (0..BURST)
            .map(|_| depot.take(0, heap).expect("there is memory for a few slabs"))
            .collect();
        for slab in slabs {
            // SAFETY: no slot was taken from the slab, which the test owns.
            unsafe { depot.put_empty_at(now, slab) };
        }
    }

    #[test]
    fn the_slabs_of_a_burst_are_kept_for_the_next_and_deallocated_after_a_rest() {
        let (depot, heap, begin) = (Depot::new(), Heap::new(), Instant::now());
        for round in 0..10 {
            burst(&depot, &heap, begin + round * REST);
            assert_eq!(depot.slabs(), BURST, "round {round}");
        }
        let end = begin + 10 * REST;
        // The period with the last burst ends. In the next one, no slab is needed.
        assert!(depot.tidy(end));
        assert!(depot.tidy(end + REST / 2));
        assert_eq!(depot.slabs(), BURST);
        assert!(!depot.tidy(end + REST));
        assert_eq!(depot.slabs(), KEPT);
        assert!(!depot.tidy(end + 2 * REST));
        assert_eq!(depot.slabs(), KEPT);
        empty(&depot);
    }

    #[test]
    fn a_release_waits_for_no_rest() {
        let (depot, heap) = (Depot::new(), Heap::new());
        burst(&depot, &heap, Instant::now());
        depot.release();
        assert_eq!(depot.slabs(), KEPT);
        empty(&depot);
    }

    #[test]
    fn threads_that_go_on_deallocate_what_an_earlier_burst_has_left() {
        let (depot, heap, mut now) = (Depot::new(), Heap::new(), Instant::now());
        burst(&depot, &heap, now);
        for _ in 0..BURST {
            now += REST;
            let slab = depot.take(0, &heap).expect("one is kept");
            // SAFETY: no slot was taken from the slab, which the test owns.
            unsafe { depot.put_empty_at(now, slab) };
        }
        // One was needed in each period, beside those that are kept at all times.
        assert_eq!(depot.slabs(), KEPT + 1);
        empty(&depot);
    }

    /// Deallocates all slabs, for the leak checkers.
    fn empty(depot: &Depot) {
        let mut slabs = lock(&depot.0);
        while let Some(slab) = slabs.take_empty() {
            // SAFETY: the slab was taken from the list.
            unsafe { Slab::delete(slab) };
        }
    }
}
