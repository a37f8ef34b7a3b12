//! Awaiting a child: a frame that is polled in the poll of its parent.
//!
//! A child that is ready at once is cheapest when it is polled inside the poll of its parent. So a few frames are polled inside one
//! another. A child beyond that is [set aside](super::aside).

use core::ptr::NonNull;

use super::finish::{finish, suspend};
use super::flags::Flag;
use super::state::Holding;
use super::{FrameSuccessor, Header, Polling, header_of};
use crate::Transfer;
use crate::sender::current;

/// How many frames are polled inside one another before they are polled in turn.
const NESTED_POLLS: u8 = 4;

/// What a first poll has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) enum Polled {
    /// It waits for something.
    Pending,
    /// The result is in the frame.
    Done,
    /// The result was moved out, and the frame freed.
    Gone,
}

impl Header {
    /// Starts a child, and polls it right here. While that is pending, this frame waits for it.
    ///
    /// # Safety
    ///
    /// The child was not started. There is room for its result.
    #[inline]
    pub(in crate::task) unsafe fn await_child(
        polling: Polling<'_>,
        child: NonNull<Header>,
        room: NonNull<()>,
    ) -> Polled {
        let this = polling.frame();
        let (header, inner) = (header_of(this), header_of(child));
        let nested = header.nested.get() + 1;
        let poll = current::poll();
        let Some(poll) = poll.filter(|_| nested != NESTED_POLLS && inner.vtable.adopt.is_none()) else {
            // SAFETY: by the caller's promise.
            unsafe { Header::await_later(this, child) };
            return Polled::Pending;
        };
        // No other thread knows it.
        inner.nested.set(nested);
        inner.placement.set(header.placement.get());
        inner.tracker.set(header.tracker.get());
        inner.set_successor(FrameSuccessor::parent(this));
        inner.state.begin();
        let placement = polling.placement();
        placement.enter();
        poll.change_frame(child.as_ptr().cast());
        // SAFETY: it is busy, and polled by this thread; there is room. It does not unwind.
        let polled = unsafe { (inner.vtable.poll_here)(child, room) };
        poll.change_frame(this.as_ptr().cast());
        if polled == Polled::Gone {
            placement.exit();
            return Polled::Gone;
        }
        // SAFETY: as above.
        unsafe { Header::settle(this, child, polled == Polled::Done) }
    }

    /// Sets a child aside, to run when the poll is over, and makes this frame wait for it.
    ///
    /// # Safety
    ///
    /// As for [`await_child`](Header::await_child).
    #[cold]
    unsafe fn await_later(this: NonNull<Header>, child: NonNull<Header>) {
        // SAFETY: the caller's promise. The context is valid until this frame is done, or its scope is left; both wait for the
        // child.
        unsafe {
            header_of(this).add_pending(1, 0);
            let (placement, tracker) = (Header::placement(this), Header::tracker(this));
            core::mem::forget(Header::begin_in(
                child,
                placement,
                tracker,
                FrameSuccessor::parent(this),
            ));
            Header::tie(this, child);
            Header::set_aside(this, child);
        }
    }

    /// Whether a frame that has a result leaves nothing behind, and is known to its owner alone.
    ///
    /// # Safety
    ///
    /// The caller polls it.
    #[inline]
    pub(in crate::task) unsafe fn is_alone(this: NonNull<Header>) -> bool {
        let header = header_of(this);
        header.pending.get().is_zero()
            && header.child.get().is_null()
            && header.awaited.get().is_null()
            && header.state.is_private()
            && !header.memory.has_blocks()
    }

    /// Ends the turn of a child that was polled by its parent and waits, or is known to others. Its end wakes the parent.
    ///
    /// # Safety
    ///
    /// The caller polls both.
    #[inline(never)]
    unsafe fn settle(this: NonNull<Header>, child: NonNull<Header>, done: bool) -> Polled {
        let (header, inner) = (header_of(this), header_of(child));
        header.add_pending(1, 0);
        if !inner.child.get().is_null() {
            inner.flags.set(Flag::Polled, !done);
            // SAFETY: it is busy, and in no queue.
            unsafe {
                Header::tie(this, child);
                Header::set_aside(this, child);
            }
            return Polled::Pending;
        }
        let mut resumed = Transfer::none();
        // SAFETY: it is busy, and polled by this thread; its owner is being polled, and waits for what this returns.
        let polled = unsafe {
            if done && finish(child, true, &mut resumed) {
                header.add_pending(-1, 0);
                Polled::Done
            } else {
                Header::tie(this, child);
                resumed.append(suspend(child));
                Polled::Pending
            }
        };
        // SAFETY: the caller polls it.
        unsafe { Polling::new(this) }.resume_later(resumed);
        polled
    }

    /// Ends a child that is not awaited any more, if it is not done: its future is dropped where it runs, by the thread that
    /// polls it. The parent is not done before that. Nothing waits here, so of a chain of tasks the outer futures are dropped
    /// before the inner ones.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started, and gives up its reference next.
    #[cold]
    pub(in crate::task) unsafe fn abandon(child: NonNull<Header>) {
        let parent =
            NonNull::new(header_of(child).whom().cast::<Header>()).filter(|parent| Header::is_current(*parent));
        // SAFETY: the caller's promise: a child whose parent is polled by this thread was set aside by that poll, or not at all.
        // What was recalled is busy, and in no queue.
        unsafe {
            let tied = parent.is_some_and(|parent| Header::untie(parent, child));
            let held = if tied { Holding::Reference } else { Holding::Nothing };
            if Header::is_done(child) && !tied {
                return;
            }
            let Some(parent) = parent.filter(|parent| Header::recall(*parent, child)) else {
                Header::stop(child);
                return Header::wake(child, held, |_| false).run();
            };
            // The reference of the list was not applied yet.
            header_of(child).add_pending(0, -i16::from(tied));
            if header_of(child).nested.get() == 0 {
                // It was never polled. Its owner frees it as one that was not started.
                Header::unbegin(child);
                return header_of(parent).add_pending(-1, 0);
            }
            Header::stop(child);
            header_of(child).flags.set(Flag::Polled, false);
            Header::enqueue(child).run();
        }
    }
}
