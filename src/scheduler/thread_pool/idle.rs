//! Who of a pool is awake: searching, sleeping, waking, and the end of it all.

use std::vec::Vec;

use super::shared::Seat;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use crate::sync::{Mutex, lock, sequenced};

/// The idle workers of a pool.
///
/// A worker runs jobs, or *searches* for one in the queues of others, or *sleeps*. Whoever adds a job wakes one sleeper,
/// but only when nobody searches: a searcher will find it, or will find, when it goes to sleep, that there is
/// something left. A searcher that has found a job and was the last to search passes the question on, and wakes the
/// next if there is more. So a burst of jobs wakes workers one after another, each only when there is work for it.
///
/// Nothing is lost. Whoever adds a job publishes it, then looks at `state`; a worker that goes to sleep, or stops to
/// search, changes `state`, then looks at all queues ([`Shared::has_work`](super::shared::Shared::has_work)). All four are
/// sequentially consistent, so one of the two sees the other.
///
/// | from | to | how |
/// |---|---|---|
/// | running | searching | [`Idle::try_search`], unless half of all search already |
/// | searching | running | [`Idle::found`] |
/// | running, searching | sleeping | [`Idle::lie_down`] |
/// | sleeping | searching | by another: [`Idle::wake`]; or by itself: [`Idle::get_up`] |
pub(super) struct Idle {
    /// How many search (in units of [`SEARCHING`]) and how many sleep (in units of [`SLEEPING`]). Numbers of sleepers
    /// change under the lock of `sleepers`.
    state: AtomicUsize,
    sleepers: Mutex<Sleepers>,
    /// There is nobody left to run anything, and nothing left to run: the workers leave. Set under the lock of
    /// `sleepers`.
    over: AtomicBool,
}

struct Sleepers {
    /// The last to lie down is the first to be woken: its caches are warm.
    list: Vec<usize>,
    /// How many of them sleep with nothing beneath them on their stacks, and not in the middle of a job that waits.
    at_rest: usize,
    /// The pool was dropped: the last one to come to rest ends it.
    closing: bool,
}

const SEARCHING: usize = 1;
const SLEEPING: usize = 1 << 16;
const fn searching(state: usize) -> usize {
    state & (SLEEPING - 1)
}
const fn sleeping(state: usize) -> usize {
    state >> 16
}

/// The largest number of workers that the counts above can hold.
pub(super) const MAX_WORKERS: usize = (1 << 15) - 1;

/// How a worker lay down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
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
            }),
            over: AtomicBool::new(false),
        }
    }

    /// Begins a new life, in which all workers run.
    pub(super) fn open(&self) {
        let mut sleepers = lock(&self.sleepers);
        sleepers.list.clear();
        sleepers.at_rest = 0;
        sleepers.closing = false;
        self.state.store(0, SeqCst);
        self.over.store(false, SeqCst);
    }

    /// Wakes a sleeper, unless somebody searches. To be called after a job was published.
    #[inline]
    pub(super) fn wake(&self, seats: &[Seat]) {
        sequenced();
        if self.wants_waking() {
            self.wake_slowly(seats);
        }
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
            // Of many who want to wake, one is enough: the first makes the sleeper a searcher, under the lock.
            if !self.wants_waking() {
                return;
            }
            let woken = sleepers.list.pop();
            self.rouse(&mut sleepers, woken.map(|worker| &seats[worker]))
        };
        if let Some(seat) = woken {
            seat.unpark();
        }
    }

    /// Makes a searcher of one that was taken off the list. It is to be unparked after the lock is given back.
    fn rouse<'a>(&self, sleepers: &mut Sleepers, seat: Option<&'a Seat>) -> Option<&'a Seat> {
        let seat = seat?;
        if seat.at_rest.swap(false, SeqCst) {
            sleepers.at_rest -= 1;
        }
        self.state.fetch_add(SEARCHING.wrapping_sub(SLEEPING), SeqCst);
        seat.woken.store(true, SeqCst);
        Some(seat)
    }

    /// Makes the running caller a searcher, unless enough search already.
    pub(super) fn try_search(&self, workers: usize) -> bool {
        let enough = |state| 2 * searching(state) >= workers;
        self.state
            .fetch_update(SeqCst, SeqCst, |state| (!enough(state)).then_some(state + SEARCHING))
            .is_ok()
    }

    /// Makes the searching caller a running one. `true` when nobody searches any more: the caller then looks whether
    /// there is more to do, and wakes another if so.
    pub(super) fn found(&self) -> bool {
        let last = searching(self.state.fetch_sub(SEARCHING, SeqCst)) == 1;
        sequenced();
        last
    }

    /// Puts the caller among the sleepers. It looks at all queues afterwards, and only then parks.
    ///
    /// `at_rest` says that there is nothing beneath it on its stack.
    pub(super) fn lie_down(&self, worker: usize, seats: &[Seat], searched: bool, at_rest: bool) -> Rest {
        let mut sleepers = lock(&self.sleepers);
        seats[worker].woken.store(false, SeqCst);
        seats[worker].at_rest.store(at_rest, SeqCst);
        sleepers.list.push(worker);
        sleepers.at_rest += usize::from(at_rest);
        let was_searching = if searched { SEARCHING } else { 0 };
        self.state.fetch_add(SLEEPING - was_searching, SeqCst);
        let last = sleepers.closing && sleepers.at_rest == seats.len();
        drop(sleepers);
        sequenced();
        if last { Rest::Last } else { Rest::Asleep }
    }

    /// Takes the caller back from the sleepers; it searches then. Somebody may have woken it meanwhile, which is the
    /// same.
    pub(super) fn get_up(&self, worker: usize, seats: &[Seat]) {
        let mut sleepers = lock(&self.sleepers);
        if let Some(at) = sleepers.list.iter().position(|&sleeper| sleeper == worker) {
            sleepers.list.remove(at);
            self.rouse(&mut sleepers, Some(&seats[worker]));
        }
        seats[worker].woken.store(false, SeqCst);
    }

    /// From now on, the last worker that comes to rest ends the pool. If all are at rest already, one is woken to do so.
    pub(super) fn close(&self, seats: &[Seat]) {
        let woken = {
            let mut sleepers = lock(&self.sleepers);
            sleepers.closing = true;
            let woken = if sleepers.at_rest == seats.len() {
                sleepers.list.pop()
            } else {
                None
            };
            self.rouse(&mut sleepers, woken.map(|worker| &seats[worker]))
        };
        if let Some(seat) = woken {
            seat.unpark();
        }
    }

    /// Ends the pool and wakes everyone for the last time, if all are at rest and `close` can say that nothing came
    /// meanwhile.
    pub(super) fn end(&self, seats: &[Seat], close: impl FnOnce() -> bool) -> bool {
        let mut sleepers = lock(&self.sleepers);
        if sleepers.at_rest != seats.len() || !close() {
            return false;
        }
        self.over.store(true, SeqCst);
        while let Some(worker) = sleepers.list.pop() {
            self.rouse(&mut sleepers, Some(&seats[worker]));
            seats[worker].unpark();
        }
        true
    }

    /// Whether the workers are to leave.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// How many sleep.
    #[cfg(loom)]
    pub(super) fn asleep(&self) -> usize {
        sleeping(self.state.load(SeqCst))
    }
}
