//! The threads of a pool that have nothing to run: searching, sleeping, waking; which thread has which seat; and the end.

mod seating;
mod sleepers;

use std::collections::VecDeque;
use std::vec::Vec;

use super::seat::{Seat, ThreadRecord};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, lock, sequenced};

pub(super) use seating::{Resumed, Stuck};
use sleepers::{Sleepers, pass_on};

/// The idle workers of a pool, and the spare threads.
///
/// A worker runs jobs, or *searches* for one in the queues of others, or *sleeps*. A worker that blocks in the middle of a
/// job *holds* its seat, as long as there is no job in any queue: a thread that adds a job takes it for a sleeper.
///
/// A thread that adds a job wakes one sleeper, but only when no worker searches. A searcher finds the job, or sees when it
/// goes to sleep that there is something left. A searcher that has found a job and was the last to search passes the
/// question on, and wakes the next if there is more. So a burst of jobs wakes workers one after another, each only when
/// there is work for it.
///
/// Nothing is lost. A thread that adds a job publishes it, then looks at `state`. A worker that goes to sleep, or stops to
/// search, changes `state`, then looks at all queues ([`PoolShared::has_work`](super::shared::PoolShared::has_work)). All four are
/// sequentially consistent, so one of the two sees the other.
///
/// There is one place where no worker is woken for each job: the slot of a seat, which its occupant as a rule empties
/// a moment later. In case it does not, because its job takes long or blocks, one of the sleepers *watches*: while
/// others are awake it sleeps for a moment at a time, and looks at the slots. A thread that fills a slot while no sleeper
/// watches wakes one after all, which watches when it goes back to sleep. So does a searcher that has found a job
/// and was the last to search, if a slot is full then.
///
/// | from | to | how |
/// |---|---|---|
/// | running | searching | [`Idle::try_search`], unless half of all search already |
/// | searching | running | [`Idle::found`] |
/// | running, searching | sleeping | [`Idle::lie_down`] |
/// | running | holding | [`Idle::hold`] |
/// | sleeping, holding | searching | by another: [`Idle::wake`]; or by itself: [`Idle::get_up`] |
/// | holding | running | [`Idle::resume`] |
/// | sleeping | running, with another occupant | [`Idle::take_asleep`] |
/// | running, searching | searching, with another occupant | [`Idle::give_to_spare`] |
/// | running, searching | stuck | [`Idle::stick`] |
/// | stuck | searching, with another occupant | [`Idle::job_is_over`] |
/// | stuck | running | [`Idle::resume`] |
///
/// What becomes of the threads themselves is in the tables of `seat.rs`.
pub(super) struct Idle {
    /// How many search (in units of [`SEARCHING`]) and how many sleep or hold their seats (in units of [`SLEEPING`]). The
    /// number of sleepers changes under the lock of `sleepers`. All accesses are sequentially consistent, see above.
    state: AtomicUsize,
    sleepers: Mutex<Sleepers>,
    /// The seat that watches, counted from 1; 0 when none does. Written under the lock of `sleepers`: a worker makes
    /// itself the watcher when it lies down while others are awake, and gives it up when it has found a job, or when
    /// all are asleep; a thread that takes the seat of a sleeper ends it too.
    watcher: AtomicUsize,
    /// There is no thread left to run anything, and nothing left to run: the threads leave. Set under the lock of
    /// `sleepers`, before all of them are unparked, with release; they load it with acquire.
    over: AtomicBool,
}

const SEARCHING: usize = 1;
const SLEEPING: usize = 1 << 16;
const fn searching(state: usize) -> usize {
    state & (SLEEPING - 1)
}
const fn sleeping(state: usize) -> usize {
    state >> 16
}

/// A model has no time in which to watch.
const WATCHES: bool = !cfg!(loom);

/// The largest number of workers that the counts above can hold.
pub(super) const MAX_WORKERS: usize = (1 << 15) - 1;

/// How a worker lay down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SleepKind {
    /// It may be woken.
    Asleep,
    /// It sleeps, and it is the last: the pool is closing, and all are at rest. It decides whether this is the end.
    Last,
}

impl Idle {
    pub(super) fn new(workers: usize) -> Self {
        Idle {
            state: AtomicUsize::new(0),
            sleepers: Mutex::new(Sleepers {
                list: Vec::with_capacity(workers),
                at_rest: 0,
                closing: false,
                occupants: Vec::with_capacity(workers),
                stuck: VecDeque::with_capacity(workers),
                // Each worker may be one when it comes out of a wait.
                spares: Vec::with_capacity(workers),
                unseated: 0,
                starting: 0,
            }),
            watcher: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Begins a new life, in which each seat has its first thread, and all of them run.
    pub(super) fn open(&self, seats: &'static [Seat]) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.list.clear();
        sleepers.at_rest = 0;
        sleepers.closing = false;
        sleepers.occupants.clear();
        for seat in seats {
            seat.at_rest.store(false, SeqCst);
            seat.first.set_seat(Some(seat.index), false);
            sleepers.occupants.push(&seat.first);
        }
        sleepers.stuck.clear();
        sleepers.spares.clear();
        sleepers.unseated = 0;
        sleepers.starting = 0;
        self.state.store(0, SeqCst);
        self.watcher.store(0, SeqCst);
        self.over.store(false, SeqCst);
    }

    /// Makes room for so many spare threads besides the workers, so that none of them allocates when it parks.
    pub(super) fn expect_spares(&self, spares: usize) {
        let mut sleepers = lock(&self.sleepers);
        let missing = (sleepers.occupants.len() + spares).saturating_sub(sleepers.spares.len());
        sleepers.spares.reserve(missing);
    }

    /// Wakes a sleeper, unless a worker searches. To be called after a job was published.
    #[inline]
    pub(super) fn wake(&self, seats: &[Seat]) {
        sequenced();
        if self.wants_waking() {
            self.wake_slowly(seats);
        }
    }

    /// Whether every worker runs something: none searches, and none sleeps. Old news to a caller that is not one of them.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.state.load(SeqCst) == 0
    }

    /// Whether a sleeper would be woken now.
    #[inline]
    fn wants_waking(&self) -> bool {
        let state = self.state.load(SeqCst);
        searching(state) == 0 && sleeping(state) != 0
    }

    #[cold]
    fn wake_slowly(&self, seats: &[Seat]) {
        let woken = {
            let mut sleepers = lock(&self.sleepers);
            // Of many that want to wake, one is enough: the first makes the sleeper a searcher, under the lock.
            if !self.wants_waking() {
                return;
            }
            self.rouse_one(&mut sleepers, seats)
        };
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Takes a seat off the list and makes its occupant a searcher. One that is held passes to a spare thread, if one is
    /// parked. The caller unparks the thread that is returned, after it has released the lock.
    fn rouse_one(&self, sleepers: &mut Sleepers, seats: &[Seat]) -> Option<&'static ThreadRecord> {
        let seat = &seats[sleepers.list.pop()?];
        // Before the seat is woken, so that its occupant so far does not take that for its own.
        if !seat.at_rest.load(SeqCst)
            && let Some(spare) = sleepers.spares.pop()
        {
            pass_on(sleepers, seat, spare);
        }
        self.rouse(sleepers, seat);
        Some(sleepers.occupants[seat.index])
    }

    /// Makes the occupant of a seat that was taken off the list a searcher.
    fn rouse(&self, sleepers: &mut Sleepers, seat: &Seat) {
        sleepers.at_rest -= usize::from(seat.at_rest.swap(false, SeqCst));
        self.state.fetch_add(SEARCHING.wrapping_sub(SLEEPING), SeqCst);
        seat.woken.store(true, SeqCst);
    }

    /// Makes the running caller a searcher, unless enough search already.
    pub(super) fn try_search(&self, workers: usize) -> bool {
        let enough = |state| 2 * searching(state) >= workers;
        self.state
            .fetch_update(SeqCst, SeqCst, |state| (!enough(state)).then_some(state + SEARCHING))
            .is_ok()
    }

    /// Makes the searching caller a running one. `true` when no worker searches any more: the caller then looks whether
    /// there is more to do, and wakes another if so.
    pub(super) fn found(&self) -> bool {
        let last = searching(self.state.fetch_sub(SEARCHING, SeqCst)) == 1;
        sequenced();
        last
    }

    /// Puts the caller, which has no job, among the sleepers. It looks at all queues afterwards, and only then parks.
    pub(super) fn lie_down(&self, seat: &Seat, searched: bool) -> SleepKind {
        let mut sleepers = lock(&self.sleepers);
        seat.woken.store(false, SeqCst);
        seat.at_rest.store(true, SeqCst);
        sleepers.list.push(seat.index);
        sleepers.at_rest += 1;
        let was_searching = if searched { SEARCHING } else { 0 };
        self.state.fetch_add(SLEEPING - was_searching, SeqCst);
        let last = sleepers.closing && sleepers.is_quiet();
        if WATCHES && self.watcher.load(SeqCst) == 0 && sleepers.list.len() < sleepers.occupants.len() {
            self.watcher.store(seat.index + 1, SeqCst);
        }
        drop(sleepers);
        sequenced();
        if last { SleepKind::Last } else { SleepKind::Asleep }
    }

    /// Takes the caller back from the list; it searches then. Another thread may have woken it meanwhile, which is the
    /// same. `false` when another thread has the seat.
    pub(super) fn get_up(&self, seat: &Seat, thread: &ThreadRecord) -> bool {
        let mut sleepers = lock(&self.sleepers);
        if thread.seat() != Some(seat.index) {
            return false;
        }
        if sleepers.unlist(seat) {
            self.rouse(&mut sleepers, seat);
        }
        seat.woken.store(false, SeqCst);
        true
    }

    /// Whether a sleeper looks at the slots now and then.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !WATCHES || self.watcher.load(SeqCst) != 0
    }

    /// Whether that is the caller, which sleeps. It is so no more once all others sleep too.
    pub(super) fn watches(&self, seat: &Seat) -> bool {
        if !WATCHES || self.watcher.load(SeqCst) != seat.index + 1 {
            return false;
        }
        // Under the lock, so that a worker that gets up afterwards knows that none watches.
        let sleepers = lock(&self.sleepers);
        let others_awake = sleepers.list.len() < sleepers.occupants.len();
        if !others_awake {
            self.watcher.store(0, SeqCst);
        }
        others_awake
    }

    /// The occupant of the seat goes to work, so it does not watch any more. To be called before [`Idle::found`].
    pub(super) fn watch_no_more(&self, seat: &Seat) {
        if WATCHES && self.watcher.load(SeqCst) == seat.index + 1 {
            let _sleepers = lock(&self.sleepers);
            self.watcher.store(0, SeqCst);
        }
    }

    /// From now on, the last worker that comes to rest ends the pool. If all are at rest already, one is woken to do so.
    pub(super) fn close(&self, seats: &[Seat]) {
        let woken = {
            let mut sleepers = lock(&self.sleepers);
            sleepers.closing = true;
            if sleepers.is_quiet() {
                self.rouse_one(&mut sleepers, seats)
            } else {
                None
            }
        };
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Ends the pool and wakes every thread for the last time, if all are at rest and `close` can say that nothing came
    /// meanwhile.
    pub(super) fn end(&self, seats: &[Seat], close: impl FnOnce() -> bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        if !sleepers.is_quiet() || !close() {
            return false;
        }
        self.over.store(true, SeqCst);
        while let Some(index) = sleepers.list.pop() {
            self.rouse(&mut sleepers, &seats[index]);
        }
        for thread in sleepers.occupants.iter().chain(&sleepers.spares) {
            thread.unpark();
        }
        true
    }

    /// Whether the threads are to leave.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }
}

/// What a model sees and does.
#[cfg(loom)]
impl Idle {
    /// How many sleep or hold.
    pub(super) fn asleep(&self) -> usize {
        sleeping(self.state.load(SeqCst))
    }

    /// How many threads are without a seat in the middle of a job.
    pub(super) fn unseated(&self) -> usize {
        lock(&self.sleepers).unseated
    }

    /// Expects a spare thread.
    pub(super) fn expect_spare(&self) {
        lock(&self.sleepers).starting += 1;
    }
}
