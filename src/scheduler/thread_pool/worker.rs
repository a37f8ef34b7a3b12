//! A worker: the thread's side of a pool. How it picks its next job, searches, and sleeps. How it blocks is in `block.rs`.

use core::cell::Cell;
use core::ptr;

use super::entry::Item;
use super::pick::Turns;
use super::schedule::PoolScheduler;
use super::search::Idled;
use super::seat::{Seat, ThreadRecord};
use super::shared::PoolShared;
use crate::Transfer;
use crate::sender::current;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{park, per_thread};

per_thread! {
    /// The worker that this thread is.
    static CURRENT: Cell<*const Worker> = Cell::new(ptr::null());
}

/// A thread of a pool: what only the thread itself touches.
///
/// It has a seat, or not: see `seat.rs`. What needs one is in [`Seated`].
pub(crate) struct Worker {
    pub(super) shared: &'static PoolShared,
    pub(super) generation: u32,
    /// This thread, as others reach it.
    pub(super) record: &'static ThreadRecord,
    /// The seat that it has, as far as it knows: others take it only while this thread sleeps or blocks, and it looks again
    /// before it runs anything.
    seat: Cell<Option<&'static Seat>>,
    /// The seat that it has, or had last.
    index: Cell<usize>,
    /// It counts as a thread without a seat in the middle of a job.
    unseated: Cell<bool>,
    /// The counters that decide which queue is next.
    pub(super) turns: Turns,
    /// The state of the random numbers that choose the first victim of a search.
    pub(super) random: Cell<u32>,
    /// The thread drives a run loop, and is not at the pool's work: what completes now, completes on that loop.
    away: Cell<bool>,
}

/// A worker that has a seat: what only the owner of a queue may do.
///
/// It picks by urgency, and the oldest of what is equally urgent; but what was just made ready goes first, and so do
/// the children of a task. A thread that is given its seat while many are blocked begins with what was queued last, so
/// that their waits end before more jobs block. Each queue has its turn all the same: see [`FAIRNESS`].
///
/// To be made anew after anything that may block, which is whatever runs a user's code: see [`Worker::seated`].
#[derive(Clone, Copy)]
pub(super) struct Seated<'a> {
    pub(super) worker: &'a Worker,
    pub(super) seat: &'static Seat,
}

impl Worker {
    /// The thread that is started with a seat.
    pub(super) fn new(shared: &'static PoolShared, generation: u32, index: usize) -> Self {
        let worker = Worker::spare(shared, generation, &shared.seats[index].first, index);
        worker.sit_down(index);
        worker
    }

    /// A thread that is about to be a spare one, and counts as one without a seat. Each thread of a pool has another number.
    pub(super) fn spare(
        shared: &'static PoolShared,
        generation: u32,
        record: &'static ThreadRecord,
        number: usize,
    ) -> Self {
        Worker {
            shared,
            generation,
            record,
            seat: Cell::new(None),
            index: Cell::new(0),
            unseated: Cell::new(true),
            turns: Turns::default(),
            // Any number but 0 will do, and a different one for each.
            random: Cell::new((number as u32).wrapping_mul(0x9E37_79B9) | 1),
            away: Cell::new(false),
        }
    }

    /// The worker that the calling thread is, with a seat or without.
    ///
    /// It is gone when its thread is, so what is returned must not leave the thread: it is not `Sync`.
    #[inline]
    pub(crate) fn current<'a>() -> Option<&'a Worker> {
        // SAFETY: set by `enter` to a worker that outlives what runs in it, and unset at its end.
        unsafe { CURRENT.with(Cell::get).as_ref() }
    }

    /// The worker that the calling thread is, if what runs now is the pool's work, and it has a seat or finds one.
    #[inline]
    pub(crate) fn at_work<'a>() -> Option<&'a Worker> {
        Worker::current().filter(|worker| !worker.away.get() && worker.finds_seat())
    }

    /// Says that the calling thread drives a run loop until what is returned is dropped. What it runs for the pool
    /// meanwhile is the pool's work nevertheless.
    #[inline]
    pub(crate) fn step_away<'a>() -> Away<'a> {
        let worker = Worker::current();
        Away {
            worker,
            before: worker.is_some_and(|worker| worker.away.replace(true)),
        }
    }

    /// The worker with its seat. Valid until the thread may have blocked.
    #[inline]
    pub(super) fn seated(&self) -> Option<Seated<'_>> {
        self.seat.get().map(|seat| Seated { worker: self, seat })
    }

    /// Whether it has a seat, or has found one whose thread sleeps.
    #[inline]
    pub(super) fn finds_seat(&self) -> bool {
        self.seat.get().is_some() || self.take_asleep()
    }

    /// Whether it has this seat.
    #[inline]
    pub(super) fn sits_on(&self, seat: &'static Seat) -> bool {
        self.seat.get().is_some_and(|own| ptr::eq(own, seat))
    }

    /// Whether this is a worker of that pool: the memory alone does not tell, as it is used again.
    #[inline]
    pub(super) fn works_for(&self, shared: &'static PoolShared, generation: u32) -> bool {
        ptr::eq(self.shared, shared) && self.generation == generation
    }

    /// Queues entries that have waited behind one which is about to run here, so that they are next. Returns them where it does not.
    ///
    /// # Safety
    ///
    /// Each job is the first field of an entry that is in no queue, stays where it is until it runs, and is not raised. They are
    /// not none. The calling thread is this worker, which took the other one out of a queue of its pool.
    pub(crate) unsafe fn shelve(&self, jobs: Transfer) -> Transfer {
        match self.seated() {
            Some(seated) => seated.shelve(jobs),
            None => jobs,
        }
    }

    /// The scheduler of the pool.
    pub(super) fn scheduler(&self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// What tells the pool from others: see [`Scheduler::place`](crate::Scheduler).
    pub(crate) fn place(&self) -> usize {
        ptr::from_ref(self.shared).addr()
    }

    /// The index of the seat that it has, or had last.
    pub(super) fn index(&self) -> usize {
        self.index.get()
    }

    /// How many seats the pool has.
    pub(crate) fn crew(&self) -> usize {
        self.shared.seats.len()
    }

    /// Runs jobs until the pool ends.
    pub(super) fn run(&self) {
        self.enter(|| {
            while let Some(item) = self.next() {
                // SAFETY: it was taken out of a queue.
                unsafe { item.run() };
            }
        });
    }

    /// Makes the calling thread this worker while `body` runs, which does not unwind.
    pub(super) fn enter(&self, body: impl FnOnce()) {
        self.record.occupy();
        CURRENT.with(|current| current.set(self));
        body();
        CURRENT.with(|current| current.set(ptr::null()));
    }

    /// Runs a job of the pool on top of something that waits for it.
    ///
    /// # Safety
    ///
    /// The item was taken out of a queue by the caller, who runs it this one time.
    pub(super) unsafe fn run_on_top(&self, item: Item) {
        let away = self.away.replace(false);
        let _hidden = current::Hidden::driver();
        // SAFETY: the caller's promise.
        unsafe { item.run() };
        self.away.set(away);
    }

    /// The next job to run; sleeps until there is one. `None` when the pool has ended.
    #[inline]
    fn next(&self) -> Option<Item> {
        match self.seated().and_then(Seated::pick) {
            Some(item) => Some(item),
            None => self.next_slowly(),
        }
    }

    #[cold]
    fn next_slowly(&self) -> Option<Item> {
        let mut searching = false;
        loop {
            let Some(seated) = self.seated() else {
                if !self.waits_for_seat() {
                    return None;
                }
                // A seat is given to a searcher.
                searching = true;
                continue;
            };
            match seated.idle(searching) {
                Idled::Found(item) => return Some(item),
                Idled::Over => return None,
                // Its record is among the spares already.
                Idled::Unseated => self.seat.set(None),
            }
            searching = false;
        }
    }

    /// Waits until it is given a seat. `false` when the pool has ended.
    fn waits_for_seat(&self) -> bool {
        let idle = &self.shared.idle.0;
        if self.unseated.replace(false) {
            idle.job_is_over(&self.shared.seats, self.record);
        }
        loop {
            if let Some(index) = self.record.seat() {
                self.sit_down(index);
                return true;
            }
            if idle.is_over() {
                return false;
            }
            park(None);
        }
    }

    /// Goes on with this seat, which is its own.
    pub(super) fn sit_down(&self, index: usize) {
        let seat = &self.shared.seats[index];
        self.seat.set(Some(seat));
        self.index.set(index);
        self.unseated.set(false);
        self.turns.begin(seat.picks.load(Relaxed), self.record.is_crowded());
    }

    /// Goes on without a seat, in the middle of a job.
    pub(super) fn stand_up(&self) {
        self.seat.set(None);
        self.unseated.set(true);
    }
}

impl Seated<'_> {
    #[inline]
    pub(super) fn shared(self) -> &'static PoolShared {
        self.worker.shared
    }

    /// Wakes another worker, if need be, for what was pushed into the ring.
    #[inline]
    pub(super) fn wake_another(self) {
        self.shared().idle.0.wake(&self.shared().seats);
    }
}

/// Steps of a worker, one at a time.
#[cfg(loom)]
impl Worker {
    /// Runs what is there to be run, without looking for it: the newest of the ring, or what a worker would pick.
    pub(super) fn run_next(&self, newest: bool) -> bool {
        let Some(seated) = self.seated() else { return false };
        let item = if newest {
            let ring = &seated.seat.ring;
            seated.empty_slot().or_else(|| ring.pop_newest_if(|_| true))
        } else {
            seated.pick()
        };
        // SAFETY: it is taken out of a queue.
        item.map(|item| unsafe { item.run() }).is_some()
    }

    /// Runs what a searcher finds.
    pub(super) fn run_found(&self) -> bool {
        // SAFETY: it is taken out of a queue.
        self.seated()
            .and_then(Seated::search)
            .map(|item| unsafe { item.run() })
            .is_some()
    }
}

/// A thread that drives a run loop, and is not at the work of its pool if it is a worker: see [`Worker::step_away`].
#[must_use = "it is for as long as this is there"]
pub(crate) struct Away<'a> {
    worker: Option<&'a Worker>,
    before: bool,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker {
            worker.away.set(self.before);
        }
    }
}
