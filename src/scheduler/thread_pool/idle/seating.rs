//! Which thread has which seat: holding, passing on and taking seats.

use super::super::seat::{Seat, ThreadRecord};
use super::sleepers::{Sleepers, pass_on};
use super::{Idle, SEARCHING, SLEEPING, sleeping};
use crate::sync::atomic::Ordering::SeqCst;
use crate::sync::{lock, sequenced};

/// What becomes of the seat of a thread that blocks.
pub(in super::super) enum Stuck {
    /// It is given to this spare thread, to be unparked.
    Given(&'static ThreadRecord),
    /// It waits for a thread that has no job, and the caller is to `start` a spare one.
    Waits { start: bool },
}

/// What became of the seat of a thread that blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Resumed {
    /// Another thread has it.
    Unseated,
    /// The thread runs on it, as before.
    Seated,
    /// The same, and it counts as a searcher: it was woken, and did not get to it.
    Searching,
}

impl Idle {
    /// Puts the seat of the caller, which blocks in the middle of a job, on the list. The caller looks at all queues
    /// afterwards, and only then parks.
    pub(in super::super) fn hold(&self, seat: &Seat) {
        let mut sleepers = lock(&self.sleepers);
        seat.woken.store(false, SeqCst);
        sleepers.list.insert(0, seat.index);
        self.state.fetch_add(SLEEPING, SeqCst);
        drop(sleepers);
        sequenced();
    }

    /// Gives the seat of the caller, which blocks, to a spare thread that is parked, and returns that to be unparked. The
    /// caller has no seat then. The spare thread counts as a searcher, as the caller did if it `searched`.
    pub(in super::super) fn give_to_spare(&self, seat: &Seat, searched: bool) -> Option<&'static ThreadRecord> {
        let mut sleepers = lock(&self.sleepers);
        let spare = sleepers.spares.pop()?;
        self.give_locked(&mut sleepers, seat, spare, searched);
        Some(spare)
    }

    fn give_locked(&self, sleepers: &mut Sleepers, seat: &Seat, spare: &'static ThreadRecord, searched: bool) {
        // In this order, as in `rouse_one`.
        pass_on(sleepers, seat, spare);
        if !searched {
            self.state.fetch_add(SEARCHING, SeqCst);
        }
        seat.woken.store(true, SeqCst);
    }

    /// Says that the caller blocks on its seat and has found no spare thread; it stops to search then, if it `searched`.
    /// Or gives the seat to a spare thread that has come meanwhile, as [`Idle::give_to_spare`] does.
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

    /// Counts a spare thread that has started as a thread without a seat, until its [job is over](Idle::job_is_over).
    pub(in super::super) fn arrive(&self) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.starting -= 1;
        sleepers.unseated += 1;
    }

    /// Takes back that a spare thread is being started: the system did not give one.
    pub(in super::super) fn not_started(&self) {
        lock(&self.sleepers).starting -= 1;
    }

    /// Says that the wait of the caller is over, and tells whether it has the seat on which it began to block.
    pub(in super::super) fn resume(&self, seat: &Seat, thread: &ThreadRecord) -> Resumed {
        let mut sleepers = lock(&self.sleepers);
        if thread.seat() != Some(seat.index) {
            return Resumed::Unseated;
        }
        if sleepers.unlist(seat) {
            self.state.fetch_sub(SLEEPING, SeqCst);
            return Resumed::Seated;
        }
        if let Some(at) = sleepers.stuck.iter().position(|&stuck| stuck == seat.index) {
            sleepers.stuck.remove(at);
            return Resumed::Seated;
        }
        seat.woken.store(false, SeqCst);
        Resumed::Searching
    }

    /// Gives a thread without a seat the seat of a sleeper, which becomes a spare. It runs then.
    pub(in super::super) fn take_asleep(&self, seats: &[Seat], thread: &'static ThreadRecord) -> Option<usize> {
        if sleeping(self.state.load(SeqCst)) == 0 {
            return None;
        }
        let (index, unparked) = {
            let mut sleepers = lock(&self.sleepers);
            let seat = &seats[*sleepers.list.last()?];
            // The holders come first: if the last one is not at rest, none is.
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
            // Of the two, the caller has a seat now, and the sleeper has no job.
            sleepers.unseated -= 1;
            (seat.index, self.settle(&mut sleepers, seats, sleeper))
        };
        if let Some(thread) = unparked {
            thread.unpark();
        }
        Some(index)
    }

    /// Says that the job of the caller, a thread without a seat, is over. It takes a stuck seat, as a searcher, or is among the spare
    /// threads now.
    pub(in super::super) fn job_is_over(&self, seats: &[Seat], thread: &'static ThreadRecord) {
        let unparked = {
            let mut sleepers = lock(&self.sleepers);
            if self.settle(&mut sleepers, seats, thread).is_none() && sleepers.closing && sleepers.is_quiet() {
                // The last one to come to rest ends the pool, and this is none that can: it has no seat.
                self.rouse_one(&mut sleepers, seats)
            } else {
                None
            }
        };
        if let Some(thread) = unparked {
            thread.unpark();
        }
    }

    /// Finds a place for a thread that counts as one without a seat, and has no job: a stuck seat, when it is returned, to
    /// be unparked as a searcher, or one among the spares.
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
