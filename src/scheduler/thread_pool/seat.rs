//! The seats of a pool, and the threads that take them.
//!
//! A pool of *n* threads has *n* seats. [`Seat`] is the shared part of a worker: its queues and its number. A thread
//! that blocks in the middle of a job gives its seat to a *spare* thread, which continues with the seat's queues. The
//! blocked thread runs no jobs of others on its stack. So *n* threads run jobs at once, besides those that came out of
//! a wait and finish their job.
//!
//! All states below change under the lock of [`Idle`](super::idle::Idle).
//!
//! | thread | [`ThreadRecord::seat`] | counted or listed in | becomes |
//! |---|---|---|---|
//! | seated | a seat | | without a seat, if its seat is taken while it blocks; spare, if its seat is taken while it sleeps |
//! | without a seat | none | `unseated` | seated, when it takes a sleeper's seat; seated or spare, when its job ends |
//! | spare | none | `spares`, while parked | seated, when it is given a seat |
//!
//! | seat | listed in | its occupant | the seat becomes |
//! |---|---|---|---|
//! | in use | | runs a job, or searches for one | asleep, held or stuck; or in use by a spare thread |
//! | asleep | `list`, at rest | is parked and has no job | in use by its occupant, when there is a job; in use by a thread without a seat, which takes it |
//! | held | `list`, not at rest | blocks; all queues were empty | in use by a spare thread, when there is a job; stuck, if there is no spare thread; in use by its occupant, after its wait |
//! | stuck | `stuck` | blocks; there are jobs, and no spare thread is parked | in use by the first thread without a job; in use by its occupant, after its wait |
//!
//! A running thread keeps its seat: only its occupant gives away a seat in use. Only the occupant of a seat in use
//! calls the owner's functions of its [`Ring`] and its [`ChildQueue`]. So these have one owner at a time, and the lock
//! orders one owner after the other.

use core::mem;
use std::sync::Arc;

use super::child_queue::ChildQueue;
use super::idle::MAX_WORKERS;
use super::reactor::{self, Reactor};
use super::ring::Ring;
use super::slot::Slot;
use crate::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Release},
};
use crate::sync::{Mutex, lock, thread};

/// The shared part of a worker: its queues, and its state as other threads see it.
#[repr(align(128))]
pub(super) struct Seat {
    pub(super) ring: Ring,
    /// The children that the occupant's jobs have spawned, and the frames that they have resumed during a poll.
    pub(super) children: ChildQueue,
    /// The newest entry that the occupant pushed. It precedes the ring, because a job that was just readied is in the
    /// caches.
    pub(super) slot: Slot,
    /// The number of jobs picked since the pool began. Written by the occupant, relaxed. A searcher compares two loads: if they differ, the
    /// occupant makes progress, and its slot is left alone.
    pub(super) picks: AtomicU32,
    /// Whether the seat was taken off the list of sleepers, and its occupant searches. Written under the lock of that
    /// list, after the records of the threads if the seat passes to another one. A parked thread loads it with acquire,
    /// and then its own record, which tells whether the wake-up is for that thread.
    pub(super) woken: AtomicBool,
    /// Whether the occupant sleeps without a job on its stack. Accessed under the lock of the list of sleepers.
    pub(super) at_rest: AtomicBool,
    /// Incremented each time the seat passes to another thread, under the lock of the list of sleepers, with release.
    /// Pairs with the acquire load in `join.rs`. A thread that has seen a push of the new occupant sees the new number,
    /// because the increment precedes the push.
    pub(super) tenure: AtomicU32,
    pub(super) index: usize,
    /// The record of the thread that was started with this seat, which it keeps when it loses the seat.
    pub(super) first: ThreadRecord,
}

impl Seat {
    pub(super) fn new(index: usize) -> Self {
        Seat {
            ring: Ring::new(),
            children: ChildQueue::new(index),
            slot: Slot::new(),
            picks: AtomicU32::new(0),
            woken: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
            tenure: AtomicU32::new(0),
            index,
            first: ThreadRecord::new(),
        }
    }

    /// Returns whether the seat has an entry that its occupant is expected to take itself.
    pub(super) fn keeps_items(&self) -> bool {
        self.slot.is_full() || self.children.len() != 0
    }

    /// Returns whether a job is queued on this seat.
    pub(super) fn has_items(&self) -> bool {
        self.keeps_items() || self.ring.has_items()
    }
}

/// The part of a thread of a pool that other threads access.
///
/// Records are never freed, only reused by later threads. A thread that is woken by mistake, because its record
/// belonged to another thread before, sees no change and parks again.
pub(super) struct ThreadRecord {
    /// The index of the thread's seat plus 1, or 0. [`CROWDED`] is added if many threads were blocked when it was given
    /// the seat. Written under the lock of [`Idle`](super::idle::Idle), with release. Pairs with the acquire loads of
    /// the thread itself after it was parked: no other thread changes it while the thread runs.
    seat: AtomicUsize,
    /// How to wake the thread. Written by the thread itself.
    parked: Mutex<Parked>,
}

/// How another thread wakes a thread of a pool.
struct Parked {
    /// The thread's handle. Set before the thread first loads `seat`.
    thread: Option<thread::Thread>,
    /// The reactor that the sleeping thread attends: see `reactor.rs`.
    reactor: Option<Arc<dyn Reactor>>,
}

/// A flag above all seat numbers.
const CROWDED: usize = 1 << 16;
const _: () = assert!(CROWDED > MAX_WORKERS + 1);

impl ThreadRecord {
    pub(super) fn new() -> Self {
        ThreadRecord {
            seat: AtomicUsize::new(0),
            parked: Mutex::new(Parked {
                thread: None,
                reactor: None,
            }),
        }
    }

    /// Makes this the record of the calling thread.
    pub(super) fn occupy(&self) {
        lock(&self.parked).thread = Some(thread::current());
    }

    /// Unparks the thread, or makes its next parking return at once.
    pub(super) fn unpark(&self) {
        let reactor = {
            let parked = lock(&self.parked);
            if let Some(thread) = &parked.thread {
                thread.unpark();
            }
            parked.reactor.clone()
        };
        if let Some(reactor) = reactor {
            reactor::interrupt(reactor);
        }
    }

    /// Sets the reactor that the calling thread attends.
    pub(super) fn set_reactor(&self, reactor: Option<Arc<dyn Reactor>>) {
        let before = mem::replace(&mut lock(&self.parked).reactor, reactor);
        drop(before);
    }

    /// Returns the index of the thread's seat.
    pub(super) fn seat(&self) -> Option<usize> {
        (self.seat.load(Acquire) % CROWDED).checked_sub(1)
    }

    /// Returns whether many threads were blocked when the thread was given its seat.
    pub(super) fn is_crowded(&self) -> bool {
        self.seat.load(Acquire) >= CROWDED
    }

    /// Changes the seat. The caller holds the lock of [`Idle`](super::idle::Idle).
    pub(super) fn set_seat(&self, seat: Option<usize>, crowded: bool) {
        let crowded = if crowded { CROWDED } else { 0 };
        self.seat.store(seat.map_or(0, |index| index + 1 + crowded), Release);
    }
}
