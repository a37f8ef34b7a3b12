//! The frame of a task: one allocation with a header, a future and its result. It is also the node of its scheduler's queue.
//!
//! This is the first layer of `task`. It knows nothing of contexts, units or types of tasks. It reads the first field of each:
//! a [`Placement`] and a [`Tracker`].
//!
//! # Key types
//!
//! - [`Header`] is the part that all frames share. Its functions are sorted by what happens to a frame: [`start`], [`run`],
//!   [`child`], [`finish`], [`wake`], [`ownership`].
//! - [`FrameState`] is the state word: three flags and two counts. The table beside it has every transition.
//! - [`Polling`] is the token that proves that the calling thread polls a frame.
//! - [`FrameMemory`] holds the blocks of what a frame awaits.
//!
//! # Who may access which field, and when
//!
//! | field | accessed by |
//! |---|---|
//! | `entry` | the thread that queues the frame, then the queue, then the polling thread; `link` under the tracker's lock |
//! | `state` | any thread that holds a reference or an await |
//! | `stopped` | any thread that holds a reference or an await, before a wake |
//! | `placement`, `tracker`, `successor` | written before the frame is shared. `placement` also by the polling thread, for the length of a scope |
//! | `next_sibling`, and the link in `successor` | the thread that polls the parent |
//! | everything else, with the future and the memory | the polling thread |
//!
//! The *polling thread* runs a busy frame. It took the frame from a queue, or made the frame busy and runs it at once. It has
//! exclusive access until it suspends or finishes the frame.
//!
//! # States
//!
//! ```text
//!  unstarted ──begin──▶ busy ──poll──▶ idle ──wake──▶ busy … ──future dropped──▶ ending ──no await left──▶ done
//! ```
//!
//! When the future has returned or was dropped, everything that it began and did not await to the end is asked to stop: its
//! blocks, see [`memory`], and its children, see [`awaited`]. The frame is done after the last of those has ended. Only then its
//! parent or its operation is told. No thread blocks for it.
//!
//! # Why it is sound
//!
//! - Only the thread that changes an idle frame to `BUSY` queues it, and a queue gives it to one thread. So one thread polls it.
//! - A frame is freed by its last reference, and only if it is done. Wakers and futures that point into the memory hold references.
//! - A frame is not done while an await is counted. So an operation in flight may point at the frame, its memory and its context.
//! - The polling thread adds its own changes of the counts in the same step that ends the poll. Between two polls the counts are exact.

mod aside;
mod awaited;
mod blocks;
mod child;
mod finish;
mod flags;
mod home;
mod memory;
mod ownership;
mod placement;
mod polling;
mod run;
mod scope;
mod start;
mod state;
mod stopping;
mod successor;
mod together;
mod tracker;
mod vtable;
mod wake;
mod waker;

use core::cell::Cell;
use core::ptr::{self, NonNull};

pub(super) use self::child::Polled;
use self::flags::Flags;
pub(super) use self::home::Home;
pub(super) use self::memory::BlockContent;
use self::memory::FrameMemory;
pub(super) use self::placement::Placement;
pub(super) use self::polling::{Polling, Turn};
pub(super) use self::scope::{ContextScope, Stops};
use self::state::{FrameState, PendingCounts};
pub(super) use self::stopping::Stopping;
pub(super) use self::successor::FrameSuccessor;
use self::successor::SuccessorSlot;
pub(super) use self::tracker::{Tracker, by_number};
pub(super) use self::vtable::FrameVtable;
pub(super) use self::waker::{frame_of, waker};
use crate::Transfer;
use crate::scheduler::thread_pool::Entry;
use crate::sender::current;
use crate::sync::atomic::AtomicBool;

/// The part that all frames share. It is the first field of each, so a pointer to it is a pointer to the frame.
#[repr(C)]
pub(crate) struct Header {
    /// Waits in the queue of the task's scheduler. First, so that its address is the frame's.
    entry: Entry,
    vtable: &'static FrameVtable,
    state: FrameState,
    /// Changes of the counts in `state` that were not applied yet.
    pending: Cell<PendingCounts>,
    /// Something that was awaited has stopped: the future is not polled again, but dropped. Stored with relaxed ordering, by
    /// the polling thread or before a wake, which publishes it.
    stopped: AtomicBool,
    /// How many frames beneath this one, on the same stack, are being polled.
    nested: Cell<u8>,
    flags: Flags,
    /// How often the frame was [requeued](Polling::requeue). The number wraps.
    turns: Cell<u8>,
    /// Where the task runs. Null before its start; valid until it is done. While it is polled, that of the innermost scope
    /// that the poll is in.
    placement: Cell<*const Placement>,
    /// The tracker of the frame's strand. Null before the start; valid until the frame is done.
    tracker: Cell<*const Tracker>,
    /// What is told that the task is done. Of a child, half of its place among those of the parent: see [`successor`].
    successor: SuccessorSlot,
    /// The last of the children that are to run when the poll is over, or null. They are in no queue, and so are linked by
    /// their jobs, the last to the first. Of a frame that is queued, or that waits to be freed: the next of those.
    child: Cell<*mut Header>,
    /// The first of the children that are awaited and were pending, or null: see [`awaited`].
    awaited: Cell<*mut Header>,
    /// The next among those of the parent, or null. Belongs to the thread that polls the parent.
    next_sibling: Cell<*mut Header>,
    memory: FrameMemory,
}

/// Two cache lines. Atomics of a model are larger.
const _: () = assert!(size_of::<Header>() <= 16 * size_of::<usize>() || cfg!(loom));

impl Header {
    #[inline(always)]
    pub(super) fn new(vtable: &'static FrameVtable) -> Self {
        Header {
            entry: Entry::new(Header::resume),
            vtable,
            state: FrameState::new(),
            pending: Cell::new(PendingCounts::default()),
            stopped: AtomicBool::new(false),
            nested: Cell::new(0),
            flags: Flags::new(),
            turns: Cell::new(0),
            placement: Cell::new(ptr::null()),
            tracker: Cell::new(ptr::null()),
            successor: SuccessorSlot::new(),
            child: Cell::new(ptr::null_mut()),
            awaited: Cell::new(ptr::null_mut()),
            next_sibling: Cell::new(ptr::null_mut()),
            memory: FrameMemory::new(),
        }
    }

    /// The frame that this thread polls, and works for.
    #[inline]
    pub(super) fn current() -> Option<NonNull<Header>> {
        NonNull::new(current::frame().cast_mut().cast())
    }

    /// Whether this thread polls the frame, and works for it.
    #[inline]
    pub(super) fn is_current(this: NonNull<Header>) -> bool {
        ptr::eq(current::frame(), this.as_ptr().cast())
    }

    /// Whether the poll of the frame is the innermost one on this stack.
    #[inline]
    pub(super) fn is_beneath(this: NonNull<Header>) -> bool {
        ptr::eq(current::frame_beneath(), this.as_ptr().cast())
    }

    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(super) unsafe fn placement(this: NonNull<Header>) -> NonNull<Placement> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().placement.get().cast_mut()) }
    }

    /// The tracker of the frame's strand.
    ///
    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(super) unsafe fn tracker(this: NonNull<Header>) -> NonNull<Tracker> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().tracker.get().cast_mut()) }
    }

    /// The node that waits in the queues.
    #[inline]
    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// A link for a list of frames that are queued. It is null while the frame is not in that list.
    #[inline]
    pub(super) fn link(&self) -> &Cell<*mut Header> {
        // A frame that is queued has no child that is to run.
        &self.child
    }

    /// Whether it stays on its thread.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    pub(super) unsafe fn is_local(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.vtable.is_local
    }

    /// Replaces the context of the frame, and returns the one before.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running, and puts that back before it returns.
    pub(super) unsafe fn replace_placement(this: NonNull<Header>, placement: NonNull<Placement>) -> NonNull<Placement> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().placement.replace(placement.as_ptr()).cast_mut()) }
    }

    #[inline]
    /// Notes a change of the counts by the polling thread. The end of the poll applies it.
    fn add_pending(&self, awaits: i16, references: i16) {
        let pending = self.pending.get().with(awaits, references);
        self.pending.set(pending.unwrap_or_else(|| {
            // There is room for so many at a time.
            self.state.apply(self.pending.get());
            PendingCounts::new(awaits, references)
        }));
    }
}

/// A frame that is known to be alive: one that is held, is to run, or waits to be freed.
fn header_of<'a>(frame: NonNull<Header>) -> &'a Header {
    // SAFETY: a held frame is busy, and so alive; and the others were not freed.
    unsafe { frame.as_ref() }
}
