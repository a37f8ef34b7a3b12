//! The passing of seats between threads: a worker that blocks holds its seat, gives it to a spare thread, or gets
//! stuck.
//!
//! All changes happen under the lock of [`Idle`]. The states of seats and threads are in `seat.rs`, and the callers in
//! `block.rs`.

use super::super::seat::{Seat, ThreadRecord};
use super::sleepers::{Sleepers, pass_on};
use super::{Idle, SEARCHING, SLEEPING, sleeping};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{lock, sequenced};

/// The result of [`Idle::stick`].
pub(in super::super) enum Stuck {
    /// The seat is given to this spare thread, which the caller unparks.
    Given(&'static ThreadRecord),
    /// The seat waits for a thread that has no job. If `start` is set, the caller starts a spare thread.
    Waits { start: bool },
}

/// The state of a thread's seat after it blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Reseated {
    /// Another thread has the seat.
    Unseated,
    /// The thread still has the seat.
    Seated,
    /// The thread still has the seat, and counts as a searcher: it was woken while it blocked.
    Searching,
}

impl Idle {
    /// Adds the seat of the caller, which blocks in the middle of a job, to the list. The caller then looks at all
    /// queues before it parks.
    pub(in super::super) fn hold(&self, seat: &Seat) {
        let mut sleepers = lock(&self.sleepers);
        seat.woken.store(false, SeqCst);
        sleepers.list.insert(0, seat.index);
        self.state.fetch_add(SLEEPING, SeqCst);
        drop(sleepers);
        sequenced();
    }

    /// Gives the seat of the blocking caller to a parked spare thread, and returns that thread to be unparked. The
    /// caller then has no seat. The spare thread counts as a searcher, as the caller did if it `searched`.
    pub(in super::super) fn give_to_spare(&self, seat: &Seat, searched: bool) -> Option<&'static ThreadRecord> {
        let mut sleepers = lock(&self.sleepers);
        let spare = sleepers.spares.pop()?;
        self.give_locked(&mut sleepers, seat, spare, searched);
        Some(spare)
    }

    fn give_locked(&self, sleepers: &mut Sleepers, seat: &Seat, spare: &'static ThreadRecord, searched: bool) {
        // In this order, so that the caller does not take the wake-up for its own.
        pass_on(sleepers, seat, spare);
        if !searched {
            self.state.fetch_add(SEARCHING, SeqCst);
        }
        seat.woken.store(true, SeqCst);
    }

    /// Marks the seat of the blocking caller as stuck, because there is no spare thread. The caller must then stop
    /// searching, if it `searched`. If a spare thread has parked meanwhile, gives it the seat, as
    /// [`Idle::give_to_spare`] does.
    pub(in super::super) fn stick(&self, seat: &Seat, searched: bool, may_start: bool) -> Stuck {
        let mut sleepers = lock(&self.sleepers);
        if let Some(spare) = sleepers.spares.pop() {
            self.give_locked(&mut sleepers, seat, spare, searched);
            return Stuck::Given(spare);
        }
        seat.woken.store(false, SeqCst);
        sleepers.stuck.push_back(seat.index);
        let start = may_start && sleepers.starting < sleepers.stuck.len();
        sleepers.starting += usize::from(start);
        Stuck::Waits { start }
    }

    /// Counts a started spare thread as a thread without a seat, until [`Idle::job_is_over`].
    pub(in super::super) fn arrive(&self) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.starting -= 1;
        sleepers.unseated += 1;
    }

    /// Uncounts a spare thread that could not be started.
    pub(in super::super) fn not_started(&self) {
        lock(&self.sleepers).starting -= 1;
    }

    /// Ends the wait of the caller, and tells whether it still has the seat on which it began to block.
    pub(in super::super) fn resume(&self, seat: &Seat, thread: &ThreadRecord) -> Reseated {
        let mut sleepers = lock(&self.sleepers);
        if thread.seat() != Some(seat.index) {
            return Reseated::Unseated;
        }
        if sleepers.unlist(seat) {
            self.state.fetch_sub(SLEEPING, SeqCst);
            return Reseated::Seated;
        }
        if let Some(at) = sleepers.stuck.iter().position(|&stuck| stuck == seat.index) {
            sleepers.stuck.remove(at);
            return Reseated::Seated;
        }
        seat.woken.store(false, SeqCst);
        Reseated::Searching
    }

    /// Gives a thread without a seat the seat of a sleeper, which becomes a spare thread. The caller then runs on the
    /// seat.
    pub(in super::super) fn take_asleep(&self, seats: &[Seat], thread: &'static ThreadRecord) -> Option<usize> {
        if sleeping(self.state.load(SeqCst)) == 0 {
            return None;
        }
        let (index, unparked) = {
            let mut sleepers = lock(&self.sleepers);
            let seat = &seats[*sleepers.list.last()?];
            // The holders come first in the list. If the last seat is not at rest, none is.
            if !seat.at_rest.swap(false, SeqCst) {
                return None;
            }
            sleepers.list.pop();
            sleepers.at_rest -= 1;
            self.state.fetch_sub(SLEEPING, SeqCst);
            if self.watcher.load(SeqCst) == seat.index + 1 {
                self.watcher.store(0, SeqCst);
            }
            let sleeper = pass_on(&mut sleepers, seat, thread);
            // The caller has a seat now; `settle` uncounts the sleeper.
            sleepers.unseated -= 1;
            (seat.index, self.settle(&mut sleepers, seats, sleeper))
        };
        if let Some(thread) = unparked {
            thread.unpark();
        }
        Some(index)
    }

    /// Ends the job of the caller, a thread without a seat. It takes a stuck seat, as a searcher, or becomes a spare
    /// thread.
    pub(in super::super) fn job_is_over(&self, seats: &[Seat], thread: &'static ThreadRecord) {
        let unparked = {
            let mut sleepers = lock(&self.sleepers);
            if self.settle(&mut sleepers, seats, thread).is_none() && sleepers.closing && sleepers.is_quiet() {
                // The last worker that comes to rest ends the pool. This thread has no seat, so it wakes one that has.
                self.rouse_one(&mut sleepers, seats)
            } else {
                None
            }
        };
        if let Some(thread) = unparked {
            thread.unpark();
        }
    }

    /// Assigns a thread without a seat and without a job: to a stuck seat, as a searcher, or to the spare threads.
    /// Returns the thread in the first case, to be unparked.
    fn settle(
        &self,
        sleepers: &mut Sleepers,
        seats: &[Seat],
        thread: &'static ThreadRecord,
    ) -> Option<&'static ThreadRecord> {
        sleepers.unseated -= 1;
        match sleepers.stuck.pop_front() {
            Some(stuck) => {
                self.give_locked(sleepers, &seats[stuck], thread, false);
                Some(thread)
            }
            None => {
                sleepers.spares.push(thread);
                None
            }
        }
    }
}
