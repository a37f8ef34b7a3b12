//! The state word of a frame.

use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Six flags and two counts in one word: which thread may poll the frame, and what keeps it alive.
///
/// | flag | means | set by | cleared by |
/// |---|---|---|---|
/// | `BUSY` | a thread polls the frame, or the frame is queued to be polled | the thread that wakes an idle frame | the polling thread, in [`suspend`](FrameState::suspend) |
/// | `NOTIFIED` | the frame was woken while it was busy: it is queued again | a waking thread | the polling thread, in `suspend` and [`requeue`](FrameState::requeue) |
/// | `DONE` | the future was dropped, and nothing that it began is in flight | the polling thread, in [`finish`](FrameState::finish) | never |
/// | `MOVED` | a waker is registered for an await of the frame: see [`moved`](super::moved) | the polling thread, under the lock of the strand | the thread that takes the last such waker, under that lock. So a frame without awaits does not have it |
/// | `ANNOUNCED` | an await that another executor polls has ended, and its waker was woken: see [`moved`](super::moved) | the thread that ends the await, after that wake and before its own wake of the frame | the polling thread, in `suspend`, `requeue` and `finish` |
/// | `UNOWNED` | the owner released a frame that was not done: [`finish`](FrameState::finish) has the result dropped | the owner, in [`release_owner`](FrameState::release_owner) | never |
///
/// | count | one for each | the frame |
/// |---|---|---|
/// | references | the owner, the list of the parent, each waker, each future that points into the frame's memory | a frame that is done is freed by its last reference |
/// | awaits | each operation or child in flight that will wake the frame | a frame is not done before the count is zero |
///
/// The polling thread collects its own changes of both counts in [`PendingCounts`]. It applies them at the end of the poll,
/// in one step with the flags. An await that ends on another thread before that subtracts first. So while the frame is busy
/// both counts may be too low. Only `suspend` and `finish`, which add the pending changes, draw conclusions from them.
///
/// Writers: [`begin`](FrameState::begin) stores with relaxed ordering, before the frame is shared. A new reference is added
/// with relaxed ordering. `try_finish_private` stores with release, which pairs with the owner's acquire load; no other
/// thread can change the word then. Every other change is an acquire-release read-modify-write, and pairs with the next
/// one. So the polling thread sees everything before each wake, and the freeing thread sees everything.
pub(super) struct FrameState(AtomicUsize);

const BUSY: usize = 1;
const NOTIFIED: usize = 2;
const DONE: usize = 4;
const MOVED: usize = 8;
const UNOWNED: usize = 16;
const ANNOUNCED: usize = 32;
const AWAIT: usize = 64;
/// The awaits occupy the lower half of the word, and borrow from the upper half while they are below zero.
const REFERENCE: usize = 1 << (usize::BITS / 2 + 3);
/// A count beyond this is the result of leaking: the process aborts before it overflows.
const MANY: usize = usize::MAX / REFERENCE / 4;

/// Changes of the counts that the polling thread has not applied yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PendingCounts {
    awaits: i8,
    references: i8,
}

impl PendingCounts {
    pub(super) fn new(awaits: i8, references: i8) -> Self {
        PendingCounts { awaits, references }
    }

    /// Adds awaits and references, which may be negative. `None` on overflow.
    #[inline]
    pub(super) fn with(self, awaits: i8, references: i8) -> Option<Self> {
        Some(PendingCounts {
            awaits: self.awaits.checked_add(awaits)?,
            references: self.references.checked_add(references)?,
        })
    }

    /// Returns the summand for the state word, which wraps.
    #[inline]
    fn word(self) -> usize {
        let times = |number: i8, unit: usize| (number as isize as usize).wrapping_mul(unit);
        times(self.awaits, AWAIT).wrapping_add(times(self.references, REFERENCE))
    }

    #[inline]
    pub(super) fn is_zero(self) -> bool {
        self == PendingCounts::default()
    }
}

/// The count that a waking thread releases with the wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// The caller keeps what it holds.
    Nothing,
    Reference,
    Await,
    /// An await whose end a waker of another executor may wait for.
    MovableAwait,
}

/// The outcome of a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// The frame was idle and is busy now: the caller queues it.
    Enqueue,
    /// The frame is busy or done, so the caller does nothing.
    Noted,
    /// The caller released the last reference to a frame that is done, and frees it.
    Free,
    /// Nothing was changed, since the frame has a waker for a [movable await](Holding::MovableAwait).
    Moved,
}

/// What the owner does about the result of a frame that it releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerRelease {
    /// The frame is not done. The thread that polls it drops the result.
    Left,
    /// The frame is done, and others refer to it. The caller drops the result, and then releases its reference.
    Shared,
    /// The frame is done, and the caller's reference is the last one: it frees the frame.
    Last,
}

/// Whether a frame without a future is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// Something that it began is in flight.
    Waits,
    /// The owner is gone, and other references keep the frame: the caller drops the result, and finishes again.
    Unowned,
    Done,
    /// The frame is done, and no reference is left: the caller frees it.
    Free,
}

impl FrameState {
    /// Creates the state of a frame that was not started, with the owner's reference.
    pub(super) fn new() -> Self {
        FrameState(AtomicUsize::new(REFERENCE))
    }

    /// Makes a frame busy before it is shared.
    #[inline]
    pub(super) fn begin(&self) {
        self.0.store(REFERENCE | BUSY, Relaxed);
    }

    /// Returns whether only the polling thread and the owner know the frame.
    #[inline]
    pub(super) fn is_private(&self) -> bool {
        self.0.load(Acquire) == REFERENCE | BUSY
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.0.load(Acquire) & DONE != 0
    }

    /// Returns whether the frame is done, and these references are the only ones.
    #[inline]
    pub(super) fn is_owned_by(&self, references: usize) -> bool {
        self.0.load(Acquire) == (references * REFERENCE) | DONE
    }

    /// Adds a reference. The caller holds one, or polls the frame.
    pub(super) fn add_reference(&self) {
        let state = self.0.fetch_add(REFERENCE, Relaxed);
        refuse(has_many_references(state));
    }

    /// Releases a reference. Returns `true` for the last one of a frame that is done: the caller frees it.
    pub(super) fn release_reference(&self) -> bool {
        let is_last = |state: usize| state & DONE != 0 && state / REFERENCE == 1;
        is_last(self.0.load(Acquire)) || is_last(self.0.fetch_sub(REFERENCE, AcqRel))
    }

    /// Releases the owner's reference to a frame that is not done. Of a frame that is, the owner keeps it for now.
    pub(super) fn release_owner(&self) -> OwnerRelease {
        let mut state = self.0.load(Acquire);
        loop {
            if state & DONE != 0 {
                return match state / REFERENCE == 1 {
                    true => OwnerRelease::Last,
                    false => OwnerRelease::Shared,
                };
            }
            let next = state.wrapping_sub(REFERENCE) | UNOWNED;
            match self.0.compare_exchange_weak(state, next, AcqRel, Acquire) {
                Err(now) => state = now,
                Ok(_) => return OwnerRelease::Left,
            }
        }
    }

    /// Wakes the frame, and releases what the caller holds, in one step.
    #[inline]
    pub(super) fn wake(&self, held: Holding) -> Wake {
        let (held, heeded) = match held {
            Holding::Nothing => (0, 0),
            Holding::Reference => (REFERENCE, 0),
            Holding::Await => (AWAIT, 0),
            Holding::MovableAwait => (AWAIT, MOVED),
        };
        let mut state = self.0.load(Relaxed);
        loop {
            if state & heeded != 0 {
                return Wake::Moved;
            }
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

    /// Returns whether a waker is registered. Exact for the thread that polls or holds the frame, except that it may be gone.
    #[inline]
    pub(super) fn is_moved(&self) -> bool {
        self.0.load(Relaxed) & MOVED != 0
    }

    /// Notes whether a waker is registered. The caller holds the lock of the strand.
    #[cold]
    pub(super) fn set_moved(&self, moved: bool) {
        match moved {
            true => self.0.fetch_or(MOVED, AcqRel),
            false => self.0.fetch_and(!MOVED, AcqRel),
        };
    }

    /// Notes that a waker of another executor was woken for an await that has ended. A wake of the frame follows.
    #[cold]
    pub(super) fn set_announced(&self) {
        self.0.fetch_or(ANNOUNCED, AcqRel);
    }

    /// Returns whether such an await has ended since the poll before this one. The caller polls the frame.
    pub(super) fn is_announced(&self) -> bool {
        self.0.load(Acquire) & ANNOUNCED != 0
    }

    /// Ends a poll after which the frame waits. Returns `true` if it was woken during the poll: then it is still busy, and the
    /// caller queues it.
    pub(super) fn suspend(&self, pending: PendingCounts) -> bool {
        let pending = pending.word();
        let mut state = self.0.load(Relaxed);
        loop {
            let notified = state & NOTIFIED != 0;
            let counted = state.wrapping_add(pending);
            refuse(has_many(counted));
            let next = counted & !(if notified { NOTIFIED } else { BUSY } | ANNOUNCED);
            match self.0.compare_exchange_weak(state, next, AcqRel, Relaxed) {
                Err(now) => state = now,
                Ok(_) => return notified,
            }
        }
    }

    /// Applies changes of the counts during a poll. The end of the poll draws the conclusions.
    #[cold]
    pub(super) fn apply(&self, pending: PendingCounts) {
        let pending = pending.word();
        refuse(has_many_references(
            self.0.fetch_add(pending, AcqRel).wrapping_add(pending),
        ));
    }

    /// Ends a poll after which the caller queues the frame. It stays busy, and its next poll serves all wakes so far.
    #[inline]
    pub(super) fn requeue(&self, pending: PendingCounts) {
        let pending = pending.word();
        let mut state = self.0.load(Relaxed);
        // A wake that this load misses is seen at the end of the next poll. So without a change nothing is written.
        while pending != 0 || state & (NOTIFIED | ANNOUNCED) != 0 {
            let counted = state.wrapping_add(pending);
            refuse(has_many(counted));
            match (self.0).compare_exchange_weak(state, counted & !(NOTIFIED | ANNOUNCED), AcqRel, Relaxed) {
                Err(now) => state = now,
                Ok(_) => return,
            }
        }
    }

    /// Returns whether an await is in flight. Without a future none begins, so `false` is final.
    pub(super) fn has_awaits(&self, pending: PendingCounts) -> bool {
        self.0.load(Acquire).wrapping_add(pending.word()) % REFERENCE / AWAIT != 0
    }

    /// Finishes a private frame: with the pending changes the owner's reference is the only one, no await is left, and the
    /// frame was not woken. The owner neither wakes the frame nor releases its reference before the frame is done.
    #[inline]
    pub(super) fn try_finish_private(&self, pending: PendingCounts) -> bool {
        let is_private = self.0.load(Acquire).wrapping_add(pending.word()) == REFERENCE | BUSY;
        if is_private {
            // No other thread changes the word, so a store suffices. This thread holds the references that are pending to
            // be released. A thread that ended an await does not touch the word again.
            self.0.store(REFERENCE | DONE, Release);
        }
        is_private
    }

    /// Finishes a frame whose future was dropped, unless an await is in flight, or its result is to be dropped first.
    pub(super) fn finish(&self, pending: PendingCounts, has_result: bool) -> Finish {
        let pending = pending.word();
        let mut state = self.0.load(Acquire);
        loop {
            let counted = state.wrapping_add(pending);
            if counted % REFERENCE / AWAIT != 0 {
                return Finish::Waits;
            }
            if has_result && counted & UNOWNED != 0 && counted / REFERENCE != 0 {
                return Finish::Unowned;
            }
            let next = (counted & !(BUSY | NOTIFIED | ANNOUNCED)) | DONE;
            match self.0.compare_exchange_weak(state, next, AcqRel, Acquire) {
                Err(now) => state = now,
                Ok(_) if counted / REFERENCE == 0 => return Finish::Free,
                Ok(_) => return Finish::Done,
            }
        }
    }
}

/// Returns whether there are too many references. While the frame is busy, either count may be below zero, and awaits below zero
/// borrow from the references.
#[inline]
fn has_many_references(state: usize) -> bool {
    state.cast_signed() / REFERENCE.cast_signed() > MANY.cast_signed()
}

/// Returns whether a count is about to overflow. All pending changes are applied, so neither count is below zero.
#[inline]
fn has_many(state: usize) -> bool {
    state / REFERENCE > MANY || state % REFERENCE / AWAIT > MANY
}

/// Aborts when a count is about to overflow, as the reference counts of the standard library do.
#[inline]
fn refuse(too_many: bool) {
    if too_many {
        std::process::abort();
    }
}
