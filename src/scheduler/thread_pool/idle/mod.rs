//! The idle threads of a pool: searching, sleeping and waking workers, and the end of the pool.
//!
//! [`Idle`] is shared by all threads of a pool. Its atomic `state` counts searchers and sleepers. The data behind its
//! lock is in `sleepers.rs`. How seats pass from one thread to another is in `seating.rs`, with the states of seats and
//! threads in `../seat.rs`.
//!
//! # How workers wake each other
//!
//! A worker runs jobs, *searches* for one in the queues of others, or *sleeps*. A worker that blocks in the middle of a
//! job *holds* its seat while all queues are empty. A thread that adds a job treats it like a sleeper.
//!
//! A thread that adds a job wakes one sleeper, but only if no worker searches. A searcher finds the job, or notices it
//! before it goes to sleep. The last searcher that finds a job checks for more work, and wakes the next sleeper if
//! there is any. So a burst of jobs wakes workers one by one, each only if there is work for it.
//!
//! # Why no job is missed
//!
//! A thread that adds a job publishes it and then loads `state`. A worker that goes to sleep, or stops searching,
//! changes `state` and then loads all queues ([`PoolShared::has_work`](super::shared::PoolShared::has_work)). All four
//! accesses are sequentially consistent, so one of the two threads sees the other.
//!
//! A push of a child has a cheaper way. While every worker runs a job, as `state` says, the pusher has only a light
//! barrier between its push and its load. A worker that goes to sleep has a heavy one between its two accesses: see
//! `barrier.rs`. So a pusher that still reads 0 has pushed before the worker looks at the queues. A pusher that reads
//! anything else continues as above.
//!
//! The exception is the slot of a seat, which is filled without waking a worker each time, because its occupant usually
//! empties it soon. A single child of a seat is treated alike. If the occupant does not take it, since its job takes
//! long or blocks, a sleeper *watches*. While other workers are awake it sleeps for a moment at a time, and looks at the
//! slots. A thread that fills a slot while no sleeper watches wakes one, which then watches when it goes back to sleep.
//! A thread that ends the watch, and leaves others asleep, does the same if a slot is full: the last searcher that finds a
//! job, and a thread that takes the sleeper's seat.
//!
//! A thread that fills a slot has only a light barrier, too, before it reads that every worker runs a job, or that a
//! sleeper watches. In the first case the next worker that lies down watches. In the second the thread that ends the
//! watch has a heavy barrier before it looks at the slots.
//!
//! A thief whose stolen children were tiny *naps*: it sleeps for a limited time. Meanwhile pushes of children wake no
//! worker, because the thief will look at them. It ends its nap before it looks, or stops searching. A thief whose seat was taken
//! meanwhile looks as well, and wakes another worker. So a pusher that sees the nap has pushed before that look. Here, too, the pusher has only the light barrier, and the thief the heavy one.
//!
//! # Transitions
//!
//! | from | to | by |
//! |---|---|---|
//! | running | searching | [`Idle::try_search`], unless half of all workers search already |
//! | searching | running | [`Idle::found`] |
//! | running, searching | sleeping | [`Idle::lie_down`] |
//! | running | holding | [`Idle::hold`] |
//! | sleeping, holding | searching | another thread: [`Idle::wake`]; or itself: [`Idle::get_up`] |
//! | holding | running | [`Idle::resume`] |
//! | sleeping | running, with another occupant | [`Idle::take_asleep`] |
//! | running, searching | searching, with another occupant | [`Idle::give_to_spare`] |
//! | running, searching | stuck | [`Idle::stick`] |
//! | stuck | searching, with another occupant | [`Idle::job_is_over`] |
//! | stuck | running | [`Idle::resume`] |

mod seating;
mod sleepers;

use core::ptr;
use std::collections::VecDeque;
use std::vec::Vec;

use super::barrier;
use super::reactor::without_interrupts;
use super::seat::{Seat, ThreadRecord};
use super::worker::Worker;
use crate::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use crate::sync::{Mutex, lock, sequenced};

pub(super) use seating::{Reseated, Stuck};
use sleepers::{Sleepers, pass_on};

/// The idle workers of a pool, and its spare threads.
pub(super) struct Idle {
    /// The number of searchers in units of [`SEARCHING`], plus the number of sleepers and holders in units of
    /// [`SLEEPING`]. The number of sleepers changes under the lock of `sleepers`. All accesses are sequentially
    /// consistent: see the module.
    state: AtomicUsize,
    sleepers: Mutex<Sleepers>,
    /// The index of the watching seat plus 1, or 0. Written under the lock of `sleepers`. A worker makes itself the
    /// watcher when it lies down while others are awake. It stops when it found a job, when all workers sleep, or when
    /// another thread takes its seat.
    watcher: AtomicUsize,
    /// The number of thieves that nap. Changes are sequentially consistent, and so are loads of pushers without the light
    /// barrier: see the module.
    napping: AtomicUsize,
    /// Whether the pool has ended: no thread runs a job and no job is queued. Set once, under the lock of `sleepers`,
    /// before all threads are unparked. Pairs with the loads in `is_over`.
    over: AtomicBool,
    /// Whether sleepers watch: see [`Idle::has_watch`]. Written before the pool is opened.
    #[cfg(loom)]
    pub(super) watching: bool,
}

const SEARCHING: usize = 1;
const SLEEPING: usize = 1 << 16;
const fn searching(state: usize) -> usize {
    state & (SLEEPING - 1)
}
const fn sleeping(state: usize) -> usize {
    state >> 16
}

/// The largest number of workers that the counts in `state` can hold.
pub(super) const MAX_WORKERS: usize = (1 << 15) - 1;

/// The result of [`Idle::lie_down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SleepKind {
    /// The worker sleeps, and may be woken.
    Asleep,
    /// The worker sleeps, and is the last: the pool is closing and no thread runs a job. The worker decides whether the
    /// pool ends.
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
                // Each worker may become a spare thread after a wait.
                spares: Vec::with_capacity(workers),
                unseated: 0,
                starting: 0,
                blocking: false,
            }),
            watcher: AtomicUsize::new(0),
            napping: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            #[cfg(loom)]
            watching: false,
        }
    }

    /// Returns whether sleepers watch. A model has no time in which to do so, so only a model of the end of a watch has one.
    #[inline(always)]
    fn has_watch(&self) -> bool {
        #[cfg(loom)]
        return self.watching;
        #[cfg(not(loom))]
        true
    }

    /// Begins a new generation, in which each seat has its first thread, and all of them run.
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
        sleepers.blocking = false;
        self.state.store(0, SeqCst);
        self.watcher.store(0, SeqCst);
        self.over.store(false, SeqCst);
    }

    /// Reserves room for this many spare threads besides the workers, so that none of them allocates when it parks.
    pub(super) fn expect_spares(&self, spares: usize) {
        let mut sleepers = lock(&self.sleepers);
        let missing = (sleepers.occupants.len() + spares).saturating_sub(sleepers.spares.len());
        sleepers.spares.reserve(missing);
    }

    /// Wakes a sleeper, unless a worker searches. Called after a job was published.
    #[inline]
    pub(super) fn wake(&self, seats: &[Seat]) {
        sequenced();
        if self.wants_waking() {
            self.wake_slowly(seats);
        }
    }

    /// Returns whether every worker runs a job, as far as the calling thread has heard. The load orders nothing.
    #[inline]
    pub(super) fn seems_busy(&self) -> bool {
        self.state.load(Relaxed) == 0
    }

    /// Returns whether a sleeper would be woken now.
    #[inline]
    fn wants_waking(&self) -> bool {
        let state = self.state.load(SeqCst);
        searching(state) == 0 && sleeping(state) != 0
    }

    #[cold]
    fn wake_slowly(&self, seats: &[Seat]) {
        let woken = {
            let mut sleepers = lock(&self.sleepers);
            // Of several waking threads one suffices: the first makes the sleeper a searcher, under the lock.
            if !self.wants_waking() {
                return;
            }
            match self.rouse_attending(&mut sleepers, seats) {
                None => self.rouse_one(&mut sleepers, seats),
                attending => attending,
            }
        };
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Makes the calling thread a searcher if it sleeps and an event of its reactor has queued a job: it is awake already.
    fn rouse_attending(&self, sleepers: &mut Sleepers, seats: &[Seat]) -> Option<&'static ThreadRecord> {
        let worker = Worker::attending().filter(|worker| ptr::eq(&worker.shared.idle.0, self))?;
        // Under the lock, so the thread keeps the seat, if it has not lost it.
        let seat = &seats[worker.record.seat()?];
        sleepers.unlist(seat).then(|| {
            self.rouse(sleepers, seat);
            worker.record
        })
    }

    /// Takes a seat off the list and makes its occupant a searcher. A held seat passes to a spare thread, if one is
    /// parked. The caller unparks the returned thread after it has released the lock.
    fn rouse_one(&self, sleepers: &mut Sleepers, seats: &[Seat]) -> Option<&'static ThreadRecord> {
        let seat = &seats[sleepers.list.pop()?];
        // Before the seat is woken, so that the previous occupant does not take the wake-up for its own.
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

    /// Makes the running caller a searcher, unless enough workers search already.
    pub(super) fn try_search(&self, workers: usize) -> bool {
        let enough = |state| 2 * searching(state) >= workers;
        self.state
            .fetch_update(SeqCst, SeqCst, |state| (!enough(state)).then_some(state + SEARCHING))
            .is_ok()
    }

    /// Makes the searching caller a running worker. Returns `true` if no worker searches now. The caller then checks
    /// for more work, and wakes another worker if there is any.
    pub(super) fn found(&self) -> bool {
        let last = searching(self.state.fetch_sub(SEARCHING, SeqCst)) == 1;
        sequenced();
        last
    }

    /// Adds the caller, which has no job, to the sleepers. The caller then looks at all queues before it parks.
    pub(super) fn lie_down(&self, seat: &Seat, searched: bool) -> SleepKind {
        let mut sleepers = lock(&self.sleepers);
        seat.woken.store(false, SeqCst);
        seat.at_rest.store(true, SeqCst);
        sleepers.list.push(seat.index);
        sleepers.at_rest += 1;
        let was_searching = if searched { SEARCHING } else { 0 };
        self.state.fetch_add(SLEEPING - was_searching, SeqCst);
        let last = sleepers.closing && sleepers.is_quiet();
        if self.has_watch() && self.watcher.load(SeqCst) == 0 && sleepers.list.len() < sleepers.occupants.len() {
            self.watcher.store(seat.index + 1, SeqCst);
        }
        drop(sleepers);
        sequenced();
        if last { SleepKind::Last } else { SleepKind::Asleep }
    }

    /// Takes the caller off the list and makes it a searcher. If another thread has woken it meanwhile, it is one
    /// already. Returns `false` if another thread has the seat.
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

    /// Returns whether a sleeper watches the slots.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !self.has_watch() || self.watcher.load(SeqCst) != 0
    }

    /// Returns whether a sleeper could watch another worker than the calling one, which is awake.
    pub(super) fn may_want_watch(&self, workers: usize) -> bool {
        let asleep = sleeping(self.state.load(SeqCst));
        asleep != 0 && asleep + 1 < workers
    }

    /// Returns whether the sleeping caller watches. It stops if all other workers sleep too.
    pub(super) fn watches(&self, seat: &Seat) -> bool {
        if !self.has_watch() || self.watcher.load(SeqCst) != seat.index + 1 {
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

    /// Ends the watch of the seat's occupant, which goes to work. Called before [`Idle::found`].
    pub(super) fn watch_no_more(&self, seat: &Seat) {
        if self.has_watch() && self.watcher.load(SeqCst) == seat.index + 1 {
            let _sleepers = lock(&self.sleepers);
            self.watcher.store(0, SeqCst);
        }
    }

    /// Counts the caller, which lies down, as napping until the result is dropped. `light` says whether pushers use the
    /// light barrier.
    pub(super) fn nap(&self, light: bool) -> Nap<'_> {
        self.napping.fetch_add(1, SeqCst);
        Nap { idle: self, light }
    }

    /// Returns whether a thief naps, as far as the calling thread has heard. The load orders nothing.
    #[inline]
    pub(super) fn seems_to_nap(&self) -> bool {
        self.napping.load(Relaxed) != 0
    }

    /// Returns whether a thief naps, and will look at the children of others.
    #[inline]
    pub(super) fn has_nap(&self) -> bool {
        self.napping.load(SeqCst) != 0
    }

    /// Closes the pool: the last worker that comes to rest ends it. If all are at rest already, one is woken to do so.
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

    /// Keeps the pool open until [`Idle::blocking_is_over`]. Returns `false` if the pool has ended.
    pub(super) fn blocking_begins(&self) -> bool {
        let mut sleepers = lock(&self.sleepers);
        sleepers.blocking = !self.is_over();
        sleepers.blocking
    }

    /// Ends the last blocking closure. If the pool is closed and all workers are at rest already, one is woken to end it.
    pub(super) fn blocking_is_over(&self, seats: &[Seat]) {
        let woken = {
            let mut sleepers = lock(&self.sleepers);
            sleepers.blocking = false;
            if sleepers.closing && sleepers.is_quiet() {
                self.rouse_one(&mut sleepers, seats)
            } else {
                None
            }
        };
        if let Some(thread) = woken {
            thread.unpark();
        }
    }

    /// Ends the pool and wakes every thread for the last time, if all are at rest and `close` finds no new work.
    pub(super) fn end(&self, seats: &[Seat], close: impl FnOnce() -> bool) -> bool {
        without_interrupts(|| {
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
        })
    }

    /// Returns whether the pool has ended, and its threads leave.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }
}

/// The nap of a thief: see [`Idle::nap`].
pub(super) struct Nap<'a> {
    idle: &'a Idle,
    light: bool,
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.idle.napping.fetch_sub(1, SeqCst);
        // Before the caller looks at the queues. Pairs with the light barrier of a pusher that still sees the nap.
        if self.light {
            barrier::heavy();
        } else {
            sequenced();
        }
    }
}

/// Access for models.
#[cfg(loom)]
impl Idle {
    /// Returns the number of sleepers and holders.
    pub(super) fn asleep(&self) -> usize {
        sleeping(self.state.load(SeqCst))
    }

    /// Returns the number of threads without a seat in the middle of a job.
    pub(super) fn unseated(&self) -> usize {
        lock(&self.sleepers).unseated
    }

    /// Counts a spare thread that is being started.
    pub(super) fn expect_spare(&self) {
        lock(&self.sleepers).starting += 1;
    }
}
