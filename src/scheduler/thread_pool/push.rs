//! How a worker queues jobs on its own seat.

use core::ptr::NonNull;

use super::entry::{Entry, EntryPlace, Item};
use super::worker::Seated;
use crate::sync::atomic::Ordering::SeqCst;
use crate::{Job, Transfer};

impl Seated<'_> {
    /// Queues an entry of the default level with this worker.
    ///
    /// It goes into the slot; what was there goes into the ring, where it is worth waking somebody for. For the slot
    /// alone, others are woken less and less often while the worker itself is quick to take it.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs. It may have run when this returns.
    #[inline]
    pub(super) unsafe fn push(self, entry: NonNull<Entry>) {
        // SAFETY: the caller's promise.
        let item = unsafe {
            entry.as_ref().set_place(EntryPlace::Slot(self.seat.index));
            Item::queued(entry)
        };
        let displaced = self.seat.slot.swap(item.into_raw(), SeqCst);
        match Item::from_raw(displaced) {
            Some(item) => self.push_displaced(item),
            None => {
                let run = self.worker.turns.from_slot.get();
                if run == 0 || run.is_power_of_two() || !self.shared().idle.0.is_watched() {
                    self.wake_another();
                }
            }
        }
    }

    /// Queues an entry of the default level with this worker, behind what is queued there.
    ///
    /// # Safety
    ///
    /// As for [`Seated::push`].
    pub(super) unsafe fn push_last(self, entry: NonNull<Entry>) {
        match self.empty_slot() {
            Some(item) => self.push_displaced(item),
            // With nothing to get behind, the slot is the cheapest place.
            // SAFETY: the caller's promise.
            None if !self.seat.ring.has_items() => return unsafe { self.push(entry) },
            None => {}
        }
        self.push_displaced(Item::entry(entry));
    }

    /// Puts what was in the slot into the ring.
    pub(super) fn push_displaced(self, item: Item) {
        let Some(entry) = item.as_entry() else { return };
        let ring = &self.seat.ring;
        // SAFETY: it was taken out of the slot, so the caller has exclusive access until it is queued.
        unsafe { entry.as_ref() }.set_place(EntryPlace::Ring(self.seat.index, ring.next_number()));
        if ring.push(item, true).is_some() {
            self.wake_another();
        } else {
            // SAFETY: the entry was taken out of the slot, and is in no queue.
            let pushed = unsafe { self.shared().inject(entry, self.worker.generation) };
            debug_assert!(pushed.is_ok(), "a pool does not end before its workers do");
        }
    }

    /// Puts entries that were handed over together on the shelf, to be run next, where others can take them. Returns them where
    /// there is no room.
    pub(super) fn shelve(self, jobs: Transfer) -> Transfer {
        if !self.seat.shelf.is_empty() {
            return jobs;
        }
        self.seat.shelf.fill(jobs);
        self.wake_another();
        Transfer::none()
    }

    /// Offers a job that its owner waits for to idle workers, and returns its number. `None` when there is no room: the
    /// caller runs it.
    ///
    /// Unlike entries, forks are taken back by their pusher, so it does not matter if once in a while no worker is woken.
    ///
    /// # Safety
    ///
    /// The job is in no list, and stays where it is until it runs, or is taken back: with
    /// [`Ring::take_back_fork`](super::ring::Ring::take_back_fork) or, by a thread that has lost the seat, with
    /// [`Ring::remove`](super::ring::Ring::remove).
    #[inline]
    pub(super) unsafe fn fork(self, job: NonNull<Job>) -> Option<usize> {
        let number = self.seat.ring.push(Item::fork(job), false)?;
        self.wake_another();
        Some(number)
    }
}
