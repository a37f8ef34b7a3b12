//! A worker: the thread's side of a pool. How it picks its next job, searches, and sleeps. How it blocks is in `block.rs`.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::time::Duration;

use super::entry::{Entry, Item, Place};
use super::idle::Rest;
use super::injector::Levels;
use super::schedule::PoolScheduler;
use super::seat::{Seat, ThreadRecord};
use super::shared::Shared;
use crate::sender::current;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::sync::{park, per_thread, thread};
use crate::{Job, Priority, Transfer};

/// How often a worker serves its queues in turn instead of by urgency. Every other time it is the default level of the
/// injector, which is where work from outside comes in.
const FAIR_EVERY: u32 = 32;
/// What takes turns the other times: the worker's own queue, and the other levels of the injector.
const TURNS: [Option<Priority>; 5] = [
    None,
    Some(Priority::Background),
    Some(Priority::Utility),
    Some(Priority::UserInitiated),
    Some(Priority::UserInteractive),
];
/// How often in a row the slot may go before the ring.
const SLOT_RUNS: u32 = 16;
/// How often in a row the newest child of the ring may go before the oldest entry.
const CHILD_RUNS: u32 = 64;
/// How many picks take what was queued last, where many threads are blocked.
const NEWEST_RUNS: u32 = 64;
/// How often a searcher looks at everything before it gives up.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 12 };
/// How long the one that watches sleeps at a time.
const WATCH: Duration = Duration::from_millis(4);
/// From this round on a searcher looks into the slots of others, and makes way for other threads between two looks.
const YIELDING_ROUNDS: u32 = if cfg!(loom) { 1 } else { 8 };

/// Of every queue of a pool, a worker that keeps picking takes the oldest job at least once in so many picks, however
/// much there is in more urgent ones. Entries that were handed over together count as one.
pub(super) const FAIRNESS: u32 = FAIR_EVERY * 2 * TURNS.len() as u32;

per_thread! {
    /// The worker that this thread is.
    static CURRENT: Cell<*const Worker> = Cell::new(ptr::null());
}

/// A thread of a pool: what only the thread itself touches.
///
/// It has a seat, or not: see `seat.rs`. What needs one is in [`Seated`].
pub(crate) struct Worker {
    pub(super) shared: &'static Shared,
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
    /// How many jobs were picked on the seat.
    picks: Cell<u32>,
    /// How many of them, up to now, came from the slot in a row.
    from_slot: Cell<u32>,
    /// How many children, up to now, were taken from the newer end of the ring in a row.
    children: Cell<u32>,
    /// How many picks take what was queued last.
    newest: Cell<u32>,
    /// Whom to steal from first: a random number.
    random: Cell<u32>,
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

/// What became of a worker that had nothing to do.
enum Idled {
    /// There is a job.
    Found(Item),
    /// Another thread has the seat.
    Unseated,
    /// The pool has ended.
    Over,
}

impl Worker {
    /// The thread that is started with a seat.
    pub(super) fn new(shared: &'static Shared, generation: u32, index: usize) -> Self {
        let worker = Worker::spare(shared, generation, &shared.seats[index].first, index);
        worker.sit_down(index);
        worker
    }

    /// A thread that is about to be a spare one, and counts as one without a seat. Each thread of a pool has another number.
    pub(super) fn spare(
        shared: &'static Shared,
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
            picks: Cell::new(0),
            from_slot: Cell::new(0),
            children: Cell::new(0),
            newest: Cell::new(0),
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
    pub(super) fn works_for(&self, shared: &'static Shared, generation: u32) -> bool {
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
        // What takes turns does so however often the seat passes from one thread to another.
        self.picks.set(seat.picks.load(Relaxed));
        self.from_slot.set(0);
        self.children.set(0);
        self.newest.set(if self.record.is_crowded() { NEWEST_RUNS } else { 0 });
    }

    /// Goes on without a seat, in the middle of a job.
    pub(super) fn stand_up(&self) {
        self.seat.set(None);
        self.unseated.set(true);
    }
}

impl<'a> Seated<'a> {
    #[inline]
    fn shared(self) -> &'static Shared {
        self.worker.shared
    }

    /// Wakes another worker, if need be, for what was pushed into the ring.
    #[inline]
    pub(super) fn wake_another(self) {
        self.shared().idle.0.wake(&self.shared().seats);
    }

    /// Queues an entry of the default level with this worker.
    ///
    /// It goes into the slot; what was there goes into the ring, where it is worth waking somebody for. For the slot
    /// alone, others are woken less and less often while the worker itself is quick to take it.
    ///
    /// # Safety
    ///
    /// The entry is in no queue, and stays where it is until it runs. It may have run when this returns.
    #[inline]
    pub(super) unsafe fn push(self, entry: NonNull<Entry>) {
        // SAFETY: the caller's promise.
        let item = unsafe {
            entry.as_ref().set_place(Place::Slot(self.seat.index));
            Item::queued(entry)
        };
        let displaced = self.seat.slot.swap(item.into_raw(), SeqCst);
        match Item::from_raw(displaced) {
            Some(item) => self.push_displaced(item),
            None => {
                let run = self.worker.from_slot.get();
                if run == 0 || run.is_power_of_two() || !self.shared().idle.0.is_watched() {
                    self.wake_another();
                }
            }
        }
    }

    /// Queues an entry of the default level with this worker, behind what is queued there.
    ///
    /// # Safety
    ///
    /// As for [`Seated::push`].
    pub(super) unsafe fn push_last(self, entry: NonNull<Entry>) {
        match self.empty_slot() {
            Some(item) => self.push_displaced(item),
            // With nothing to get behind, the slot is the cheapest place.
            // SAFETY: the caller's promise.
            None if !self.seat.ring.has_items() => return unsafe { self.push(entry) },
            None => {}
        }
        self.push_displaced(Item::entry(entry));
    }

    /// Puts what was in the slot into the ring.
    pub(super) fn push_displaced(self, item: Item) {
        let Some(entry) = item.as_entry() else { return };
        let ring = &self.seat.ring;
        // SAFETY: it was taken out of the slot, so the caller has exclusive access until it is queued.
        unsafe { entry.as_ref() }.set_place(Place::Ring(self.seat.index, ring.next_number()));
        if ring.push(item, true).is_some() {
            self.wake_another();
        } else {
            // SAFETY: the entry was taken out of the slot, and is in no queue.
            let pushed = unsafe { self.shared().inject(entry, self.worker.generation) };
            debug_assert!(pushed.is_ok(), "a pool does not end before its workers do");
        }
    }

    /// Puts entries that were handed over together on the shelf, to be run next, where others can take them. Returns them where
    /// there is no room.
    fn shelve(self, jobs: Transfer) -> Transfer {
        if !self.seat.shelf.is_empty() {
            return jobs;
        }
        self.seat.shelf.fill(jobs);
        self.wake_another();
        Transfer::none()
    }

    /// The first of the entries on the shelf.
    #[cold]
    fn pick_from_shelf(self) -> Option<Item> {
        let first = self.seat.shelf.take_first()?;
        if !self.seat.shelf.is_empty() {
            // It was filled again: a worker that has gone to sleep meanwhile may have found it empty.
            self.wake_another();
        }
        Some(Item::entry(first.cast()))
    }

    /// Offers a job that its owner waits for to idle workers, and returns its number. `None` when there is no room: the
    /// caller runs it.
    ///
    /// Unlike entries, forks are taken back by their pusher, so it does not matter if once in a while no worker is woken.
    ///
    /// # Safety
    ///
    /// The job is in no list, and stays where it is until it runs, or is taken back: with
    /// [`Ring::take_back_fork`](super::ring::Ring::take_back_fork) or, by a thread that has lost the seat, with
    /// [`Ring::remove`](super::ring::Ring::remove).
    #[inline]
    pub(super) unsafe fn fork(self, job: NonNull<Job>) -> Option<usize> {
        let number = self.seat.ring.push(Item::fork(job), false)?;
        self.wake_another();
        Some(number)
    }

    /// Takes the newest closure of the ring, or that in the slot, if it is one of a scope, and `own` says so too.
    pub(super) fn take_scoped(self, own: impl Fn(NonNull<Entry>) -> bool) -> Option<Item> {
        let is_own = |item: Item| item.as_entry().is_some_and(&own);
        // Another thread may have it, so no more is looked at than its bits.
        if Item::from_raw(self.seat.slot.load(Relaxed)).is_some_and(Item::is_scoped)
            && let Some(item) = self.empty_slot()
        {
            if is_own(item) {
                return Some(item);
            }
            // The occupant alone fills the slot, so it is empty.
            self.seat.slot.swap(item.into_raw(), SeqCst);
        }
        let item = self.seat.ring.pop_newest_if(Item::is_scoped)?;
        if is_own(item) {
            return Some(item);
        }
        // There is room: it has its number again. A searcher may have missed it meanwhile.
        let pushed = self.seat.ring.push(item, true);
        debug_assert!(pushed.is_some(), "it was the newest");
        self.wake_another();
        None
    }

    /// The next job that is there to be run without looking for it.
    #[inline]
    fn pick(self) -> Option<Item> {
        if !self.seat.shelf.is_empty()
            && let Some(item) = self.pick_from_shelf()
        {
            return Some(item);
        }
        let picks = self.worker.picks.get().wrapping_add(1);
        self.worker.picks.set(picks);
        self.seat.picks.store(picks, Relaxed);
        if picks.is_multiple_of(FAIR_EVERY)
            && let Some(item) = self.pick_in_turn(picks / FAIR_EVERY)
        {
            return Some(item);
        }
        if self.worker.newest.get() != 0
            && let Some(item) = self.pick_newest()
        {
            return Some(item);
        }
        let occupied = self.shared().injector.occupied();
        if !occupied.and(Levels::URGENT).is_empty()
            && let Some(entry) = self.shared().injector.pop(Levels::URGENT)
        {
            return Some(self.not_from_slot(Item::entry(entry)));
        }
        if let Some(item) = self.pick_from_slot(occupied) {
            return Some(item);
        }
        let own = self.pick_child().or_else(|| {
            self.worker.children.set(0);
            self.seat.ring.pop_oldest()
        });
        if let Some(item) = own {
            return Some(self.not_from_slot(item));
        }
        if occupied.is_empty() {
            return None;
        }
        self.pick_injected(occupied)
    }

    /// The next entry of the injector, after the queues of the workers.
    fn pick_injected(self, occupied: Levels) -> Option<Item> {
        let injected = |levels| {
            let entry = self.shared().injector.pop(levels)?;
            Some(self.not_from_slot(Item::entry(entry)))
        };
        if !occupied.and(Levels::DEFAULT).is_empty()
            && let Some(item) = injected(Levels::DEFAULT)
        {
            return Some(item);
        }
        self.steal().or_else(|| injected(Levels::ALL))
    }

    /// What was queued last, as far as can be told. Of the jobs that many blocked threads wait for, the last to be queued
    /// is the likeliest to be one, and the oldest would rather block in turn.
    #[cold]
    fn pick_newest(self) -> Option<Item> {
        let newest = &self.worker.newest;
        let item = self
            .empty_slot()
            .or_else(|| self.seat.ring.take_newest_entry())
            .or_else(|| self.shared().injector.pop_newest().map(Item::entry));
        newest.set(if item.is_some() { newest.get() - 1 } else { 0 });
        item.map(|item| self.not_from_slot(item))
    }

    /// The oldest of the queue whose turn it is.
    #[cold]
    fn pick_in_turn(self, turn: u32) -> Option<Item> {
        let queue = if turn.is_multiple_of(2) {
            Some(Priority::Default)
        } else {
            TURNS[turn as usize / 2 % TURNS.len()]
        };
        let item = match queue {
            Some(level) => {
                let levels = Levels::of(level);
                if self.shared().injector.occupied().and(levels).is_empty() {
                    return None;
                }
                Item::entry(self.shared().injector.pop(levels)?)
            }
            None => match self.seat.ring.pop_oldest() {
                Some(item) => item,
                None => return self.empty_slot(),
            },
        };
        Some(self.not_from_slot(item))
    }

    /// The newest of the ring, if that is a child, or waits for such, and it is not the turn of something else.
    #[inline]
    fn pick_child(self) -> Option<Item> {
        let children = self.worker.children.get();
        if children == CHILD_RUNS {
            return None;
        }
        let child = self.seat.ring.pop_newest_if(Item::is_family)?;
        self.worker.children.set(children + 1);
        Some(child)
    }

    #[inline]
    fn pick_from_slot(self, occupied: Levels) -> Option<Item> {
        // It is not ours yet, so no more is looked at than its bits.
        let item = Item::from_raw(self.seat.slot.load(Relaxed))?;
        if item.is_parent()
            && let Some(child) = self.pick_child()
        {
            return Some(child);
        }
        let item = self.empty_slot()?;
        let run = self.worker.from_slot.get().wrapping_add(1);
        self.worker.from_slot.set(run);
        if run.is_multiple_of(SLOT_RUNS)
            && let Some(other) = self.pick_in_stead(occupied)
        {
            self.push_displaced(item);
            return Some(self.not_from_slot(other));
        }
        Some(item)
    }

    /// What has waited long enough while the slot went first.
    #[cold]
    fn pick_in_stead(self, occupied: Levels) -> Option<Item> {
        let own = self.seat.ring.pop_oldest();
        if own.is_some() || occupied.and(Levels::DEFAULT).is_empty() {
            return own;
        }
        self.shared().injector.pop(Levels::DEFAULT).map(Item::entry)
    }

    #[inline]
    pub(super) fn empty_slot(self) -> Option<Item> {
        Item::from_raw(self.seat.slot.swap(ptr::null_mut(), Acquire))
    }

    #[inline]
    fn not_from_slot(self, item: Item) -> Item {
        self.worker.from_slot.set(0);
        item
    }

    /// The oldest of another worker's ring. The first to be asked is a random one, so that thieves spread.
    fn steal(self) -> Option<Item> {
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
    fn idle(self, searching: bool) -> Idled {
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

    fn search(self) -> Option<Item> {
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
        if shared.has_work() || rest == Rest::Last && !idle.end(&shared.seats, || shared.injector.close()) {
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
