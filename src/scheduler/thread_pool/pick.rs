//! The order in which a worker picks jobs.
//!
//! [`Seated::pick`] looks at the queues in this order:
//!
//! 1. every [`FAIR_EVERY`] picks, the queue whose turn it is;
//! 2. after the seat passed to this thread while many threads were blocked: the newest job, [`NEWEST_RUNS`] times;
//! 3. the urgent levels of the injector;
//! 4. the slot, but at most [`SLOT_RUNS`] times in a row, and a task that waits for children after these;
//! 5. the newest child, or the newest item of the ring if that is a branch of a task, at most [`NEWER_RUNS`] times in a row;
//! 6. the oldest item of the ring, and then the newest child;
//! 7. the default level of the injector, other workers' rings and children, and the other levels.
//!
//! Steps 4 and 5 run recently readied work first, because it is in the caches, and walk a tree of tasks depth-first: the worker goes
//! on with the newest branch, and thieves take the oldest, which has the most work.
//! Step 2 lets blocked threads continue before more jobs block. Step 1 bounds the wait of every queue: see
//! [`FAIRNESS`].

use core::cell::Cell;
use core::ptr::NonNull;

use super::entry::{Entry, Item, OwnedEntry};
use super::injector::Levels;
use super::worker::Seated;
use crate::Priority;
use crate::sync::atomic::Ordering::Relaxed;

/// The number of picks between two that serve a queue in turn. Every second turn is the default level of the injector,
/// where work from other threads arrives.
const FAIR_EVERY: u32 = 32;
/// The queues of the other turns: the worker's own, and the other levels of the injector.
const TURNS: [Turn; 6] = [
    Turn::Ring,
    Turn::Level(Priority::Background),
    Turn::Level(Priority::Utility),
    Turn::Children,
    Turn::Level(Priority::UserInitiated),
    Turn::Level(Priority::UserInteractive),
];
/// How many rounds of turns there are for each turn of the children. An oldest child that its own worker takes is one with much work,
/// which a thief would take, and each leaves the tree that is walked.
const CHILD_ROUNDS: u32 = 4;
/// How often in a row the slot precedes the ring, the children and the default level of the injector. A job that queues
/// itself again leaves them one turn in so many. Two tasks that wake each other in turn are still run from the caches.
const SLOT_RUNS: u32 = 4;
/// How often in a row the newest child or branch precedes the oldest item of the ring, and the task that waits for it.
const NEWER_RUNS: u32 = 64;

/// How many picks take the newest job, after many threads were blocked.
const NEWEST_RUNS: u32 = 64;

/// The fairness bound: a worker takes the oldest job of every queue at least once in this many picks.
pub(super) const FAIRNESS: u32 = FAIR_EVERY * 2 * TURNS.len() as u32 * CHILD_ROUNDS;

/// A queue that is served in turn.
#[derive(Clone, Copy)]
enum Turn {
    /// The ring of the seat, or its slot.
    Ring,
    /// The children of the seat.
    Children,
    /// A level of the injector.
    Level(Priority),
}

/// The counters of one worker that decide which queue it picks from next. Only its own thread accesses them.
#[derive(Default)]
pub(super) struct Turns {
    /// The number of jobs picked on the seat. A new occupant continues the count, so each queue keeps its turn.
    picks: Cell<u32>,
    /// The number of consecutive picks from the slot.
    pub(super) from_slot: Cell<u32>,
    /// The number of consecutive children and branches.
    pub(super) newer: Cell<u32>,
    /// The number of picks left that take the newest job instead of the oldest.
    newest: Cell<u32>,
    /// Whether the children preceded the ring when a job was last run instead of the slot's.
    child_in_stead: Cell<bool>,
}

impl Turns {
    /// Resets the counters for a thread that was just given a seat on which `picks` jobs have been picked.
    pub(super) fn begin(&self, picks: u32, crowded: bool) {
        self.picks.set(picks);
        self.from_slot.set(0);
        self.newer.set(0);
        self.newest.set(if crowded { NEWEST_RUNS } else { 0 });
    }
}

impl Seated<'_> {
    /// Returns the next job of this seat or of the injector.
    ///
    /// The jobs of the slot and the children are picked in the caller's loop, and all others in a call.
    #[inline(always)]
    pub(super) fn pick(self) -> Option<Item> {
        let picks = self.worker.turns.picks.get().wrapping_add(1);
        let item = match self.pick_at_once(picks) {
            None => self.pick_from_queues(picks),
            item => item,
        };
        // A look that finds no job does not count, so an idle worker does not use up the turns.
        if item.is_some() {
            self.worker.turns.picks.set(picks);
            self.seat.picks.store(picks, Relaxed);
        }
        item
    }

    /// Returns the job that is the `picks`-th of the seat, if it is from the slot or the newest child, and no other queue
    /// has its turn.
    #[inline(always)]
    fn pick_at_once(self, picks: u32) -> Option<Item> {
        let turns = &self.worker.turns;
        if picks.is_multiple_of(FAIR_EVERY) || turns.newest.get() != 0 {
            return None;
        }
        let occupied = self.shared().injector.occupied();
        if !occupied.and(Levels::URGENT).is_empty() {
            return None;
        }
        // The entry is not owned yet, so only the bits of the item may be read.
        if self.seat.slot.peek().is_none_or(Item::is_parent) {
            return self.pick_child().map(|child| self.not_from_slot(child));
        }
        let run = turns.from_slot.get().wrapping_add(1);
        if run.is_multiple_of(SLOT_RUNS) && self.has_others(occupied) {
            return None;
        }
        let item = self.empty_slot()?;
        turns.from_slot.set(run);
        Some(item)
    }

    /// Returns whether there are jobs that wait while the slot takes precedence.
    #[inline]
    fn has_others(self, occupied: Levels) -> bool {
        self.seat.ring.has_items() || self.seat.children.len() != 0 || !occupied.and(Levels::DEFAULT).is_empty()
    }

    /// Returns the job that is the `picks`-th of the seat.
    #[inline(never)]
    fn pick_from_queues(self, picks: u32) -> Option<Item> {
        // Bounds the wait of every queue.
        if picks.is_multiple_of(FAIR_EVERY)
            && let Some(item) = self.pick_in_turn(picks / FAIR_EVERY)
        {
            return Some(item);
        }
        // Blocked threads likely wait for the newest jobs.
        if self.worker.turns.newest.get() != 0
            && let Some(item) = self.pick_newest()
        {
            return Some(item);
        }
        let occupied = self.shared().injector.occupied();
        // Higher priorities precede the queues of the seat, which have the default one.
        if !occupied.and(Levels::URGENT).is_empty()
            && let Some(entry) = self.shared().injector.pop(Levels::URGENT)
        {
            return Some(self.not_from_slot(entry.into_item()));
        }
        // A job that was just made ready is in the caches.
        if let Some(item) = self.pick_from_slot(occupied) {
            return Some(item);
        }
        // Children first, so that a tree of tasks is walked depth-first. Otherwise FIFO, for fairness.
        let own = self.pick_child().or_else(|| self.pick_branch()).or_else(|| {
            self.worker.turns.newer.set(0);
            self.seat.ring.pop_oldest()
        });
        if let Some(item) = own.or_else(|| self.pop_child()) {
            return Some(self.not_from_slot(item));
        }
        // The seat is empty. With an empty injector too, the caller searches other seats.
        if occupied.is_empty() {
            return None;
        }
        self.pick_injected(occupied)
    }

    /// Returns an entry of the injector or of other workers, after the seat's own queues were empty.
    fn pick_injected(self, occupied: Levels) -> Option<Item> {
        let injected = |levels| {
            let entry = self.shared().injector.pop(levels)?;
            Some(self.not_from_slot(entry.into_item()))
        };
        if !occupied.and(Levels::DEFAULT).is_empty()
            && let Some(item) = injected(Levels::DEFAULT)
        {
            return Some(item);
        }
        self.steal().or_else(|| injected(Levels::ALL))
    }

    /// Returns the newest job of the seat, or of the injector. If many threads are blocked, the newest job is the one
    /// most likely awaited. The oldest would more likely block in turn.
    #[cold]
    fn pick_newest(self) -> Option<Item> {
        let newest = &self.worker.turns.newest;
        let item = self
            .empty_slot()
            .or_else(|| self.pop_child())
            .or_else(|| self.seat.ring.take_newest_entry())
            .or_else(|| self.shared().injector.pop_newest().map(OwnedEntry::into_item));
        newest.set(if item.is_some() { newest.get() - 1 } else { 0 });
        item.map(|item| self.not_from_slot(item))
    }

    /// Returns the oldest job of the queue whose turn it is.
    #[cold]
    fn pick_in_turn(self, turn: u32) -> Option<Item> {
        let queue = if turn.is_multiple_of(2) {
            Turn::Level(Priority::Default)
        } else {
            TURNS[turn as usize / 2 % TURNS.len()]
        };
        let item = match queue {
            Turn::Level(level) => {
                let levels = Levels::of(level);
                if self.shared().injector.occupied().and(levels).is_empty() {
                    return None;
                }
                self.shared().injector.pop(levels)?.into_item()
            }
            Turn::Ring => match self.seat.ring.pop_oldest() {
                Some(item) => item,
                None => return self.empty_slot(),
            },
            Turn::Children if !(turn / 2 / TURNS.len() as u32).is_multiple_of(CHILD_ROUNDS) => return None,
            // SAFETY: a `Seated` is the occupant of its seat.
            Turn::Children => unsafe { self.seat.children.pop_oldest() }?.into_item(),
        };
        Some(self.not_from_slot(item))
    }

    /// Returns the newest child, unless [`NEWER_RUNS`] is reached.
    #[inline]
    fn pick_child(self) -> Option<Item> {
        self.pick_newer(Self::pop_child)
    }

    /// Returns the newest item of the ring if it is a branch, unless [`NEWER_RUNS`] is reached.
    #[inline]
    fn pick_branch(self) -> Option<Item> {
        self.pick_newer(|seated| seated.seat.ring.pop_newest_if(Item::is_branch))
    }

    #[inline]
    fn pick_newer(self, pop: impl FnOnce(Self) -> Option<Item>) -> Option<Item> {
        let newer = self.worker.turns.newer.get();
        if newer == NEWER_RUNS {
            return None;
        }
        let item = pop(self)?;
        self.worker.turns.newer.set(newer + 1);
        Some(item)
    }

    /// Returns the newest child.
    #[inline]
    pub(super) fn pop_child(self) -> Option<Item> {
        // SAFETY: a `Seated` is the occupant of its seat.
        Some(unsafe { self.seat.children.pop_newest() }?.into_item())
    }

    #[inline]
    fn pick_from_slot(self, occupied: Levels) -> Option<Item> {
        // The entry is not owned yet, so only the bits of the item may be read.
        let item = self.seat.slot.peek()?;
        if item.is_parent()
            && let Some(child) = self.pick_child()
        {
            return Some(child);
        }
        let item = self.empty_slot()?;
        let run = self.worker.turns.from_slot.get().wrapping_add(1);
        self.worker.turns.from_slot.set(run);
        if run.is_multiple_of(SLOT_RUNS)
            && self.has_others(occupied)
            && let Some(other) = self.pick_in_stead(occupied)
        {
            self.push_behind(item);
            return Some(self.not_from_slot(other));
        }
        Some(item)
    }

    /// Returns a job that waited while the slot took precedence. The ring and the children precede each other in turn: two jobs that
    /// are taken out of the slot for one another do not keep the children waiting.
    #[cold]
    fn pick_in_stead(self, occupied: Levels) -> Option<Item> {
        let child_first = !self.worker.turns.child_in_stead.get();
        self.worker.turns.child_in_stead.set(child_first);
        let child = if child_first { self.pop_child() } else { None };
        let own = child
            .or_else(|| self.seat.ring.pop_oldest())
            .or_else(|| self.pop_child());
        if own.is_some() || occupied.and(Levels::DEFAULT).is_empty() {
            return own;
        }
        self.shared().injector.pop(Levels::DEFAULT).map(OwnedEntry::into_item)
    }

    #[inline]
    pub(super) fn empty_slot(self) -> Option<Item> {
        // SAFETY: a `Seated` is the occupant of its seat.
        unsafe { self.seat.slot.replace(None) }
    }

    #[inline]
    pub(super) fn not_from_slot(self, item: Item) -> Item {
        self.worker.turns.from_slot.set(0);
        item
    }

    /// Takes the closure of a scope out of the slot or the newer end of the ring, if `own` accepts it.
    pub(super) fn take_scoped(self, own: impl Fn(NonNull<Entry>) -> bool) -> Option<Item> {
        let is_own = |item: Item| item.as_entry().is_some_and(&own);
        // The entry is not owned yet, so only the bits of the item may be read.
        if self.seat.slot.peek().is_some_and(Item::is_scoped)
            && let Some(item) = self.empty_slot()
        {
            if is_own(item) {
                return Some(item);
            }
            // SAFETY: a `Seated` is the occupant of its seat.
            let before = unsafe { self.seat.slot.replace(Some(item)) };
            debug_assert!(before.is_none(), "only the occupant fills the slot");
        }
        let item = self.seat.ring.pop_newest_if(Item::is_scoped)?;
        if is_own(item) {
            return Some(item);
        }
        // The ring has room, and the item gets its old number. A searcher may have missed it meanwhile.
        let pushed = self.seat.ring.push(item, true);
        debug_assert!(pushed.is_some(), "it was the newest");
        self.wake_another();
        None
    }
}
