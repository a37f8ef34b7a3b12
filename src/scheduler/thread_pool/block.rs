//! The blocking of a worker in the middle of a job.
//!
//! A worker that waits never runs other jobs meanwhile: one of them might wait for a job further down the same stack.
//! While all queues are empty, it holds its seat. As soon as there is a job, its seat passes to a spare thread. After
//! its wait it continues without a seat, or takes the seat of a sleeper. The states are in `seat.rs`.
//!
//! # Callers
//!
//! [`Worker::block_until`] is the wait of run loops, of `join` and scopes, and of the drop of another pool.
//! [`Worker::while_blocked`] is for waits that cannot be interrupted by an unpark, such as a lock.

use super::barrier;
use super::entry::{Item, OwnedEntry};
use super::idle::{Reseated, Stuck};
use super::seat::{Seat, ThreadRecord};
use super::shared::PoolShared;
use super::worker::{Seated, Worker};
use crate::sync::atomic::Ordering::Acquire;
use crate::sync::sequenced;

/// How often a worker checks the end of a wait before it parks. Each check takes twice as long as the one before.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 7 };

impl Worker {
    /// Spins for about a microsecond, because parking and passing a seat on cost more. Returns whether the wait has
    /// ended. Returns at once if jobs are queued on the seat.
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

    /// Blocks until `done` returns `true`. `nap` may park the thread.
    ///
    /// A thread that makes `done` true unparks this thread afterwards. Neither function may run user code.
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

    /// Runs a function that blocks by other means, and runs no user code. The seat is passed on before, if possible.
    pub(crate) fn while_blocked<T>(&self, function: impl FnOnce() -> T) -> T {
        let Some(seated) = self.seated() else {
            return function();
        };
        seated.hand_over(false);
        let result = function();
        self.resume(seated.seat);
        result
    }

    /// Continues after a wait that began on this seat: with this seat, another one, or none.
    fn resume(&self, seat: &'static Seat) {
        if self.sits_on(seat) {
            match self.shared.idle.0.resume(seat, self.record) {
                Reseated::Unseated => self.stand_up(),
                Reseated::Seated => {}
                Reseated::Searching => self.shared.pass_search_on(),
            }
        }
        self.finds_seat();
    }

    /// Takes the seat of a sleeping thread. The caller has no seat, and is in the middle of a job.
    #[cold]
    pub(super) fn take_asleep(&self) -> bool {
        match self.shared.idle.0.take_asleep(&self.shared.seats, self.record) {
            Some(index) => {
                self.sit_down(index);
                // The sleeper may have been the one that watched.
                self.shared.renew_watch();
                true
            }
            None => false,
        }
    }
}

impl Seated<'_> {
    /// Holds the seat of the blocking caller if all queues are empty. Otherwise passes it on.
    fn hold(self) {
        let shared = self.worker.shared;
        if self.seat.has_items() || shared.has_work() {
            return self.hand_over(false);
        }
        shared.idle.0.hold(self.seat);
        // Jobs that were added before the seat was on the list must be seen now.
        if shared.has_work_at_rest(true) && shared.idle.0.get_up(self.seat, self.worker.record) {
            self.hand_over(true);
        }
    }

    /// Passes a held seat on, if it was woken for a job and no spare thread was parked to take it. Returns whether it
    /// did.
    fn answer(self) -> bool {
        // In this order: if the flag was set for a new occupant of the seat, the record already says so.
        let woken = self.worker.sits_on(self.seat)
            && self.seat.woken.load(Acquire)
            && self.worker.record.seat() == Some(self.seat.index);
        if woken {
            self.hand_over(true);
        }
        woken
    }

    /// Passes the seat to a spare thread, or marks it as stuck. `searched` says that the caller counts as a searcher.
    fn hand_over(self, searched: bool) {
        let idle = &self.worker.shared.idle.0;
        let spare = idle.give_to_spare(self.seat, searched);
        if let Some(spare) = spare.or_else(|| self.stick(searched)) {
            self.worker.stand_up();
            spare.unpark();
        }
    }

    /// Marks the seat as stuck and starts a spare thread for it. If none can be started, the seat waits for any thread
    /// without a job. Returns a spare thread that parked meanwhile, and now has the seat.
    #[cold]
    fn stick(self, searched: bool) -> Option<&'static ThreadRecord> {
        let (seat, shared) = (self.seat, self.worker.shared);
        let idle = &shared.idle.0;
        // From here on any thread without a job may take the seat.
        let start = match idle.stick(seat, searched, true) {
            Stuck::Given(spare) => return Some(spare),
            Stuck::Waits { start } => start,
        };
        // A stuck thread does not search, so another one must.
        if searched {
            shared.pass_search_on();
        }
        if start {
            if shared.start_spare(seat.index, self.worker.generation) {
                return None;
            }
            idle.not_started();
        }
        // Searchers take entries from a slot, or a single child, only after a while. So the entry moves to the ring,
        // unless another thread has taken the seat by now.
        if idle.resume(seat, self.worker.record) != Reseated::Seated {
            return None;
        }
        if let Some(item) = self.empty_slot() {
            self.push_displaced(item);
        }
        if self.seat.children.len() == 1
            && let Some(child) = self.pop_child().and_then(Item::as_entry)
        {
            // SAFETY: the item was taken out of a queue, so this thread owns the entry.
            self.push_behind_others(unsafe { OwnedEntry::new(child) });
        }
        // Without a new thread, the seat waits for an existing one.
        match idle.stick(seat, false, false) {
            Stuck::Given(spare) => Some(spare),
            Stuck::Waits { .. } => None,
        }
    }
}

impl PoolShared {
    /// Makes a searcher a running thread, and wakes another searcher if there is more work.
    pub(super) fn pass_search_on(&self) {
        let idle = &self.idle.0;
        if !idle.found() {
            return;
        }
        if self.has_work() {
            idle.wake(&self.seats);
        } else {
            self.renew_watch();
        }
    }

    /// Wakes a sleeper if there is work. Called after the nap of a thief that has lost its seat: a pusher that saw the nap has woken
    /// no worker, and the thief does not look at its queue.
    pub(super) fn pass_nap_on(&self) {
        if self.has_work() {
            self.idle.0.wake(&self.seats);
        }
    }

    /// Wakes a sleeper if no sleeper watches, and a worker keeps a job for itself: it may have relied on the watch. The
    /// sleeper watches when it goes back to sleep.
    fn renew_watch(&self) {
        let idle = &self.idle.0;
        if idle.is_watched() || !idle.may_want_watch(self.seats.len()) {
            return;
        }
        if self.is_light() {
            // Pairs with the light barrier of a thread that has filled its slot.
            barrier::heavy();
        } else {
            // Between the store that ended the watch and the loads of the queues.
            sequenced();
        }
        if self.has_kept_jobs() {
            idle.wake(&self.seats);
        }
    }
}
