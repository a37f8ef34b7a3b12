//! A worker: the thread's side of a pool. How it picks its next job, searches, sleeps, and helps while it waits.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::time::Duration;

use super::entry::{Entry, Item, Place};
use super::idle::Rest;
use super::injector::Levels;
use super::ring::Ring;
use super::schedule::PoolScheduler;
use super::shared::{Seat, Shared};
use crate::sender::unwind::abort_on_unwind;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::sync::{park, per_thread, thread};
use crate::{Job, Priority};

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
/// How often a searcher looks at everything before it gives up.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 12 };
/// How many jobs may be nested on one stack, each while the one beneath waits, before the newest goes before everything.
const NESTED: u32 = 16;
/// How long the one that watches sleeps at a time.
const WATCH: Duration = Duration::from_millis(4);
/// From this round on a searcher looks into the slots of others, and makes way for other threads between two looks.
const YIELDING_ROUNDS: u32 = if cfg!(loom) { 1 } else { 8 };

/// Of every queue of a pool, a worker that keeps picking takes the oldest job at least once in so many picks, however
/// much there is in more urgent ones.
pub(super) const FAIRNESS: u32 = FAIR_EVERY * 2 * TURNS.len() as u32;

per_thread! {
    /// The worker that this thread is.
    static CURRENT: Cell<*const Worker> = Cell::new(ptr::null());
}

/// What only the thread of a worker touches.
pub(crate) struct Worker {
    shared: &'static Shared,
    generation: u32,
    index: usize,
    /// How many jobs it picked.
    picks: Cell<u32>,
    /// How many of them, up to now, came from the slot in a row.
    from_slot: Cell<u32>,
    /// How many children, up to now, were taken from the newer end of the ring in a row.
    children: Cell<u32>,
    /// How many jobs are nested on this stack, each of which was taken while the one beneath waited.
    nested: Cell<u32>,
    /// Whom to steal from first: a random number.
    random: Cell<u32>,
    /// The thread drives a run loop, and is not at the pool's work: what completes now, completes on that loop.
    away: Cell<bool>,
}

impl Worker {
    pub(super) fn new(shared: &'static Shared, generation: u32, index: usize) -> Self {
        Worker {
            shared,
            generation,
            index,
            picks: Cell::new(0),
            from_slot: Cell::new(0),
            children: Cell::new(0),
            nested: Cell::new(0),
            // Any number but 0 will do, and a different one for each.
            random: Cell::new((index as u32).wrapping_mul(0x9E37_79B9) | 1),
            away: Cell::new(false),
        }
    }

    /// The worker that the calling thread is.
    ///
    /// It is gone when its thread is, so what is returned must not leave the thread: it is not `Sync`.
    #[inline]
    pub(crate) fn current<'a>() -> Option<&'a Worker> {
        // SAFETY: set by `run`, which outlives everything that runs in it, and unset at its end.
        unsafe { CURRENT.with(Cell::get).as_ref() }
    }

    /// The worker that the calling thread is, if what runs now is the pool's work.
    #[inline]
    pub(crate) fn at_work<'a>() -> Option<&'a Worker> {
        Worker::current().filter(|worker| !worker.away.get())
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

    /// Whether this is a worker of that pool: the memory alone does not tell, as it is used again.
    #[inline]
    pub(super) fn works_for(&self, shared: &'static Shared, generation: u32) -> bool {
        ptr::eq(self.shared, shared) && self.generation == generation
    }

    /// The scheduler of the pool.
    pub(super) fn scheduler(&self) -> PoolScheduler {
        PoolScheduler::new(self.shared, self.generation)
    }

    /// What tells the pool from others: see [`Scheduler::place`](crate::Scheduler).
    pub(crate) fn place(&self) -> usize {
        ptr::from_ref(self.shared).addr()
    }

    /// Which of the pool's workers this is.
    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// How many workers the pool has.
    pub(crate) fn crew(&self) -> usize {
        self.shared.seats.len()
    }

    #[inline]
    pub(super) fn seat(&self) -> &'static Seat {
        &self.shared.seats[self.index]
    }

    #[inline]
    pub(super) fn ring(&self) -> &'static Ring {
        &self.seat().ring
    }

    /// Wakes another worker, if need be, for what was pushed into the ring.
    pub(super) fn wake_another(&self) {
        self.shared.idle.0.wake(&self.shared.seats);
    }

    /// Runs jobs until the pool ends.
    pub(super) fn run(&self) {
        self.enter(|| {
            while let Some(item) = self.pick(false).or_else(|| self.idle(true, || false, park)) {
                // SAFETY: we took it out of a queue.
                unsafe { item.run() };
            }
        });
    }

    /// Makes the calling thread this worker while `body` runs.
    pub(super) fn enter(&self, body: impl FnOnce()) {
        self.seat().occupy();
        CURRENT.with(|current| current.set(self));
        // Jobs do not unwind; if one does, what it left half-done cannot be told from what is whole.
        abort_on_unwind(body);
        CURRENT.with(|current| current.set(ptr::null()));
    }

    /// Runs the pool's jobs until `done`, sleeping while there are none.
    ///
    /// Whoever makes `done` true must then unpark this thread, unless `done` was not asked since.
    pub(super) fn help_until(&self, done: impl Fn() -> bool) {
        while !done() {
            let Some(item) = self.pick(true).or_else(|| self.idle(false, &done, park)) else {
                return;
            };
            // SAFETY: we took it out of a queue.
            unsafe { self.run_on_top(item) };
        }
    }

    /// Runs a job of the pool on top of something else.
    ///
    /// # Safety
    ///
    /// The item was taken out of a queue by the caller, who runs it this one time.
    unsafe fn run_on_top(&self, item: Item) {
        let away = self.away.replace(false);
        let nested = self.nested.get();
        self.nested.set(nested + 1);
        let _hidden = crate::sender::current::Hidden::driver();
        // SAFETY: the caller's promise.
        unsafe { item.run() };
        self.nested.set(nested);
        self.away.set(away);
    }

    /// The next job to run while something is waited for; `None` once `done`, for which it sleeps if need be.
    ///
    /// Whoever makes `done` true must then unpark this thread. `nap` parks it: for as long as the caller has nothing else
    /// to do, or as it is told.
    pub(crate) fn next_until(&self, done: impl Fn() -> bool, nap: impl Fn(Option<Duration>)) -> Option<Waiting<'_>> {
        let item = self.pick(true).or_else(|| self.idle(false, done, nap))?;
        Some(Waiting { item, worker: self })
    }

    /// A job that is there already, to be run while something is waited for.
    pub(crate) fn next_now(&self) -> Option<Waiting<'_>> {
        let item = self.pick(true)?;
        Some(Waiting { item, worker: self })
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
    pub(super) unsafe fn push(&self, entry: NonNull<Entry>) {
        let seat = self.seat();
        // SAFETY: the caller's promise.
        let item = unsafe {
            entry.as_ref().set_place(Place::Slot(self.index));
            Item::queued(entry)
        };
        let displaced = seat.slot.swap(item.into_raw(), SeqCst);
        match Item::from_raw(displaced) {
            Some(item) => self.push_displaced(item),
            None => {
                let run = self.from_slot.get();
                let idle = &self.shared.idle.0;
                if run == 0 || run.is_power_of_two() || !idle.is_watched() {
                    idle.wake(&self.shared.seats);
                }
            }
        }
    }

    /// Whether this is on top of something that waits, and takes what was queued last first.
    pub(super) fn takes_newest(&self) -> bool {
        self.nested.get() != 0
    }

    /// Queues an entry of the default level with this worker, behind what is queued there.
    ///
    /// # Safety
    ///
    /// As for [`Worker::push`].
    pub(super) unsafe fn push_last(&self, entry: NonNull<Entry>) {
        match self.empty_slot() {
            Some(item) => self.push_displaced(item),
            // With nothing to get behind, the slot is the cheapest place.
            // SAFETY: the caller's promise.
            None if !self.ring().has_items() => return unsafe { self.push(entry) },
            None => {}
        }
        self.push_displaced(Item::entry(entry));
    }

    /// Puts what was in the slot into the ring.
    fn push_displaced(&self, item: Item) {
        let Some(entry) = item.as_entry() else { return };
        let seat = self.seat();
        // SAFETY: we took it out of the slot, so it is ours until it is queued.
        unsafe { entry.as_ref() }.set_place(Place::Ring(self.index, seat.ring.next_number()));
        if seat.ring.push(item, true).is_ok() {
            self.shared.idle.0.wake(&self.shared.seats);
        } else {
            self.inject(entry);
        }
    }

    /// Gives a job that its owner waits for to whoever is idle. It is refused when there is no room: run it yourself.
    ///
    /// Unlike entries, forks are taken back by who pushed them, so it does not matter if once in a while nobody is woken.
    ///
    /// # Safety
    ///
    /// The job is in no list, and stays where it is until it runs, or is taken back with [`Worker::take_back`].
    #[inline]
    pub(crate) unsafe fn fork(&self, job: NonNull<Job>) -> bool {
        let pushed = self.seat().ring.push(Item::fork(job), false).is_ok();
        if pushed {
            self.shared.idle.0.wake(&self.shared.seats);
        }
        pushed
    }

    /// Takes a fork back, if it is the newest that is queued here; runs what is newer.
    ///
    /// `false`: somebody else has it, or it is `done`. That is asked before anything else is run, which may come back
    /// again and again.
    #[inline]
    pub(super) fn take_back(&self, job: NonNull<Job>, done: impl Fn() -> bool) -> bool {
        while let Some(item) = self.seat().ring.pop_newest() {
            if item == Item::fork(job) {
                return true;
            }
            // SAFETY: we took it out of the ring.
            unsafe { self.run_on_top(item) };
            if done() {
                return false;
            }
        }
        false
    }

    fn inject(&self, entry: NonNull<Entry>) {
        // SAFETY: the entry was taken out of a queue of ours, and is in none.
        let pushed = unsafe { self.shared.inject(entry, self.generation) };
        debug_assert!(pushed.is_ok(), "a pool does not end before its workers do");
    }

    /// The next job that is there to be run without looking for it.
    ///
    /// `newest` where something is waited for: of what is equally urgent, what was made last is likeliest to be what the
    /// wait is for, and does not pile more waits upon this one, as the oldest would. The more urgent, and the oldest when
    /// it is their turn, may do so all the same; so from a certain depth on the newest goes before everything.
    #[inline]
    fn pick(&self, newest: bool) -> Option<Item> {
        let seat = self.seat();
        let picks = self.picks.get().wrapping_add(1);
        self.picks.set(picks);
        seat.picks.store(picks, Relaxed);
        if newest && self.nested.get() >= NESTED {
            return self.pick_newest();
        }
        if picks.is_multiple_of(FAIR_EVERY)
            && let Some(item) = self.pick_in_turn(picks / FAIR_EVERY)
        {
            return Some(item);
        }
        let occupied = self.shared.injector.occupied();
        if !occupied.and(Levels::URGENT).is_empty()
            && let Some(entry) = self.shared.injector.pop(Levels::URGENT, newest)
        {
            return Some(self.not_from_slot(Item::entry(entry)));
        }
        if let Some(item) = self.pick_from_slot(occupied) {
            return Some(item);
        }
        let own = if newest {
            seat.ring.pop_newest()
        } else {
            self.pick_child().or_else(|| {
                self.children.set(0);
                seat.ring.pop_oldest()
            })
        };
        if let Some(item) = own {
            return Some(self.not_from_slot(item));
        }
        if occupied.is_empty() {
            return None;
        }
        self.pick_injected(occupied, newest)
    }

    /// The next entry of the injector, after the queues of the workers.
    fn pick_injected(&self, occupied: Levels, newest: bool) -> Option<Item> {
        let injected = |levels| {
            let entry = self.shared.injector.pop(levels, newest)?;
            Some(self.not_from_slot(Item::entry(entry)))
        };
        if !occupied.and(Levels::DEFAULT).is_empty()
            && let Some(item) = injected(Levels::DEFAULT)
        {
            return Some(item);
        }
        self.steal().or_else(|| injected(Levels::ALL))
    }

    /// What was made last, as far as can be told.
    #[cold]
    fn pick_newest(&self) -> Option<Item> {
        let item = self
            .empty_slot()
            .or_else(|| self.seat().ring.pop_newest())
            .or_else(|| self.shared.injector.pop_newest().map(Item::entry))?;
        Some(self.not_from_slot(item))
    }

    /// The oldest of the queue whose turn it is.
    #[cold]
    fn pick_in_turn(&self, turn: u32) -> Option<Item> {
        let queue = if turn.is_multiple_of(2) {
            Some(Priority::Default)
        } else {
            TURNS[turn as usize / 2 % TURNS.len()]
        };
        let item = match queue {
            Some(level) => {
                let levels = Levels::of(level);
                if self.shared.injector.occupied().and(levels).is_empty() {
                    return None;
                }
                Item::entry(self.shared.injector.pop(levels, false)?)
            }
            None => match self.seat().ring.pop_oldest() {
                Some(item) => item,
                None => return self.empty_slot(),
            },
        };
        Some(self.not_from_slot(item))
    }

    /// The newest of the ring, if that is a child, or waits for such, and it is not the turn of something else.
    #[inline]
    fn pick_child(&self) -> Option<Item> {
        let children = self.children.get();
        if children == CHILD_RUNS || !self.seat().ring.ends_with_family() {
            return None;
        }
        self.children.set(children + 1);
        self.seat().ring.pop_newest()
    }

    #[inline]
    fn pick_from_slot(&self, occupied: Levels) -> Option<Item> {
        // It is not ours yet, so no more is looked at than its bits.
        let item = Item::from_raw(self.seat().slot.load(Relaxed))?;
        if item.is_parent()
            && let Some(child) = self.pick_child()
        {
            return Some(child);
        }
        let item = self.empty_slot()?;
        let run = self.from_slot.get().wrapping_add(1);
        self.from_slot.set(run);
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
    fn pick_in_stead(&self, occupied: Levels) -> Option<Item> {
        let own = self.seat().ring.pop_oldest();
        if own.is_some() || occupied.and(Levels::DEFAULT).is_empty() {
            return own;
        }
        self.shared.injector.pop(Levels::DEFAULT, false).map(Item::entry)
    }

    #[inline]
    fn empty_slot(&self) -> Option<Item> {
        Item::from_raw(self.seat().slot.swap(ptr::null_mut(), Acquire))
    }

    #[inline]
    fn not_from_slot(&self, item: Item) -> Item {
        self.from_slot.set(0);
        item
    }

    /// The oldest of another worker's ring. The first to be asked is a random one, so that thieves spread.
    fn steal(&self) -> Option<Item> {
        let others = self.others();
        others
            .map(|seat| seat.ring.pop_oldest())
            .find(Option::is_some)
            .flatten()
            .map(|item| self.not_from_slot(item))
    }

    fn others(&self) -> impl Iterator<Item = &'static Seat> {
        let seats = &self.shared.seats;
        // Marsaglia's xorshift.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        let first = random as usize % seats.len();
        let (before, after) = seats.split_at(first);
        let own = ptr::from_ref(self.seat());
        after.iter().chain(before).filter(move |seat| !ptr::eq(*seat, own))
    }

    /// Searches for a job, then sleeps until there is one. `None` once `done`, or when the pool ends.
    ///
    /// `at_rest` says that nothing is beneath this on the stack.
    #[cold]
    fn idle(&self, at_rest: bool, done: impl Fn() -> bool, nap: impl Fn(Option<Duration>)) -> Option<Item> {
        let shared = self.shared;
        let mut searching = shared.idle.0.try_search(shared.seats.len());
        loop {
            if searching {
                let item = self.search(!at_rest, &done);
                if item.is_some() || done() {
                    self.stop_searching();
                    return item;
                }
            }
            self.sleep(searching, at_rest, &done, &nap);
            searching = true;
            if at_rest && shared.idle.0.is_over() {
                self.stop_searching();
                return None;
            }
        }
    }

    /// What a searcher does when it has found something: somebody else takes over, if there is more.
    fn stop_searching(&self) {
        let idle = &self.shared.idle.0;
        idle.watch_no_more(self.index);
        if idle.found() && (self.shared.has_work() || !idle.is_watched() && self.shared.has_full_slots()) {
            idle.wake(&self.shared.seats);
        }
    }

    fn search(&self, newest: bool, done: &impl Fn() -> bool) -> Option<Item> {
        for round in 0..ROUNDS {
            if done() {
                return None;
            }
            let occupied = self.shared.injector.occupied();
            let item = if occupied.is_empty() {
                self.steal()
            } else {
                self.pick(newest)
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
    fn steal_from_slot(&self) -> Option<Item> {
        self.others().find_map(|seat| {
            let item = neglected(seat)?;
            seat.take_from_slot(item).then(|| self.not_from_slot(item))
        })
    }

    fn finds_neglected_slot(&self) -> bool {
        self.others().any(|seat| neglected(seat).is_some())
    }

    /// Sleeps until there is something to do, or until `done`. The caller searches afterwards.
    fn sleep(&self, searched: bool, at_rest: bool, done: &impl Fn() -> bool, nap: &impl Fn(Option<Duration>)) {
        let Shared { idle, seats, .. } = self.shared;
        let idle = &idle.0;
        let rest = idle.lie_down(self.index, seats, searched, at_rest);
        // From here on whoever adds a job may wake us; what was added before must be seen now.
        if self.shared.has_work() || done() {
            return idle.get_up(self.index, seats);
        }
        if rest == Rest::Last && !idle.end(seats, || self.shared.injector.close()) {
            return idle.get_up(self.index, seats);
        }
        let seat = self.seat();
        while !seat.woken.load(Acquire) {
            if done() {
                return idle.get_up(self.index, seats);
            }
            if idle.watches(self.index, seats.len()) {
                nap(Some(WATCH));
                if self.finds_neglected_slot() {
                    return idle.get_up(self.index, seats);
                }
            } else {
                nap(None);
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
    /// Runs what is there to be run, without looking for it.
    pub(super) fn run_next(&self, newest: bool) -> bool {
        // SAFETY: it is taken out of a queue.
        self.pick(newest).map(|item| unsafe { item.run() }).is_some()
    }

    /// Runs what a searcher finds.
    pub(super) fn run_found(&self) -> bool {
        // SAFETY: it is taken out of a queue.
        self.search(false, &|| false)
            .map(|item| unsafe { item.run() })
            .is_some()
    }
}

/// A job of the pool, found by somebody who waits for something else. It is to be run.
#[must_use = "a job that is not run is lost"]
pub(crate) struct Waiting<'a> {
    item: Item,
    worker: &'a Worker,
}

impl Waiting<'_> {
    pub(crate) fn run(self) {
        // SAFETY: it was taken out of a queue.
        abort_on_unwind(|| unsafe { self.worker.run_on_top(self.item) });
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
