//! How a worker without a job of its own searches the queues of others, and sleeps.

use core::ptr;
use core::time::Duration;

use super::entry::Item;
use super::idle::SleepKind;
use super::seat::Seat;
use super::worker::Seated;
use crate::sync::atomic::Ordering::{Acquire, Relaxed};
use crate::sync::{park, thread};

/// How often a searcher looks at everything before it gives up.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 12 };
/// How long the one that watches sleeps at a time.
const WATCH: Duration = Duration::from_millis(4);
/// From this round on a searcher looks into the slots of others, and makes way for other threads between two looks.
const YIELDING_ROUNDS: u32 = if cfg!(loom) { 1 } else { 8 };

/// What became of a worker that had nothing to do.
pub(super) enum Idled {
    /// There is a job.
    Found(Item),
    /// Another thread has the seat.
    Unseated,
    /// The pool has ended.
    Over,
}

impl Seated<'_> {
    /// The oldest of another worker's ring. The first to be asked is a random one, so that thieves spread.
    pub(super) fn steal(self) -> Option<Item> {
        let others = self.others();
        others
            .map(|seat| seat.ring.pop_oldest().or_else(|| self.steal_from_shelf(seat)))
            .find(Option::is_some)
            .flatten()
            .map(|item| self.not_from_slot(item))
    }

    /// All that is on another worker's shelf: the first of it, and the others on this one's.
    fn steal_from_shelf(self, seat: &'static Seat) -> Option<Item> {
        if !seat.shelf.has_items() {
            return None;
        }
        let mut jobs = seat.shelf.take();
        let first = jobs.pop()?;
        if !jobs.is_none() {
            // A worker that steals has nothing of its own.
            let left = self.shelve(jobs);
            debug_assert!(left.is_none(), "the shelf was empty");
        }
        Some(Item::entry(first.cast()))
    }

    fn others(self) -> impl Iterator<Item = &'static Seat> {
        let seats = &self.shared().seats;
        // Marsaglia's xorshift.
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

    /// Searches for a job, then sleeps until there is one. `searching`: the worker was just given the seat, and counts as a
    /// searcher already.
    #[cold]
    pub(super) fn idle(self, searching: bool) -> Idled {
        let idle = &self.shared().idle.0;
        let mut given = searching;
        let mut searching = searching || idle.try_search(self.shared().seats.len());
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
            if !self.sleep(searching) {
                return Idled::Unseated;
            }
            searching = true;
            // It may have lost the seat in its sleep, and been given the same one.
            given = self.seat.tenure.load(Relaxed) != tenure;
            if idle.is_over() {
                self.stop_searching();
                return Idled::Over;
            }
        }
    }

    /// What a searcher does when it has found something: somebody else takes over, if there is more.
    pub(super) fn stop_searching(self) {
        self.shared().idle.0.watch_no_more(self.seat);
        self.shared().pass_search_on();
    }

    pub(super) fn search(self) -> Option<Item> {
        for round in 0..ROUNDS {
            let item = if self.shared().injector.occupied().is_empty() {
                self.steal()
            } else {
                self.pick()
            };
            let patient = round + 1 >= YIELDING_ROUNDS;
            if let Some(item) = item.or_else(|| if patient { self.steal_from_slot() } else { None }) {
                return Some(item);
            }
            // To `loom`, to yield is to wait until all others are stuck, and so to leave out what a model is about.
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

    /// What is in the slot of another worker that is busy with something else for longer than a moment.
    fn steal_from_slot(self) -> Option<Item> {
        self.others().find_map(|seat| {
            let item = neglected(seat)?;
            seat.take_from_slot(item).then(|| self.not_from_slot(item))
        })
    }

    fn finds_neglected_slot(self) -> bool {
        self.others().any(|seat| neglected(seat).is_some())
    }

    /// Sleeps until there is something to do, when the worker is a searcher. `false` when another thread has the seat.
    fn sleep(self, searched: bool) -> bool {
        let shared = self.shared();
        let idle = &shared.idle.0;
        let (seat, record) = (self.seat, self.worker.record);
        let rest = idle.lie_down(seat, searched);
        // From here on whoever adds a job may wake us; what was added before must be seen now.
        if shared.has_work() || rest == SleepKind::Last && !idle.end(&shared.seats, || shared.injector.close()) {
            return idle.get_up(seat, record);
        }
        loop {
            // In this order: if this was set for another thread that has the seat now, the record says so.
            let woken = seat.woken.load(Acquire);
            let own = record.seat() == Some(seat.index);
            if woken || !own {
                return own;
            }
            if idle.watches(seat) {
                park(Some(WATCH));
                if self.finds_neglected_slot() {
                    return idle.get_up(seat, record);
                }
            } else {
                park(None);
            }
        }
    }
}

/// What is in the slot of a worker that does not get to it.
fn neglected(seat: &Seat) -> Option<Item> {
    let item = Item::from_raw(seat.slot.load(Acquire))?;
    let picks = seat.picks.load(Relaxed);
    for _ in 0..64 {
        core::hint::spin_loop();
    }
    (seat.picks.load(Relaxed) == picks).then_some(item)
}
