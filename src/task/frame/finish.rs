//! The end of a poll: the frame suspends, or finishes when nothing that its future began is in flight.

use core::ptr::NonNull;

use super::flags::Flag;
use super::ownership::free;
use super::state::{Finish, Suspend};
use super::{ContextScope, Header, Polling, header_of};
use crate::Transfer;

/// Ends the poll of a frame that waits for something.
///
/// # Safety
///
/// The frame is busy, and the caller polls it. It may be gone when this returns.
#[inline]
pub(super) unsafe fn suspend(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    // SAFETY: by the caller's promise.
    unsafe { header.memory.sweep_some() };
    if header.flags.has(Flag::Requeued) {
        // SAFETY: by the caller's promise.
        return unsafe { requeue(frame) };
    }
    match header.state.suspend(header.pending.take()) {
        Suspend::Idle => Transfer::none(),
        // It was woken meanwhile, and gets in line again.
        // SAFETY: it is still busy, so its context is valid; it is in no queue.
        Suspend::Enqueue => unsafe { Header::enqueue_in(Header::placement(frame), frame) },
    }
}

/// Ends the poll of a frame that is polled again in its next turn. The frame stays busy. So if nothing else has changed, this
/// takes no atomic operation but those of the queue.
///
/// # Safety
///
/// As for [`suspend`].
unsafe fn requeue(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    header.flags.set(Flag::Requeued, false);
    header.turns.set(header.turns.get().wrapping_add(1));
    header.state.requeue(header.pending.take());
    // SAFETY: it is busy, so its context is valid; it is in no queue.
    unsafe { Header::enqueue_in(Header::placement(frame), frame) }
}

/// Ends the poll of a frame whose result is there, unless something that it began is in flight: then it is not done.
///
/// # Safety
///
/// As for [`suspend`]. `owner_waits` says that the owner neither wakes the frame nor gives up its reference before the frame is
/// done. The frame is not the current one.
pub(super) unsafe fn finish(frame: NonNull<Header>, owner_waits: bool, resumed: &mut Transfer) -> bool {
    let leave_scope = |scope: Option<NonNull<ContextScope>>| {
        if let Some(scope) = scope {
            // SAFETY: the frame was a user of the scope, whose frame waits for this one.
            unsafe { scope.as_ref() }.exit();
        }
    };
    let header = header_of(frame);
    // Read before the context goes.
    // SAFETY: the frame is not done, so its context is valid.
    let scope = unsafe { Header::placement(frame).as_ref() }.scope;
    let is_plain = !has_left(header) && header.vtable.leave.is_none() && scope.is_none();
    // SAFETY: by the caller's promise.
    if !is_plain && !unsafe { leave(frame, resumed) } {
        return false;
    }
    let pending = header.pending.get();
    if owner_waits && header.state.try_finish_private(pending) {
        leave_scope(scope);
        return true;
    }
    let finish = header.state.finish(pending);
    if finish == Finish::Waits {
        assert!(is_plain, "an await began when the future was gone");
        return false;
    }
    // From here on its owner may free the frame.
    leave_scope(scope);
    if finish == Finish::Free {
        // SAFETY: the owner has given its reference up, and that was the last.
        unsafe { free(frame) };
    }
    true
}

/// Whether the future has left something that may be in flight: blocks, or children that it awaited.
#[inline]
fn has_left(header: &Header) -> bool {
    header.memory.has_blocks() || !header.awaited.get().is_null()
}

/// Ends what a frame has besides its result: its blocks, and its own context. `false` where something that it began is in flight.
///
/// # Safety
///
/// As for [`finish`].
#[inline(never)]
unsafe fn leave(frame: NonNull<Header>, resumed: &mut Transfer) -> bool {
    let header = header_of(frame);
    if has_left(header) && !header.flags.replace(Flag::Ending, true) {
        // SAFETY: by the caller's promise.
        unsafe { end(frame, resumed) };
    }
    if header.state.has_awaits(header.pending.get()) {
        return false;
    }
    if header.memory.has_blocks() {
        // All that was left in flight has ended, and goes before the task is done.
        // SAFETY: by the caller's promise.
        unsafe { header.memory.sweep() };
    }
    if let Some(leave) = header.vtable.leave {
        // SAFETY: by the caller's promise. Nothing that was awaited is left, and nothing comes: the future is gone.
        unsafe { leave(frame) };
    }
    true
}

/// Asks what the future left in flight to stop.
///
/// # Safety
///
/// As for [`finish`]. It is called once.
#[cold]
unsafe fn end(frame: NonNull<Header>, resumed: &mut Transfer) {
    let header = header_of(frame);
    // SAFETY: by the caller's promise. Children that were set aside have begun to run, or are about to.
    unsafe {
        let polling = Polling::new(frame);
        header.memory.abandon(polling, |transfer| resumed.append(transfer));
        Header::stop_awaited(frame, resumed);
    }
}
