//! The thread of a pool: its seat, its identity, and its main loop.
//!
//! [`Worker`] is the thread's own state; no other thread accesses it. Other threads reach it through its
//! [`ThreadRecord`] and, while it has one, its [`Seat`]. [`Seated`] is the proof that the worker has a seat, and so
//! owns that seat's queues. Its functions are in `push.rs`, `pick.rs` and `search.rs`; `block.rs` says how a worker
//! blocks.
//!
//! # Invariants
//!
//! - A running worker keeps its seat. Other threads take a seat only while its occupant sleeps or blocks, under the
//!   lock of [`Idle`](super::idle::Idle).
//! - A [`Seated`] is valid until the thread may have blocked, that is, until user code has run. It is created anew
//!   after that.
//! - The thread-local pointer to the worker is set only while [`Worker::enter`] runs.
//!
//! # Callers
//!
//! `builder.rs` and `spare.rs` start the threads. Scheduling, `join`, scopes and run loops find the worker of their
//! thread with [`Worker::current`].

use core::cell::Cell;
use core::ptr;
use std::sync::Arc;

use super::entry::Item;
use super::pick::Turns;
use super::reactor::Reactor;
use super::schedule::PoolScheduler;
use super::search::Idled;
use super::seat::{Seat, ThreadRecord};
use super::shared::PoolShared;
use super::theft::Thefts;
use crate::sender::current;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{park, per_thread};

per_thread! {
    /// The worker of this thread, or null.
    static CURRENT: Cell<*const Worker> = Cell::new(ptr::null());
}

/// A busy worker looks for events of the reactor after so many jobs.
const EVENTS_EVERY: u32 = 64;

/// A thread of a pool. Only the thread itself accesses this.
pub(crate) struct Worker {
    pub(super) shared: &'static PoolShared,
    pub(super) generation: u32,
    /// The state through which other threads reach this one.
    pub(super) record: &'static ThreadRecord,
    /// The seat of this thread. Other threads take it only while this thread sleeps or blocks, and the thread checks
    /// its record before it runs a job again.
    seat: Cell<Option<&'static Seat>>,
    /// The index of the current or last seat.
    index: Cell<usize>,
    /// Whether the thread counts as one without a seat, in the middle of a job.
    unseated: Cell<bool>,
    /// The counters that decide which queue is next.
    pub(super) turns: Turns,
    /// The state of the random numbers that choose the first victim of a search.
    pub(super) random: Cell<u32>,
    /// The thread's thefts of children.
    pub(super) thefts: Thefts,
    /// Whether the thread drives a run loop. Work that completes now completes on that loop, not on the pool.
    away: Cell<bool>,
    /// What the thread waits in while it sleeps, if no other worker does: see `reactor.rs`.
    pub(super) reactor: Option<Arc<dyn Reactor>>,
}

/// Proof that a worker has a seat. Grants the operations of a queue's owner.
///
/// Created by [`Worker::seated`]. Invalid after user code has run, because that may block.
#[derive(Clone, Copy)]
pub(super) struct Seated<'a> {
    pub(super) worker: &'a Worker,
    pub(super) seat: &'static Seat,
}

impl Worker {
    /// Creates the worker of a thread that starts with a seat.
    pub(super) fn new(
        shared: &'static PoolShared,
        generation: u32,
        index: usize,
        reactor: Option<Arc<dyn Reactor>>,
    ) -> Self {
        let worker = Worker::spare(shared, generation, &shared.seats[index].first, index, reactor);
        worker.sit_down(index);
        worker
    }

    /// Creates the worker of a spare thread, which counts as one without a seat. `number` is unique within the pool.
    pub(super) fn spare(
        shared: &'static PoolShared,
        generation: u32,
        record: &'static ThreadRecord,
        number: usize,
        reactor: Option<Arc<dyn Reactor>>,
    ) -> Self {
        Worker {
            shared,
            generation,
            record,
            seat: Cell::new(None),
            index: Cell::new(0),
            unseated: Cell::new(true),
            turns: Turns::default(),
            // Any seed but 0 works. A different one for each worker spreads the thieves.
            random: Cell::new((number as u32).wrapping_mul(0x9E37_79B9) | 1),
            thefts: Thefts::default(),
            away: Cell::new(false),
            reactor,
        }
    }

    /// Returns the worker of the calling thread, with or without a seat.
    ///
    /// The result must not leave the thread: the worker lives on the thread's stack. It is not `Sync`.
    #[inline]
    pub(crate) fn current<'a>() -> Option<&'a Worker> {
        // SAFETY: `enter` sets the pointer to a worker that outlives all code that runs in it, and resets it
        // afterwards.
        unsafe { CURRENT.with(Cell::get).as_ref() }
    }

    /// Returns the worker of the calling thread if it runs the pool's work, and has a seat or can take one.
    #[inline]
    pub(crate) fn at_work<'a>() -> Option<&'a Worker> {
        Worker::current().filter(|worker| !worker.away.get() && worker.finds_seat())
    }

    /// Marks the calling thread as driving a run loop, until the result is dropped. Jobs of the pool that it runs
    /// meanwhile reset the mark.
    #[inline]
    pub(crate) fn step_away<'a>() -> Away<'a> {
        let worker = Worker::current();
        Away {
            worker,
            before: worker.is_some_and(|worker| worker.away.replace(true)),
        }
    }

    /// Returns the worker with its seat. Valid until the thread may have blocked.
    #[inline]
    pub(super) fn seated(&self) -> Option<Seated<'_>> {
        self.seat.get().map(|seat| Seated { worker: self, seat })
    }

    /// Returns whether the worker has a seat, or could take the seat of a sleeping thread.
    #[inline]
    pub(super) fn finds_seat(&self) -> bool {
        self.seat.get().is_some() || self.take_asleep()
    }

    /// Returns whether the worker has this seat.
    #[inline]
    pub(super) fn sits_on(&self, seat: &'static Seat) -> bool {
        self.seat.get().is_some_and(|own| ptr::eq(own, seat))
    }

    /// Returns whether this is a worker of the given pool. The memory alone does not identify a pool, since it is
    /// reused.
    #[inline]
    pub(super) fn works_for(&self, shared: &'static PoolShared, generation: u32) -> bool {
        ptr::eq(self.shared, shared) && self.generation == generation
    }

    /// Returns the scheduler of the pool.
    pub(super) fn scheduler(&self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// Returns the identity of the pool: see [`Scheduler::place`](crate::Scheduler).
    pub(crate) fn place(&self) -> usize {
        ptr::from_ref(self.shared).addr()
    }

    /// Returns the index of the current or last seat.
    pub(super) fn index(&self) -> usize {
        self.index.get()
    }

    /// Returns the number of seats of the pool.
    pub(crate) fn crew(&self) -> usize {
        self.shared.seats.len()
    }

    /// Runs jobs until the pool ends.
    pub(super) fn run(&self) {
        self.enter(|| {
            let mut jobs = 0_u32;
            while let Some(item) = self.next() {
                // SAFETY: `next` took the item out of a queue, and it runs once.
                unsafe { item.run(self.index()) }.run_here();
                if self.reactor.is_some() {
                    jobs = jobs.wrapping_add(1);
                    if jobs.is_multiple_of(EVENTS_EVERY) {
                        self.poll_events();
                    }
                }
            }
        });
    }

    /// Makes the calling thread this worker while `body` runs. `body` does not unwind.
    pub(super) fn enter(&self, body: impl FnOnce()) {
        // The thread works for no task from here on, whatever it was doing: `ThreadPoolBuilder::around` is user code.
        let _hidden = current::Hidden::driver();
        self.record.occupy();
        CURRENT.with(|current| current.set(self));
        body();
        CURRENT.with(|current| current.set(ptr::null()));
    }

    /// Makes the calling thread foreign to its pool, if it is a worker, while `body` runs. `body` does not unwind.
    ///
    /// The thread keeps its seat, unless it is asleep: `body` cannot pass the seat on.
    pub(super) fn leave<T>(body: impl FnOnce() -> T) -> T {
        let worker = CURRENT.with(|current| current.replace(ptr::null()));
        let result = body();
        CURRENT.with(|current| current.set(worker));
        result
    }

    /// Runs a job of the pool on the stack of a wait.
    ///
    /// # Safety
    ///
    /// The caller took the item out of a queue, and runs it once.
    pub(super) unsafe fn run_on_top(&self, item: Item) {
        let away = self.away.replace(false);
        let _hidden = current::Hidden::driver();
        // SAFETY: the contract of this function.
        unsafe { item.run(self.index()) }.run();
        self.away.set(away);
    }

    /// Returns the next job. Sleeps until there is one. Returns `None` when the pool has ended.
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
                // A thread that is given a seat counts as a searcher.
                searching = true;
                continue;
            };
            match seated.idle(searching) {
                Idled::Found(item) => return Some(item),
                Idled::Over => return None,
                // The thread that took the seat has added this record to the spare threads.
                Idled::Unseated => self.seat.set(None),
            }
            searching = false;
        }
    }

    /// Waits until the thread is given a seat. Returns `false` when the pool has ended.
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

    /// Takes a seat that the thread's record names.
    pub(super) fn sit_down(&self, index: usize) {
        let seat = &self.shared.seats[index];
        self.seat.set(Some(seat));
        self.index.set(index);
        self.unseated.set(false);
        self.turns.begin(seat.picks.load(Relaxed), self.record.is_crowded());
    }

    /// Continues without a seat, in the middle of a job.
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

    /// Wakes another worker, if necessary, for a job that was pushed on this seat.
    #[inline]
    pub(super) fn wake_another(self) {
        self.shared().idle.0.wake(&self.shared().seats);
    }
}

/// Single steps of a worker, for models.
#[cfg(loom)]
impl Worker {
    /// Runs one job of the seat: the newest of the ring, or the one that `pick` returns.
    pub(super) fn run_next(&self, newest: bool) -> bool {
        let Some(seated) = self.seated() else { return false };
        let item = if newest {
            let ring = &seated.seat.ring;
            seated.empty_slot().or_else(|| ring.pop_newest_if(|_| true))
        } else {
            seated.pick()
        };
        // SAFETY: the item was taken out of a queue, and runs once.
        item.map(|item| unsafe { item.run(self.index()) }.run()).is_some()
    }

    /// Runs the job that a searcher finds.
    pub(super) fn run_found(&self) -> bool {
        // SAFETY: the item was taken out of a queue, and runs once.
        self.seated()
            .and_then(Seated::search)
            .map(|item| unsafe { item.run(self.index()) }.run())
            .is_some()
    }
}

/// A mark on a worker that drives a run loop: see [`Worker::step_away`].
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
