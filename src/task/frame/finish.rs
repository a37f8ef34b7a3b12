//! The end of a poll: the frame suspends, or finishes once everything that its future began has ended.

use core::ptr::NonNull;

use super::flags::Flag;
use super::ownership::free;
use super::state::Finish;
use super::{ContextScope, Header, Polling, header_of};
use crate::{Panic, Transfer};

/// Ends the poll of a frame that waits for something.
///
/// # Safety
///
/// The frame is busy, and the caller has polled it: it is not the current one. It may be freed when this returns.
// Always, for `resume`: a hop is a poll and this.
#[inline(always)]
pub(super) unsafe fn suspend(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    // SAFETY: the caller polls the frame. A frame to enqueue is still busy and in no queue, so its context is valid.
    unsafe {
        header.sweep_some();
        let pending = header.pending.take();
        if header.flags.has(Flag::Requeued) {
            // The frame runs again in its next turn. It stays busy, which saves a write of the state word.
            header.flags.set(Flag::Requeued, false);
            header.turns.set(header.turns.get().wrapping_add(1));
            header.state.requeue(pending);
        } else {
            // Before another thread can poll the frame.
            Header::tracker(frame).as_ref().activity.suspends();
            if !header.state.suspend(pending) {
                return Transfer::none();
            }
        }
        Header::enqueue_in(Header::placement(frame), frame)
    }
}

/// Finishes a frame that has a result, if that takes a plain store: it has left nothing in flight, and is known to its owner alone, which
/// neither wakes it nor releases its reference before it is done. Otherwise the caller calls [`finish`].
///
/// # Safety
///
/// As for [`suspend`].
#[inline(always)]
pub(super) unsafe fn finish_at_once(frame: NonNull<Header>) -> bool {
    let header = header_of(frame);
    // SAFETY: the frame is not done, so its context is valid.
    let has_scope = unsafe { Header::placement(frame).as_ref() }.scope.is_some();
    !has_left(header)
        && header.vtable.leave.is_none()
        && !has_scope
        && header.state.try_finish_private(header.pending.get())
}

/// Finishes a frame that has a result. Returns `false` if something that the frame began is in flight; then it is not done.
///
/// # Safety
///
/// As for [`suspend`]. With `owner_waits` the owner neither wakes the frame nor releases
/// its reference before the frame is done.
pub(super) unsafe fn finish(frame: NonNull<Header>, owner_waits: bool, resumed: &mut Transfer) -> bool {
    let leave_scope = |scope: Option<NonNull<ContextScope>>| {
        if let Some(scope) = scope {
            // SAFETY: the frame is a user of the scope until this call, which keeps the scope alive.
            unsafe { scope.as_ref() }.exit();
        }
    };
    let header = header_of(frame);
    // The scope is read before `leave` drops the context.
    // SAFETY: the frame is not done, so its context is valid.
    let scope = unsafe { Header::placement(frame).as_ref() }.scope;
    let is_plain = !has_left(header) && header.vtable.leave.is_none() && scope.is_none();
    // SAFETY: this function asks for the same as `leave`.
    if !is_plain && !unsafe { leave(frame, resumed) } {
        return false;
    }
    // The plain store is cheaper than the read-modify-write below, and most frames are private.
    let pending = header.pending.get();
    if owner_waits && header.state.try_finish_private(pending) {
        leave_scope(scope);
        return true;
    }
    let mut finish = header.state.finish(pending, true);
    if finish == Finish::Unowned {
        // The panic hook has reported a panic of the destructor, and no party is left to receive it.
        // SAFETY: the caller polls the frame. Its future was dropped, so nothing uses the result.
        _ = Panic::catch(|| unsafe { (header.vtable.discard)(frame) }).map_err(Panic::discard);
        finish = header.state.finish(pending, false);
    }
    if finish == Finish::Waits {
        assert!(is_plain, "an await began when the future was gone");
        return false;
    }
    // The frame is done: from here on its owner may free it.
    leave_scope(scope);
    if finish == Finish::Free {
        // SAFETY: `Free` says that no reference is left.
        unsafe { free(frame) };
    }
    true
}

/// Returns whether the future left something that may be in flight: blocks, or children that it awaited.
#[inline]
pub(super) fn has_left(header: &Header) -> bool {
    header.has_blocks() || !header.awaited.get().is_null()
}

/// Ends everything of a frame but its result: its blocks and its own context. Returns `false` if something is in flight.
///
/// # Safety
///
/// As for [`finish`].
#[inline(never)]
unsafe fn leave(frame: NonNull<Header>, resumed: &mut Transfer) -> bool {
    let header = header_of(frame);
    // SAFETY: the caller polls the frame, and has taken all children that were set aside. `Flag::Ending` makes the call of
    // `abandon` the only one. Without a future no await begins, so the context is unused once none is left.
    unsafe {
        if has_left(header) && !header.flags.replace(Flag::Ending, true) {
            // The future has left these in flight: ask them to stop.
            header.abandon_blocks(Polling::new(frame), resumed);
            Header::stop_awaited(frame, resumed);
        }
        if header.state.has_awaits(header.pending.get()) {
            let around = Header::placement(frame).as_ref().deadline_around;
            Header::tracker(frame).as_ref().activity.ends(around);
            return false;
        }
        // No await is left, so every block is the frame's to destroy. That happens before the frame is done.
        header.sweep();
        if let Some(leave) = header.vtable.leave {
            leave(frame);
        }
    }
    true
}
