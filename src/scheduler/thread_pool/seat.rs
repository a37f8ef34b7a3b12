//! The seats of a pool, and the threads that take them.
//!
//! A pool of *n* threads has *n* seats. A seat is what makes a thread a worker: a queue of its own and a number. A thread
//! that blocks in the middle of a job gives its seat to a *spare* thread, which goes on with the seat's queue; it does not
//! run the jobs of others on top of its wait. So as many threads run jobs as there are seats, and those besides that
//! have come out of a wait and go on with their job.
//!
//! All that is said here of seats and threads changes under the lock of [`Idle`](super::idle::Idle).
//!
//! | thread | [`ThreadRecord::seat`] | counted or listed | becomes |
//! |---|---|---|---|
//! | seated | a seat | | without a seat, when its seat is taken while it blocks; a spare, when its seat is taken while it sleeps |
//! | without a seat | none | `unseated` | seated, when it finds a seat whose occupant sleeps; seated or a spare, when its job is over |
//! | spare | none | `spares`, while it is parked | seated, when it is given a seat |
//!
//! | seat | listed | its occupant | the seat becomes |
//! |---|---|---|---|
//! | in use | | runs a job, or searches for one | asleep, held, stuck; or in use by the spare that it is given to |
//! | asleep | `list`, at rest | is parked and has no job | in use, by its occupant, when there is a job; or by a thread without a seat, which takes it |
//! | held | `list`, not at rest | blocks; there was no job in any queue | in use by a spare, when there is a job; stuck, when there is no spare; in use by its occupant, whose wait is over |
//! | stuck | `stuck` | blocks; there are jobs, and a spare thread is being started, or none is to be had | in use by the first thread that has no job; or by its occupant, whose wait is over |
//!
//! A running thread keeps its seat: a seat that is in use is given away by its occupant alone. What only the owner of a
//! [`Ring`] may do is done by the occupant of its seat while the seat is in use.

use core::ptr;

use super::entry::Item;
use super::idle::MAX_WORKERS;
use super::ring::Ring;
use super::shelf::Shelf;
use crate::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::{Mutex, lock, thread};

/// What others see of a worker.
#[repr(align(128))]
pub(super) struct Seat {
    pub(super) ring: Ring,
    /// The newest entry that the occupant pushed, or null. It goes before the ring: what was just made ready is in the
    /// caches. The occupant swaps entries in (sequentially consistent) and out (acquire). Any other thread takes it out by
    /// swinging it to null (acquire and release): one that raises it, or a searcher that sees the occupant busy.
    pub(super) slot: AtomicPtr<crate::Job>,
    /// Goes before all else, and is short.
    pub(super) shelf: Shelf,
    /// Grows each time the occupant picks a job. Written by the occupant, relaxed. Searchers only compare two loads: one
    /// that sees it change leaves the slot alone.
    pub(super) picks: AtomicU32,
    /// The seat has been taken off the list of sleepers, and its occupant searches. Written under the lock of that list,
    /// after the records of the threads, if the seat passes from one to another. A parked thread loads it with acquire, and
    /// its own record after it, which tells whether this is said to that thread.
    pub(super) woken: AtomicBool,
    /// The occupant sleeps with nothing beneath it on its stack. Read and written under the same lock.
    pub(super) at_rest: AtomicBool,
    /// Grows each time the seat passes to another thread. Written under the same lock, with release; a thread that has
    /// seen a push of the new occupant sees the new number, since the push comes after it.
    pub(super) tenure: AtomicU32,
    pub(super) index: usize,
    /// The thread that was started with this seat. It keeps its record when it loses the seat.
    pub(super) first: ThreadRecord,
}

impl Seat {
    pub(super) fn new(index: usize) -> Self {
        Seat {
            ring: Ring::new(),
            slot: AtomicPtr::new(ptr::null_mut()),
            shelf: Shelf::new(),
            picks: AtomicU32::new(0),
            woken: AtomicBool::new(false),
            at_rest: AtomicBool::new(false),
            tenure: AtomicU32::new(0),
            index,
            first: ThreadRecord::new(),
        }
    }

    /// Takes `item` out of the slot, unless it is not there any more.
    pub(super) fn take_from_slot(&self, item: Item) -> bool {
        self.slot
            .compare_exchange(item.into_raw(), ptr::null_mut(), AcqRel, Relaxed)
            .is_ok()
    }

    /// Whether a job waits in the queues of this seat.
    pub(super) fn has_items(&self) -> bool {
        !self.slot.load(Relaxed).is_null() || !self.shelf.is_empty() || self.ring.has_items()
    }
}

/// A thread of a pool, as other threads reach it.
///
/// Records are never freed, only used again by later threads. So a thread that is woken by mistake, because its record
/// was another's before, finds that nothing has changed and parks again.
pub(super) struct ThreadRecord {
    /// The index of its seat, counted from 1; 0 without one. Above it, from [`CROWDED`] on, whether many threads were
    /// blocked when it was given the seat. Written under the lock of [`Idle`](super::idle::Idle), with
    /// release. The thread itself loads it with acquire where it was parked: no other thread changes it while it runs.
    seat: AtomicUsize,
    /// Its handle, once it runs. Written by the thread itself before it first loads `seat`.
    thread: Mutex<Option<thread::Thread>>,
}

/// More than there are seats.
const CROWDED: usize = 1 << 16;
const _: () = assert!(CROWDED > MAX_WORKERS + 1);

impl ThreadRecord {
    pub(super) fn new() -> Self {
        ThreadRecord {
            seat: AtomicUsize::new(0),
            thread: Mutex::new(None),
        }
    }

    /// Makes this the record of the calling thread.
    pub(super) fn occupy(&self) {
        *lock(&self.thread) = Some(thread::current());
    }

    /// Ends the parking of the thread, now or the next.
    pub(super) fn unpark(&self) {
        if let Some(thread) = lock(&self.thread).as_ref() {
            thread.unpark();
        }
    }

    /// The index of its seat.
    pub(super) fn seat(&self) -> Option<usize> {
        (self.seat.load(Acquire) % CROWDED).checked_sub(1)
    }

    /// Whether many threads were blocked when it was given its seat.
    pub(super) fn is_crowded(&self) -> bool {
        self.seat.load(Acquire) >= CROWDED
    }

    /// Changes the seat. The caller holds the lock of [`Idle`](super::idle::Idle).
    pub(super) fn set_seat(&self, seat: Option<usize>, crowded: bool) {
        let crowded = if crowded { CROWDED } else { 0 };
        self.seat.store(seat.map_or(0, |index| index + 1 + crowded), Release);
    }
}
