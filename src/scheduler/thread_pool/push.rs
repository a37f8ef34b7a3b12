//! The queueing of jobs on a worker's own seat: slot, ring and children.
//!
//! All functions need a [`Seated`], so the caller owns the seat's queues. A job is published before `wake_another`
//! reads the idle state. That is the pushing half of the protocol in `idle/mod.rs`.

use core::ptr::NonNull;

use super::barrier;
use super::entry::{EntryKind, EntryPlace, Item, OwnedEntry};
use super::worker::Seated;
use crate::Job;
use crate::sender::current;

impl Seated<'_> {
    /// Queues an entry of the default level.
    #[inline]
    pub(super) fn push(self, entry: OwnedEntry) {
        match entry.get().kind() {
            EntryKind::Branch => {
                if current::frame().is_null() {
                    entry.get().set_kind(EntryKind::Plain);
                }
                self.push_into_slot(entry, true);
            }
            EntryKind::Plain | EntryKind::Scoped => self.push_into_slot(entry, true),
            EntryKind::Child => self.push_child(entry),
            EntryKind::Parent => self.push_parent(entry),
        }
    }

    /// Queues an entry in the slot. `runs_next` says that the worker runs it before the children.
    ///
    /// A previous entry of the slot moves to the ring, where it is worth waking another worker. For the slot alone,
    /// others are woken exponentially less often while the worker keeps emptying it itself. For an entry that does not run
    /// next they are not woken at all if a sleeper watches.
    #[inline(always)]
    fn push_into_slot(self, entry: OwnedEntry, runs_next: bool) {
        entry.get().set_place(EntryPlace::Slot(self.seat.index));
        // SAFETY: a `Seated` is the occupant of its seat.
        match unsafe { self.seat.slot.replace(Some(entry.into_queued())) } {
            Some(item) => self.push_displaced(item),
            None => self.wake_for_slot(runs_next),
        }
    }

    /// Wakes another worker for the entry that was just put into the slot, or beneath others, if it is due.
    #[inline(always)]
    fn wake_for_slot(self, runs_next: bool) {
        let idle = &self.shared().idle.0;
        if self.shared().is_light() {
            // Pairs with the heavy barrier of a thread that has ended the watch.
            barrier::light();
            if idle.seems_busy() {
                return;
            }
        }
        let run = self.worker.turns.from_slot.get();
        let is_due = runs_next && (run == 0 || run.is_power_of_two());
        if !is_due && self.shared().is_light() && idle.is_watched() {
            return;
        }
        // Pairs with the state changes of searchers, and with the end of the watch.
        barrier::full();
        if is_due || !idle.is_watched() {
            self.wake_another();
        }
    }

    /// Queues a child of the default level among the children.
    ///
    /// A single child is like the entry of a slot: the worker likely runs it itself, and another one is woken
    /// exponentially less often. For the second child it is worth waking another worker.
    ///
    /// Not inlined, so that the push of other entries stays short.
    #[inline(never)]
    fn push_child(self, child: OwnedEntry) {
        // SAFETY: a `Seated` is the occupant of its seat.
        match unsafe { self.seat.children.push_at_once(child) } {
            Ok(1) => self.wake_for_child(1),
            Ok(count) => {
                if !self.others_are_busy() {
                    self.wake_for_child(count);
                }
            }
            Err(child) => self.push_child_slowly(child),
        }
    }

    /// Queues a child when the lock of the children is not biased, or their array is full.
    #[cold]
    #[inline(never)]
    fn push_child_slowly(self, child: OwnedEntry) {
        // SAFETY: a `Seated` is the occupant of its seat.
        let count = unsafe { self.seat.children.push(child) };
        self.wake_for_child(count);
    }

    /// Returns whether no other worker rests or naps. If it returns `false`, the caller asks again, with the full barrier.
    #[inline(always)]
    fn others_are_busy(self) -> bool {
        if !self.shared().is_light() {
            return false;
        }
        // Pairs with the heavy barriers of a worker that comes to rest, and of one that ends its nap.
        barrier::light();
        let idle = &self.shared().idle.0;
        idle.seems_busy() || idle.seems_to_nap()
    }

    /// Wakes another worker for the child that was just queued as one of so many, if it is due.
    #[inline(never)]
    fn wake_for_child(self, count: usize) {
        if count == 1 {
            let run = self.worker.turns.newer.get();
            if run != 0 && !run.is_power_of_two() {
                // Pairs with the barrier of a thread that has ended the watch.
                if self.shared().is_light() {
                    barrier::light();
                } else {
                    barrier::full();
                }
                if self.shared().idle.0.is_watched() {
                    return;
                }
            }
        }
        if self.others_are_busy() {
            return;
        }
        // Pairs with the state changes of searchers, and with the end of a nap.
        barrier::full();
        if !self.shared().idle.0.has_nap() {
            self.wake_another();
        }
    }

    /// Queues a task that waited for its children, one of which has just ended here.
    ///
    /// A task with few children goes beneath them: it runs once for all their results. One with many goes into the slot, from which it
    /// is taken after [`NEWER_RUNS`](super::pick) children, while their frames are in the caches.
    ///
    /// If the child was stolen, and others are on the seat where the task ran last, it goes there: it takes their results where they
    /// run, so that their frames stay in the caches of one core.
    #[inline(never)]
    fn push_parent(self, parent: OwnedEntry) {
        let last = parent.get().last_seat().filter(|&last| last != self.seat.index);
        let pushed = match last.and_then(|last| self.shared().seats.get(last)) {
            Some(seat) => seat.children.push_from_outside(parent),
            None => {
                let many = parent.get().queued_children();
                // SAFETY: a `Seated` is the occupant of its seat.
                let pushed = unsafe { self.seat.children.push_beneath(parent, many) };
                if pushed.is_ok() {
                    return self.wake_for_slot(false);
                }
                pushed
            }
        };
        if let Err(parent) = pushed {
            return self.push_into_slot(parent, false);
        }
        // The occupant takes it next, unless its job takes long.
        barrier::full();
        if !self.shared().idle.0.has_nap() {
            self.wake_another();
        }
    }

    /// Queues an entry of the default level behind all jobs of this seat.
    pub(super) fn push_last(self, entry: OwnedEntry) {
        match self.empty_slot() {
            Some(item) => self.push_displaced(item),
            // With no other job on the seat, the slot is the cheapest place.
            None if !self.seat.ring.has_items() && self.seat.children.len() == 0 => return self.push(entry),
            None => {}
        }
        self.push_behind_others(entry);
    }

    /// Queues an item behind others that have waited while it was in the slot again and again.
    pub(super) fn push_behind(self, item: Item) {
        if item.is_branch()
            && let Some(entry) = item.as_entry()
        {
            // SAFETY: the item was taken out of the slot, so the caller owns the entry.
            return self.push_behind_others(unsafe { OwnedEntry::new(entry) });
        }
        self.push_displaced(item);
    }

    /// Moves an item that was in the slot to the ring. A task that waits for its children remains near them.
    pub(super) fn push_displaced(self, item: Item) {
        let Some(entry) = item.as_entry() else { return };
        // SAFETY: the item was taken out of the slot, so the caller owns the entry until it is queued again.
        let entry = unsafe { OwnedEntry::new(entry) };
        if item.is_parent() {
            return self.push_child(entry);
        }
        self.push_into_ring(entry);
    }

    /// Queues an entry in the ring, where it precedes no other one.
    pub(super) fn push_behind_others(self, entry: OwnedEntry) {
        entry.get().set_kind(EntryKind::Plain);
        self.push_into_ring(entry);
    }

    /// Queues an entry in the ring, or in the injector if that is full.
    fn push_into_ring(self, entry: OwnedEntry) {
        let ring = &self.seat.ring;
        entry
            .get()
            .set_place(EntryPlace::Ring(self.seat.index, ring.next_number()));
        // With the bits of its kind: a thread that raises the entry looks for that item.
        if ring.push(entry.item(), true).is_some() {
            self.wake_another();
        } else {
            let pushed = self.shared().inject(entry, self.worker.generation);
            debug_assert!(pushed.is_ok(), "a pool does not end before its workers do");
        }
    }

    /// Offers a job that its owner waits for to idle workers, and returns its number. Returns `None` if the ring is
    /// full; the caller then runs it.
    ///
    /// The pusher of a fork takes it back later. So, unlike for entries, a missed wake-up is harmless.
    ///
    /// # Safety
    ///
    /// The job is in no list, and stays valid at its address until it runs or is taken back. The owner of the seat
    /// takes it back with [`Ring::take_back_fork`](super::ring::Ring::take_back_fork). A thread that has lost the seat
    /// uses [`Ring::remove`](super::ring::Ring::remove).
    #[inline]
    pub(super) unsafe fn fork(self, job: NonNull<Job>) -> Option<usize> {
        let number = self.seat.ring.push(Item::fork(job), false)?;
        self.wake_another();
        Some(number)
    }
}
