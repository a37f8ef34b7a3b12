//! The state word of a frame.

use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Three flags and two counts in one word: who may poll the frame, and what keeps it alive.
///
/// | flag | means | set by | cleared by |
/// |---|---|---|---|
/// | `BUSY` | a thread polls the frame, or the frame is queued to be polled | the thread that wakes an idle frame | the polling thread, in [`suspend`](FrameState::suspend) |
/// | `NOTIFIED` | the frame was woken while it was busy: it is queued again | a waking thread | the polling thread, in `suspend` and [`requeue`](FrameState::requeue) |
/// | `DONE` | the future is gone and nothing that it began is in flight | the polling thread, in [`finish`](FrameState::finish) | never |
///
/// | count | one for each | the frame |
/// |---|---|---|
/// | references | the owner, the list of the parent, each waker, each future that points into the frame's memory | is freed by the last reference of a frame that is done |
/// | awaits | each operation or child in flight that will wake the frame | is not done before it is zero |
///
/// The polling thread collects its own changes of both counts in [`PendingCounts`] and applies them when the poll is over, in one
/// step with the flags. What completes, or is dropped, on another thread before that subtracts first. So while the frame is
/// busy both counts may be too low; only `suspend` and `finish`, which add what is pending, conclude anything from them.
///
/// Writers: [`begin`](FrameState::begin) stores with relaxed ordering, before the frame is shared. Every other change is a
/// read-modify-write that acquires and releases, so a thread that polls sees what was done before each wake, and the thread
/// that frees sees everything. The one plain store, in `try_finish_private`, is made where no other thread can change the word.
pub(super) struct FrameState(AtomicUsize);

const BUSY: usize = 1;
const NOTIFIED: usize = 2;
const DONE: usize = 4;
const AWAIT: usize = 8;
/// The awaits have half of the word, and borrow from the other half while they are below zero.
const REFERENCE: usize = 1 << (usize::BITS / 2 + 2);
/// A count beyond this is the work of code that forgets what it counts.
const MANY: usize = usize::MAX / REFERENCE / 4;

/// Changes of the counts that the polling thread has not applied yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingCounts {
    awaits: i16,
    references: i16,
}

impl PendingCounts {
    pub(super) fn new(awaits: i16, references: i16) -> Self {
        PendingCounts { awaits, references }
    }

    /// The same with so many more awaits and references, or fewer. None where that is too many to be noted.
    #[inline]
    pub(super) fn with(self, awaits: i16, references: i16) -> Option<Self> {
        Some(PendingCounts {
            awaits: self.awaits.checked_add(awaits)?,
            references: self.references.checked_add(references)?,
        })
    }

    /// What is to be added to the word, which wraps.
    #[inline]
    fn word(self) -> usize {
        let times = |number: i16, unit: usize| (number as isize as usize).wrapping_mul(unit);
        times(self.awaits, AWAIT).wrapping_add(times(self.references, REFERENCE))
    }

    #[inline]
    pub(super) fn is_zero(self) -> bool {
        self == PendingCounts::default()
    }
}

/// What a waking thread holds, and gives up with the wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// Nothing: the caller keeps what it holds.
    Nothing,
    Reference,
    Await,
}

/// What a wake came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// The frame was idle and is busy now: the caller queues it.
    Enqueue,
    /// The frame is busy, or done: there is nothing to do.
    Noted,
    /// The caller gave up the last reference of a frame that is done: it frees the frame.
    Free,
}

/// How a poll ended that left the frame waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspend {
    Idle,
    /// The frame was woken meanwhile. It is still busy: the caller queues it.
    Enqueue,
}

/// Whether a frame whose future is gone is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// Something that it began is in flight.
    Waits,
    Done,
    /// The frame is done, and no reference is left: the caller frees it.
    Free,
}

impl FrameState {
    /// A frame that was not started, with one reference: its owner's.
    pub(super) fn new() -> Self {
        FrameState(AtomicUsize::new(REFERENCE))
    }

    /// Makes a frame busy that no other thread knows.
    #[inline]
    pub(super) fn begin(&self) {
        self.0.store(REFERENCE | BUSY, Relaxed);
    }

    /// Whether the polling thread and the owner are the only ones that know the frame.
    #[inline]
    pub(super) fn is_private(&self) -> bool {
        self.0.load(Acquire) == REFERENCE | BUSY
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Acquire) & DONE != 0
    }

    /// Whether a frame is done, and has so many references: the caller's, and no others.
    #[inline]
    pub(super) fn is_owned_by(&self, references: usize) -> bool {
        self.0.load(Acquire) == (references * REFERENCE) | DONE
    }

    /// Adds a reference. The caller holds one, or polls the frame.
    pub(super) fn add_reference(&self) {
        let state = self.0.fetch_add(REFERENCE, Relaxed);
        // A count below zero is possible for a moment: awaits may have borrowed.
        refuse(state.cast_signed() / REFERENCE.cast_signed() > MANY.cast_signed());
    }

    /// Gives up a reference. `true` for the last one of a frame that is done: the caller frees it.
    pub(super) fn release_reference(&self) -> bool {
        let is_last = |state: usize| state & DONE != 0 && state / REFERENCE == 1;
        is_last(self.0.load(Acquire)) || is_last(self.0.fetch_sub(REFERENCE, AcqRel))
    }

    /// Wakes the frame, and gives up what the caller holds, in one step.
    #[inline]
    pub(super) fn wake(&self, held: Holding) -> Wake {
        let held = match held {
            Holding::Nothing => 0,
            Holding::Reference => REFERENCE,
            Holding::Await => AWAIT,
        };
        let mut state = self.0.load(Relaxed);
        loop {
            let idle = state & (BUSY | DONE) == 0;
            let flag = match (idle, state & DONE != 0) {
                (true, _) => BUSY,
                (false, true) => 0,
                (false, false) => NOTIFIED,
            };
            let next = state.wrapping_sub(held);
            match self.0.compare_exchange_weak(state, next | flag, AcqRel, Relaxed) {
                Err(now) => state = now,
                Ok(_) if idle => return Wake::Enqueue,
                Ok(_) if held == REFERENCE && state & DONE != 0 && next / REFERENCE == 0 => return Wake::Free,
                Ok(_) => return Wake::Noted,
            }
        }
    }

    /// Ends a poll after which the frame waits.
    pub(super) fn suspend(&self, pending: PendingCounts) -> Suspend {
        let pending = pending.word();
        let mut state = self.0.load(Relaxed);
        loop {
            let notified = state & NOTIFIED != 0;
            let counted = state.wrapping_add(pending);
            refuse(counted % REFERENCE / AWAIT > MANY);
            let next = if notified { counted & !NOTIFIED } else { counted & !BUSY };
            match self.0.compare_exchange_weak(state, next, AcqRel, Relaxed) {
                Err(now) => state = now,
                Ok(_) if notified => return Suspend::Enqueue,
                Ok(_) => return Suspend::Idle,
            }
        }
    }

    /// Applies changes of the counts in the middle of a poll. What they mean is concluded at the end of the poll.
    #[cold]
    pub(super) fn apply(&self, pending: PendingCounts) {
        self.0.fetch_add(pending.word(), AcqRel);
    }

    /// Ends a poll after which the caller queues the frame. The frame stays busy, and the next poll serves the wakes that came so
    /// far.
    #[inline]
    pub(super) fn requeue(&self, pending: PendingCounts) {
        let pending = pending.word();
        let mut state = self.0.load(Relaxed);
        // If nothing changes, nothing is written: a wake that is not seen here is found at the end of the next poll.
        while pending != 0 || state & NOTIFIED != 0 {
            let counted = state.wrapping_add(pending);
            refuse(counted % REFERENCE / AWAIT > MANY);
            match (self.0).compare_exchange_weak(state, counted & !NOTIFIED, AcqRel, Relaxed) {
                Err(now) => state = now,
                Ok(_) => return,
            }
        }
    }

    /// Whether anything that the frame began is in flight. What is not is over for good: the future is gone.
    pub(super) fn has_awaits(&self, pending: PendingCounts) -> bool {
        self.0.load(Acquire).wrapping_add(pending.word()) % REFERENCE / AWAIT != 0
    }

    /// Ends the last poll of a frame, if the polling thread and the owner are the only ones that know it: with the pending changes
    /// the owner's reference is the only one, nothing is in flight, and the frame was not woken. The owner neither wakes the
    /// frame nor gives up its reference before it is done.
    #[inline]
    pub(super) fn try_finish_private(&self, pending: PendingCounts) -> bool {
        let is_private = self.0.load(Acquire).wrapping_add(pending.word()) == REFERENCE | BUSY;
        if is_private {
            // No other thread changes the word, so a store does: the references that are pending to be released are held by this
            // thread, and an await that another thread ended was subtracted, after which that thread leaves the word alone.
            self.0.store(REFERENCE | DONE, Release);
        }
        is_private
    }

    /// Ends the last poll of a frame whose future is gone, unless something is in flight.
    pub(super) fn finish(&self, pending: PendingCounts) -> Finish {
        let pending = pending.word();
        let mut state = self.0.load(Acquire);
        loop {
            let counted = state.wrapping_add(pending);
            if counted % REFERENCE / AWAIT != 0 {
                return Finish::Waits;
            }
            let next = (counted & !(BUSY | NOTIFIED)) | DONE;
            match self.0.compare_exchange_weak(state, next, AcqRel, Acquire) {
                Err(now) => state = now,
                Ok(_) if counted / REFERENCE == 0 => return Finish::Free,
                Ok(_) => return Finish::Done,
            }
        }
    }
}

/// Aborts when a count is about to overflow, as the reference counts of the standard library do.
#[inline]
fn refuse(too_many: bool) {
    if too_many {
        std::process::abort();
    }
}
