//! The frame of a task: one allocation with a header, a future and its result. It is also the node of its scheduler's queue.
//!
//! This is the first layer of `task`. Of a context and a unit it knows the first fields: a [`Placement`] and a [`Tracker`].
//!
//! # Key types
//!
//! - [`Header`] is the part that all frames share. Its functions are sorted by event: [`start`], [`run`], [`child`], [`finish`],
//!   [`wake`], [`ownership`].
//! - [`FrameState`] is the state word: six flags and two counts. The table beside it has every transition.
//! - [`Polling`] proves that the calling thread polls a frame.
//! - A [`Block`] of a frame's [memory] holds something that the frame awaits.
//!
//! # Who may access which field, and when
//!
//! | field | accessed by |
//! |---|---|
//! | `entry` | the thread that queues the frame, then the queue, then the polling thread; `link` under the tracker's lock. Its level is also raised, under that lock or the owner's |
//! | `state` | any thread that holds a reference or an await |
//! | `stopped` | any thread that holds a reference or an await, before a wake |
//! | `placement`, `whom`, `second`, and the pointer to the tracker | written before the frame is shared. `placement` also by the polling thread, for the length of a scope |
//! | `next_sibling`, and the link in `second` | the thread that polls the parent; of a spawned child, its group under its lock |
//! | everything else, with the future and the memory | the polling thread |
//!
//! The *polling thread* took a busy frame from a queue, or made it busy and runs it at once. It has exclusive access until
//! it suspends or finishes the frame.
//!
//! # States
//!
//! ```text
//!  unstarted ──begin──▶ busy ──poll──▶ idle ──wake──▶ busy … ──future dropped──▶ ending ──no await left──▶ done
//! ```
//!
//! After the future was dropped, everything that it left in flight is asked to stop: its blocks (see [`memory`]) and its
//! children (see [`awaited`]). The frame is done when the last of those has ended. Then its successor is told. No thread blocks.
//!
//! # Why it is sound
//!
//! - Only the thread that changes an idle frame to `BUSY` queues it, and a queue gives it to one thread. So one thread polls it.
//! - A frame is freed by its last reference, after it is done. Wakers and futures that point into the memory hold references.
//! - A frame is not done while an await is counted. So an operation in flight may point at the frame, its memory and its context.
//! - The polling thread applies its own changes of the counts when it ends the poll. So they are exact between two polls.

mod activity;
mod aside;
mod awaited;
mod child;
mod finish;
mod flags;
mod home;
#[cfg(feature = "inspect")]
mod hooks;
mod memory;
mod moved;
mod ownership;
mod polling;
mod run;
mod scope;
mod start;
mod state;
mod stopping;
mod tracker;
mod tracker_place;
mod vtable;
mod wake;
mod waker;

use core::cell::Cell;
use core::ptr::{self, NonNull};

pub(super) use self::activity::{Activity, AwaitNotes, Awaited, NotedDeadline, Site, TaskNumber};
#[cfg(feature = "inspect")]
pub(super) use self::activity::{ActivityKind, ActivityLook};
pub(super) use self::child::Polled;
use self::flags::Flags;
pub(super) use self::home::Home;
#[cfg(feature = "inspect")]
pub(super) use self::hooks::PollHooks;
use self::memory::BlockHead;
pub(super) use self::memory::{Block, BlockContent};
pub(super) use self::polling::{Polling, Turn};
pub(super) use self::scope::{ContextScope, Placement, ScopeMark, Stops};
use self::start::SecondWord;
pub(super) use self::start::{Complete, FrameSuccessor};
use self::state::{FrameState, PendingCounts};
pub(super) use self::stopping::Stopping;
pub(super) use self::tracker::{Tracker, by_number};
pub(super) use self::tracker_place::{Borrowed, TrackerPlace};
pub(super) use self::vtable::FrameVtable;
pub(super) use self::wake::WokenFrame;
pub(super) use self::waker::{frame_of, waker};
use crate::scheduler::thread_pool::Entry;
use crate::sender::current;
use crate::sync::atomic::AtomicBool;

/// The part that all frames share. The first field of each, so a pointer to it is a pointer to the frame.
#[repr(C)]
pub(crate) struct Header {
    /// The node in the queue of the scheduler. First, so that its address is the frame's.
    entry: Entry,
    vtable: &'static FrameVtable,
    state: FrameState,
    /// Changes of the counts in `state` that were not applied yet.
    pending: Cell<PendingCounts>,
    /// Whether the future is dropped instead of polled again. Stored with relaxed ordering by the polling thread, or before
    /// a wake, which publishes it: see [`FrameState`].
    stopped: AtomicBool,
    /// How many polls of other frames this frame's poll is nested in.
    nested: Cell<u8>,
    flags: Flags,
    /// How often the frame was [requeued](Polling::requeue), modulo 256.
    turns: Cell<u8>,
    /// How many awaits that were dropped in flight may be in the memory. From 255 on it is not exact.
    orphans: Cell<u8>,
    /// The number of polls until the frame looks for orphans that have ended.
    sweep_after: Cell<u8>,
    /// The placement of the innermost scope around the poll. Null before the start; valid until the frame is done.
    placement: Cell<*const Placement>,
    /// The operation or the parent that is told when the frame is done, or the group of a spawned child. Null before the start.
    whom: Cell<*mut ()>,
    /// The completion of the operation, or a link in the list of the parent or the group: see [`start`].
    second: Cell<SecondWord>,
    /// The last of the children that were [set aside](aside), or null. Links frames that are queued, or wait to be freed.
    child: Cell<*mut Header>,
    /// The first of the pending children that are awaited, or null: see [`awaited`].
    awaited: Cell<*mut Header>,
    /// The next child of the parent's list or of the group's, or null.
    next_sibling: Cell<*mut Header>,
    /// The block before the one that is looked at next, or null: see [`memory`].
    blocks: Cell<*mut BlockHead>,
    /// Where the task was made.
    made_at: Cell<Site>,
}

/// The header is two cache lines. Atomics of a model are larger, and with inspection there is one more word.
const _: () = assert!(size_of::<Header>() <= 16 * size_of::<usize>() || cfg!(any(loom, feature = "inspect")));

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
            orphans: Cell::new(0),
            sweep_after: Cell::new(0),
            placement: Cell::new(ptr::null()),
            whom: Cell::new(ptr::null_mut()),
            second: Cell::new(SecondWord {
                previous: ptr::null_mut(),
            }),
            child: Cell::new(ptr::null_mut()),
            awaited: Cell::new(ptr::null_mut()),
            next_sibling: Cell::new(ptr::null_mut()),
            blocks: Cell::new(ptr::null_mut()),
            made_at: Cell::new(Site::default()),
        }
    }

    /// Returns the frame that this thread polls and works for.
    #[inline]
    pub(super) fn current() -> Option<NonNull<Header>> {
        NonNull::new(current::frame().cast_mut().cast())
    }

    /// Returns whether this thread polls the frame and works for it.
    #[inline]
    pub(super) fn is_current(this: NonNull<Header>) -> bool {
        ptr::eq(current::frame(), this.as_ptr().cast())
    }

    /// Returns whether the poll of the frame is the innermost one on this stack.
    #[inline]
    pub(super) fn is_beneath(this: NonNull<Header>) -> bool {
        ptr::eq(current::frame_beneath(), this.as_ptr().cast())
    }

    /// Returns the placement of the frame.
    ///
    /// # Safety
    ///
    /// The frame has started and is not done.
    #[inline]
    pub(super) unsafe fn placement(this: NonNull<Header>) -> NonNull<Placement> {
        // SAFETY: the frame is not done, so it is alive; `begin_in` set a placement.
        unsafe { NonNull::new_unchecked(this.as_ref().placement.get().cast_mut()) }
    }

    /// Returns the tracker of the frame's strand.
    ///
    /// # Safety
    ///
    /// The frame has started and is not done.
    #[inline]
    pub(super) unsafe fn tracker(this: NonNull<Header>) -> NonNull<Tracker> {
        // SAFETY: the frame is not done, so it is alive; `begin_in` set a tracker.
        unsafe { this.as_ref().vtable.tracker.find(this) }
    }

    /// Returns where the task was made.
    ///
    /// # Safety
    ///
    /// The frame is alive, and the caller has exclusive access to it.
    #[inline]
    pub(super) unsafe fn made_at(this: NonNull<Header>) -> Site {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.made_at.get()
    }

    /// Sets where the task was made.
    ///
    /// # Safety
    ///
    /// As for [`made_at`](Header::made_at).
    #[inline]
    pub(super) unsafe fn set_made_at(this: NonNull<Header>, site: Site) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.made_at.set(site);
    }

    /// Returns the link for a list of queued frames. It is null while the frame is not in that list.
    #[inline]
    pub(super) fn link(&self) -> &Cell<*mut Header> {
        // A queued frame has set no children aside, so the word is unused.
        &self.child
    }

    /// Returns whether the frame stays on its thread.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    pub(super) unsafe fn is_local(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.vtable.is_local
    }

    /// Replaces the context of the frame, and returns the previous one.
    ///
    /// # Safety
    ///
    /// The calling thread polls the frame, and restores the previous context before it returns.
    pub(super) unsafe fn replace_placement(this: NonNull<Header>, placement: NonNull<Placement>) -> NonNull<Placement> {
        // SAFETY: a frame that is polled is alive and has a placement.
        unsafe { NonNull::new_unchecked(this.as_ref().placement.replace(placement.as_ptr()).cast_mut()) }
    }

    /// Notes a change of the counts by the polling thread. The end of the poll applies it.
    #[inline]
    fn add_pending(&self, awaits: i8, references: i8) {
        let pending = self.pending.get().with(awaits, references);
        self.pending.set(pending.unwrap_or_else(|| {
            // The cell overflows: apply the changes so far.
            self.state.apply(self.pending.get());
            PendingCounts::new(awaits, references)
        }));
    }
}

/// Returns the header of a frame that is alive: one that is held, is to run, or waits to be freed.
fn header_of<'a>(frame: NonNull<Header>) -> &'a Header {
    // SAFETY: a held frame is busy, and a busy frame is alive; the others were not freed yet.
    unsafe { frame.as_ref() }
}
