//! How a worker blocks: it gives its seat away where there is work to do on it, and parks.
//!
//! A worker that waits in the middle of a job never runs the jobs of others meanwhile: one of them might wait for what
//! comes later on the same stack. While the queues of the pool are empty it holds its seat. Where there is a job its seat
//! goes to a spare thread, and it goes on without a seat when the wait is over. The states are in `seat.rs`.

use super::idle::{Resumed, Stuck};
use super::seat::{Seat, ThreadRecord};
use super::shared::PoolShared;
use super::worker::{Seated, Worker};
use crate::sync::atomic::Ordering::Acquire;

/// How often a worker looks for the end of a wait before it parks. Each look takes twice as long as the one before.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };

impl Worker {
    /// Looks for the end of a wait, for a microsecond or so: to park, and to give a seat away, costs more. Not where jobs
    /// wait in the queues of the worker, which are first in line for it.
    pub(crate) fn look(&self, done: impl Fn() -> bool) -> bool {
        for look in 0..LOOKS {
            if done() {
                return true;
            }
            if self.seated().is_none_or(|seated| seated.seat.has_items()) {
                return false;
            }
            for _ in 0..1 << look {
                core::hint::spin_loop();
            }
        }
        done()
    }

    /// Blocks until `done`. `nap` parks the thread, or does not.
    ///
    /// A thread that makes `done` true must then unpark this one, unless `done` was not asked since. Neither function may
    /// run a user's code.
    pub(crate) fn block_until(&self, done: impl Fn() -> bool, nap: impl Fn()) {
        if done() {
            return;
        }
        let Some(seated) = self.seated() else {
            while !done() {
                nap();
            }
            return;
        };
        seated.hold();
        while !done() {
            if !seated.answer() {
                nap();
            }
        }
        self.resume(seated.seat);
    }

    /// Runs a function that blocks in a way of its own, and no user's code. The seat is given away before, if it can be.
    pub(crate) fn while_blocked<T>(&self, function: impl FnOnce() -> T) -> T {
        let Some(seated) = self.seated() else {
            return function();
        };
        seated.hand_over(false);
        let result = function();
        self.resume(seated.seat);
        result
    }

    /// Goes on after a wait that began on this seat: with the seat, or another, or none.
    fn resume(&self, seat: &'static Seat) {
        if self.sits_on(seat) {
            match self.shared.idle.0.resume(seat, self.record) {
                Resumed::Unseated => self.stand_up(),
                Resumed::Seated => {}
                Resumed::Searching => self.shared.pass_search_on(),
            }
        }
        self.finds_seat();
    }

    /// Takes the seat of a thread that sleeps. The caller has none, and is in the middle of a job.
    #[cold]
    pub(super) fn take_asleep(&self) -> bool {
        match self.shared.idle.0.take_asleep(&self.shared.seats, self.record) {
            Some(index) => {
                self.sit_down(index);
                true
            }
            None => false,
        }
    }
}

impl Seated<'_> {
    /// Holds the seat while there is nothing to do, and else hands it over. The caller blocks.
    fn hold(self) {
        let shared = self.worker.shared;
        if self.seat.has_items() || shared.has_work() {
            return self.hand_over(false);
        }
        shared.idle.0.hold(self.seat);
        // What was added before the seat was on the list must be seen now.
        if shared.has_work() && shared.idle.0.get_up(self.seat, self.worker.record) {
            self.hand_over(true);
        }
    }

    /// Hands over a seat that was held, if it was woken for a job and no spare thread was parked to take it.
    fn answer(self) -> bool {
        // In this order: if the seat was woken for another thread, the record says so.
        let woken = self.worker.sits_on(self.seat)
            && self.seat.woken.load(Acquire)
            && self.worker.record.seat() == Some(self.seat.index);
        if woken {
            self.hand_over(true);
        }
        woken
    }

    /// Gives the seat to a spare thread, or has it wait for one. `searched`: the caller counts as a searcher.
    fn hand_over(self, searched: bool) {
        let idle = &self.worker.shared.idle.0;
        let spare = idle.give_to_spare(self.seat, searched);
        if let Some(spare) = spare.or_else(|| self.stick(searched)) {
            self.worker.stand_up();
            spare.unpark();
        }
    }

    /// Starts a spare thread, for which the seat waits. Where there is none to be had, the seat waits for any thread that has
    /// no job. Returns a spare thread that has come meanwhile, and has the seat.
    #[cold]
    fn stick(self, searched: bool) -> Option<&'static ThreadRecord> {
        let (seat, shared) = (self.seat, self.worker.shared);
        let idle = &shared.idle.0;
        let start = match idle.stick(seat, searched, true) {
            Stuck::Given(spare) => return Some(spare),
            Stuck::Waits { start } => start,
        };
        if searched {
            shared.pass_search_on();
        }
        if start {
            if shared.start_spare(seat.index, self.worker.generation) {
                return None;
            }
            idle.not_started();
        }
        // The slot is first in line for this thread alone. In the ring all find it, unless the seat is taken already.
        if idle.resume(seat, self.worker.record) != Resumed::Seated {
            return None;
        }
        if let Some(item) = self.empty_slot() {
            self.push_displaced(item);
        }
        match idle.stick(seat, false, false) {
            Stuck::Given(spare) => Some(spare),
            Stuck::Waits { .. } => None,
        }
    }
}

impl PoolShared {
    /// Makes a searcher a running thread. Another one takes over, if there is more to do.
    pub(super) fn pass_search_on(&self) {
        let idle = &self.idle.0;
        if idle.found() && (self.has_work() || !idle.is_watched() && self.has_full_slots()) {
            idle.wake(&self.seats);
        }
    }
}
