//! Awaiting a child: a frame that is polled inside the poll of its parent.
//!
//! A nested poll is cheapest for a child that is ready at once. A child beyond [`NESTED_POLLS`] is [set
//! aside](super::aside).

use core::ptr::NonNull;

use super::finish::{finish, has_left, suspend};
use super::flags::Flag;
use super::state::{Finish, Holding, PendingCounts};
use super::{FrameSuccessor, Header, Polling, header_of};
use crate::Transfer;
use crate::sender::current;

/// How many frames are polled inside one another before a child is set aside.
const NESTED_POLLS: u8 = 4;

/// The outcome of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) enum Polled {
    /// The frame waits for something.
    Pending,
    /// The result is in the frame.
    Done,
    /// The result was moved out, and the frame freed.
    Gone,
}

impl Header {
    /// Starts a child, and polls it on this stack. While the child is pending, this frame waits for it.
    ///
    /// # Safety
    ///
    /// The child was not started. `room` is valid for a write of its result.
    // Always: this has one caller, whose future knows the types.
    #[inline(always)]
    pub(in crate::task) unsafe fn await_child(
        polling: Polling<'_>,
        child: NonNull<Header>,
        room: NonNull<()>,
    ) -> Polled {
        let this = polling.frame();
        let (header, inner) = (header_of(this), header_of(child));
        if header.flags.has(Flag::Handled) {
            inner.flags.set(Flag::Handled, true);
        }
        let nested = header.nested.get() + 1;
        // A child with its own context may have another home, so it is not polled here.
        if nested == NESTED_POLLS || inner.vtable.adopt.is_some() {
            // SAFETY: this thread polls the frame, and the caller promises that the child was not started.
            unsafe { Header::await_later(this, child) };
            return Polled::Pending;
        }
        inner.nested.set(nested);
        inner.placement.set(header.placement.get());
        // SAFETY: the child was not started, and an awaited task is not a spawned child. This frame waits for it.
        unsafe { Header::borrow_tracker(child, this) };
        inner.set_successor(FrameSuccessor::parent(this));
        inner.state.begin();
        // The child uses the context until it is done.
        let placement = polling.placement();
        placement.enter();
        // SAFETY: this thread works for the frame, until the call returns.
        let poll = unsafe { current::poll() };
        poll.change_frame(child.as_ptr().cast());
        // SAFETY: this thread made the child busy. The caller promises the room. `poll` does not unwind.
        let polled = unsafe { (inner.vtable.poll)(child, Some(room)) };
        poll.change_frame(this.as_ptr().cast());
        if polled == Polled::Gone {
            placement.exit();
            return Polled::Gone;
        }
        // SAFETY: this thread polls both frames.
        unsafe { Header::settle(this, child, polled == Polled::Done) }
    }

    /// Sets a child aside, and makes this frame wait for it.
    ///
    /// # Safety
    ///
    /// The caller polls this frame. The child was not started.
    #[cold]
    unsafe fn await_later(this: NonNull<Header>, child: NonNull<Header>) {
        // SAFETY: the context is valid until this frame is done and its scope left, and both wait: by the count, and by `begin_in`.
        unsafe {
            header_of(this).add_pending(1, 0);
            let (placement, tracker) = (Header::placement(this), Header::tracker(this));
            let successor = FrameSuccessor::parent(this);
            Header::begin_in(child, placement, tracker, successor);
            Header::set_aside(this, child);
        }
    }

    /// Returns whether a frame with a result has nothing in flight, and is known to its owner alone.
    ///
    /// # Safety
    ///
    /// The caller polls the frame.
    #[inline]
    pub(in crate::task) unsafe fn is_alone(this: NonNull<Header>) -> bool {
        let header = header_of(this);
        // A frame without awaits has set no children aside.
        header.pending.get().is_zero() && header.state.is_private() && !has_left(header)
    }

    /// Ends the first poll of a child that waits, or that other threads know. The end of the child wakes the parent.
    ///
    /// # Safety
    ///
    /// The caller polls both.
    #[inline(never)]
    unsafe fn settle(this: NonNull<Header>, child: NonNull<Header>, done: bool) -> Polled {
        let (header, inner) = (header_of(this), header_of(child));
        // The parent counts the child as an await before another thread can end it.
        header.add_pending(1, 0);
        // A child that set children aside stays busy: the run loop polls those first.
        if !inner.child.get().is_null() {
            inner.flags.set(Flag::Polled, !done);
            // SAFETY: the child is busy and in no queue; this thread polls its parent.
            unsafe { Header::set_aside(this, child) };
            return Polled::Pending;
        }
        let mut resumed = Transfer::none();
        // SAFETY: this thread polls the busy child. Its owner is the future being polled, which waits for this call.
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
        // SAFETY: the caller polls this frame.
        unsafe { Polling::new(this) }.resume_later(resumed);
        polled
    }

    /// Marks a frame with a result as [ended](Flag::Ended), if nothing is in flight and only its owner and parent know it. Such
    /// a frame is set aside once more, so that the poll of its parent can take the result.
    ///
    /// Its second turn, if the parent has not done that, finishes it as any other frame.
    pub(super) fn try_leave_to_parent(&self) -> bool {
        // SAFETY: the caller polls the frame, which is not done, so its context is valid.
        let in_scope = unsafe { &*self.placement.get() }.scope.is_some();
        !in_scope
            && self.pending.get().is_zero()
            && self.vtable.leave.is_none()
            && !has_left(self)
            && self.state.is_private()
            && !self.flags.replace(Flag::Ended, true)
    }

    /// Finishes a child that was set aside after it had [ended](Flag::Ended). Returns `false` if the child is not such a one.
    ///
    /// # Safety
    ///
    /// The calling thread polls this frame. The caller owns the child, which was started.
    #[inline]
    pub(in crate::task) unsafe fn end_held(this: NonNull<Header>, child: NonNull<Header>) -> bool {
        let (header, inner) = (header_of(this), header_of(child));
        // Such a child was set aside before the poll, and so is the first.
        let is_first = NonNull::new(header.child.get()).is_some_and(|last| header_of(last).next() == child.as_ptr());
        if !is_first || !inner.flags.has(Flag::Ended) {
            return false;
        }
        header.take_child();
        header.add_pending(-1, 0);
        // The owner waits for this call. Nothing of the child is in flight, and no count of it is pending.
        let none = PendingCounts::default();
        inner.state.try_finish_private(none) || inner.state.finish(none, true) == Finish::Done
    }

    /// Stops a child that is not awaited any more. The thread that polls it drops its future; the parent is done after
    /// that. Nothing blocks, so in a chain of tasks the outer futures are dropped before the inner ones.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started, and releases its reference next.
    #[cold]
    pub(in crate::task) unsafe fn abandon(child: NonNull<Header>) {
        // Only the thread that polls the parent may access its lists.
        let parent =
            NonNull::new(header_of(child).whom.get().cast::<Header>()).filter(|parent| Header::is_current(*parent));
        // SAFETY: the owner's reference keeps the child alive. `untie` and `recall` run only if this thread polls the
        // parent. A recalled child is busy and in no queue.
        unsafe {
            if parent.is_some_and(|parent| Header::end_held(parent, child)) {
                return;
            }
            let tied = parent.is_some_and(|parent| Header::untie(parent, child));
            let held = if tied { Holding::Reference } else { Holding::Nothing };
            if Header::is_done(child) && !tied {
                return;
            }
            // A child that was not set aside runs elsewhere, or waits: a wake makes its polling thread drop the future.
            let Some(parent) = parent.filter(|parent| Header::recall(*parent, child)) else {
                Header::stop(child);
                return Header::wake(child, held, |_| false).run();
            };
            if header_of(child).nested.get() == 0 {
                // The child was never polled. Its owner frees it like one that was not started.
                Header::unbegin(child);
                header_of(parent).add_pending(-1, 0);
                // No end of the child wakes the parent, whose poll may have noted that it waits for the child.
                return Header::poll_again(parent).run();
            }
            // It was polled inside its parent: its next turn drops the future.
            Header::stop(child);
            header_of(child).flags.set(Flag::Polled, false);
            Header::enqueue(child).run();
        }
    }
}
