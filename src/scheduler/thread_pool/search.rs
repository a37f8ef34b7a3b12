//! The search of a worker without jobs, and its sleep.
//!
//! A searcher looks at all queues of the pool for [`ROUNDS`] rounds, and then sleeps until it is woken. The counts of
//! searchers and sleepers, and why no job is missed, are in `idle/mod.rs`. When a thief naps instead is in `theft.rs`.
//! Which worker a searcher steals from first is random, so that thieves spread.

use core::ptr;
use core::time::Duration;

use super::barrier;
use super::entry::Item;
use super::idle::SleepKind;
use super::seat::Seat;
use super::worker::{Seated, Worker};
use crate::memory;
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use crate::sync::{park, thread};

/// The number of rounds of a search.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 12 };
/// How long the watcher sleeps at a time.
const WATCH: Duration = Duration::from_millis(4);
/// From this round on, a searcher also looks into the slots of others, and yields to other threads between two rounds.
const YIELDING_ROUNDS: u32 = if cfg!(loom) { 1 } else { 8 };

/// The result of [`Seated::idle`].
pub(super) enum Idled {
    /// A job was found.
    Found(Item),
    /// Another thread has the seat.
    Unseated,
    /// The pool has ended.
    Over,
}

impl Seated<'_> {
    /// Takes the oldest item of another worker's ring, or some of its children.
    pub(super) fn steal(self) -> Option<Item> {
        self.others()
            .find_map(|seat| seat.ring.pop_oldest().or_else(|| self.steal_children(seat, 2)))
            .map(|item| self.not_from_slot(item))
    }

    /// Takes up to half of the children of another worker, if it has at least as many as given. Returns the oldest, and
    /// queues the others on this seat.
    fn steal_children(self, seat: &'static Seat, least: usize) -> Option<Item> {
        if seat.children.len() < least {
            return None;
        }
        let (mut first, mut more) = (None, false);
        seat.children.steal(|child| match first {
            None => first = Some(child.into_item()),
            Some(_) => {
                // SAFETY: a `Seated` is the occupant of its seat.
                unsafe { self.seat.children.push(child) };
                more = true;
            }
        });
        if more {
            barrier::full();
            self.wake_another();
        }
        if first.is_some() {
            self.worker.thefts.note(seat);
        }
        first
    }

    fn others(self) -> impl Iterator<Item = &'static Seat> {
        let seats = &self.shared().seats;
        // Marsaglia's xorshift: cheap, and good enough to spread the thieves.
        let mut random = self.worker.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.worker.random.set(random);
        let first = random as usize % seats.len();
        let (before, after) = seats.split_at(first);
        let own = ptr::from_ref(self.seat);
        after.iter().chain(before).filter(move |seat| !ptr::eq(*seat, own))
    }

    /// Searches for a job, then sleeps until there is one. `searching` says that the worker was just given the seat,
    /// and so counts as a searcher already.
    #[cold]
    pub(super) fn idle(self, searching: bool) -> Idled {
        let idle = &self.shared().idle.0;
        let mut given = searching;
        let mut nap = if searching {
            None
        } else {
            self.worker.thefts.needs_nap()
        };
        let mut searching = searching || nap.is_none() && idle.try_search(self.shared().seats.len());
        loop {
            if searching {
                // The queues of a seat that this thread was just given come first.
                let own = if given { self.pick() } else { None };
                if let Some(item) = own.or_else(|| self.search()) {
                    self.stop_searching();
                    return Idled::Found(item);
                }
            }
            let tenure = self.seat.tenure.load(Relaxed);
            if !self.sleep(searching, nap.take()) {
                return Idled::Unseated;
            }
            searching = true;
            // The thread may have lost the seat in its sleep, and been given the same seat again.
            given = self.seat.tenure.load(Relaxed) != tenure;
            if idle.is_over() {
                self.stop_searching();
                return Idled::Over;
            }
        }
    }

    /// Makes the searcher a running worker. Wakes another searcher if there is more work.
    pub(super) fn stop_searching(self) {
        self.shared().idle.0.watch_no_more(self.seat);
        self.shared().pass_search_on();
    }

    pub(super) fn search(self) -> Option<Item> {
        // Work comes from the reactor as well, so a short look at the queues suffices.
        let first = if self.worker.reactor.is_some() { ROUNDS - 1 } else { 0 };
        for round in first..ROUNDS {
            let item = if self.shared().injector.occupied().is_empty() {
                self.steal()
            } else {
                self.pick()
            };
            let patient = round + 1 >= YIELDING_ROUNDS;
            if let Some(item) = item.or_else(|| if patient { self.steal_from_slot() } else { None }) {
                return Some(item);
            }
            if first != 0 {
                break;
            }
            // In `loom`, a yield waits until all other threads are stuck, and so hides the schedules of interest.
            if cfg!(loom) {
                continue;
            }
            if patient {
                thread::yield_now();
            } else {
                for _ in 0..1 << round {
                    core::hint::spin_loop();
                }
            }
        }
        None
    }

    /// Takes the entry in the slot of another worker that has been busy for a while, or its only child.
    fn steal_from_slot(self) -> Option<Item> {
        let kept = |seat: &'static Seat| {
            let slot = seat.slot.peek();
            if slot.is_none() && seat.children.len() == 0 || !is_neglected(seat) {
                return None;
            }
            slot.filter(|&item| seat.slot.take(item))
                .or_else(|| self.steal_children(seat, 1))
        };
        self.others().find_map(kept).map(|item| self.not_from_slot(item))
    }

    fn finds_neglected_slot(self) -> bool {
        self.others().any(|seat| seat.keeps_items() && is_neglected(seat))
    }

    /// Sleeps until the worker is woken as a searcher, or until its nap is over. Returns `false` if another thread has
    /// the seat.
    fn sleep(self, searched: bool, nap: Option<Duration>) -> bool {
        let is_seated = self.sleep_or_nap(searched, nap);
        if !is_seated && nap.is_some() {
            self.shared().pass_nap_on();
        }
        is_seated
    }

    /// Does what [`sleep`](Seated::sleep) does. The nap, if any, is over when this returns.
    fn sleep_or_nap(self, searched: bool, nap: Option<Duration>) -> bool {
        let shared = self.shared();
        let idle = &shared.idle.0;
        let (seat, record) = (self.seat, self.worker.record);
        let rest = idle.lie_down(seat, searched);
        let _napping = nap.map(|_| idle.nap(shared.is_light()));
        // From here on a thread that adds a job may wake this one. Jobs that were added before must be seen now.
        if shared.has_work_at_rest(nap.is_none()) || rest == SleepKind::Last && !Worker::leave(|| shared.end()) {
            return idle.get_up(seat, record);
        }
        let mut attendance = if nap.is_none() { self.worker.attend() } else { None };
        loop {
            // In this order: if the flag was set for a new occupant of the seat, the record already says so.
            let woken = seat.woken.load(Acquire);
            let own = record.seat() == Some(seat.index);
            if woken || !own {
                return own;
            }
            if nap.is_some() {
                park(nap);
                return idle.get_up(seat, record);
            }
            let watches = idle.watches(seat);
            // A worker that rests for long frees memory that no task needs.
            let limit = if watches { Some(WATCH) } else { memory::tidy() };
            match &mut attendance {
                Some(attendance) => attendance.wait(limit),
                None => park(limit),
            }
            if watches && self.finds_neglected_slot() {
                return idle.get_up(seat, record);
            }
        }
    }
}

/// Returns whether the occupant makes no progress for a short while.
fn is_neglected(seat: &Seat) -> bool {
    let picks = seat.picks.load(Relaxed);
    for _ in 0..64 {
        core::hint::spin_loop();
    }
    seat.picks.load(Relaxed) == picks
}
