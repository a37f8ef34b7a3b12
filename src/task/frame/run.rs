//! The run loop: from a frame to the child that it awaits, and back.
//!
//! [`Header::resume`] is the job of every frame. It polls the frame, then the child that the frame awaits, then the parent of a
//! child that is done, until the frame at hand has to wait. So deep chains of awaits take memory, and no stack.
//!
//! Frames between the first one and the one that is polled are *held*: busy, and waiting for their child. A child that finishes while
//! its parent is held costs its parent no atomic operation.

use core::ptr::NonNull;

use super::aside::publish;
use super::finish::{finish, suspend};
use super::flags::Flag;
use super::together::{enqueue_together, resume_together};
use super::{FrameSuccessor, Header, Tracker, header_of};
use crate::sender::current::{self, Poll};
use crate::{Job, Transfer};

/// How many frames of schedulers that have no queue are polled in the middle of one another.
const NESTED_INLINE: u8 = 4;

impl Header {
    /// Polls a frame, and sees to the plain cases: that it has to wait, and that it is done, and known to its operation
    /// alone.
    ///
    /// # Safety
    ///
    /// The job is that of a frame that is busy and in no queue.
    pub(super) unsafe fn resume(job: NonNull<Job>) -> Transfer {
        let frame = job.cast::<Header>();
        let header = header_of(frame);
        if header.entry.is_marked() {
            if header.entry.leads() {
                // SAFETY: by the caller's promise.
                return unsafe { resume_together(frame) };
            }
            // SAFETY: as above.
            unsafe { Tracker::dequeue(frame) };
        }
        if !current::may_poll() || header.flags.has(Flag::Polled) {
            // SAFETY: by the caller's promise.
            return unsafe { resume_slowly(frame) };
        }
        header.nested.set(0);
        let poll = Poll::new(frame.as_ptr().cast(), publish);
        // SAFETY: it is busy, and polled by this thread. It does not unwind.
        let done = poll.enter_first(|| unsafe { (header.vtable.poll)(frame) });
        if done || !header.child.get().is_null() {
            // SAFETY: as above.
            return unsafe { polled(frame, &poll, done) };
        }
        let resumed = poll.into_later();
        // SAFETY: as above. From here on others may poll it.
        let next = unsafe { suspend(frame) };
        if resumed.is_none() {
            core::mem::forget(resumed);
            return next;
        }
        resumed.and(next)
    }
}

/// Goes on after the first poll of a frame that is done, or has set children aside.
///
/// # Safety
///
/// The frame is busy, and in no queue; the caller has polled it.
#[inline(never)]
unsafe fn polled(frame: NonNull<Header>, poll: &Poll, done: bool) -> Transfer {
    let header = header_of(frame);
    let FrameSuccessor { whom, complete } = header.successor();
    if let Some(complete) = complete.filter(|_| header.child.get().is_null()) {
        let mut resumed = poll.take_later();
        // SAFETY: as above. An operation does nothing before it is completed.
        if unsafe { finish(frame, true, &mut resumed) } {
            // SAFETY: the operation waits for this.
            return unsafe { complete(NonNull::new_unchecked(whom)) }.and(resumed);
        }
        poll.keep(resumed);
    }
    // SAFETY: as above.
    unsafe { run(frame, poll, Some(done)) }
}

/// Resumes a frame where it may not be polled, or was polled inside its parent already.
///
/// # Safety
///
/// The frame is busy, and in no queue.
#[cold]
#[inline(never)]
unsafe fn resume_slowly(frame: NonNull<Header>) -> Transfer {
    if !current::may_poll() {
        // SAFETY: it is busy, so its context is valid.
        if unsafe { Header::placement(frame).as_ref() }.home.has_queue() {
            // SAFETY: by the caller's promise.
            return unsafe { enqueue_together(frame) };
        }
        // It is where it belongs: it runs here, or, where that is too deep, when the poll beneath is over.
        if current::depth() >= NESTED_INLINE {
            // SAFETY: by the caller's promise.
            return current::run_later(unsafe { Transfer::to(frame.cast::<Job>()) });
        }
    }
    let poll = Poll::new(frame.as_ptr().cast(), publish);
    // SAFETY: by the caller's promise.
    unsafe { run(frame, &poll, None) }
}

/// Resumes a frame where it may run: right after what the caller does, or, in the middle of a poll, by its queue.
///
/// # Safety
///
/// The frame is busy, and in no queue. It may run, and be gone, before this returns.
#[inline]
pub(super) unsafe fn resume_here(frame: NonNull<Header>) -> Transfer {
    // SAFETY: it is busy, so its context is valid; the rest is the caller's promise.
    unsafe {
        if current::may_poll() || !Header::placement(frame).as_ref().home.has_queue() {
            Transfer::to(frame.cast::<Job>())
        } else {
            enqueue_together(frame)
        }
    }
}

/// Polls a frame, then what it awaits, then what awaits it, for as long as there is something to do.
///
/// The frames between `base`, which the caller made busy, and the one that is polled are held. When the frame at the bottom has
/// to wait, all of them are suspended. `polled` is what the first poll has come to, if the caller has seen to that.
///
/// # Safety
///
/// The frame is busy, and in no queue.
#[inline(never)]
unsafe fn run(mut base: NonNull<Header>, poll: &Poll, mut polled: Option<bool>) -> Transfer {
    let mut frame = base;
    // Runs when all of this is over.
    let mut resumed = Transfer::none();
    loop {
        let header = header_of(frame);
        let done = match (polled.take(), header.flags.replace(Flag::Polled, false)) {
            (Some(done), _) => done,
            (None, true) => false,
            (None, false) => {
                header.nested.set(0);
                poll.set_frame(frame.as_ptr().cast());
                if !resumed.is_none() {
                    // Where it is found, should the poll block.
                    poll.keep(core::mem::take(&mut resumed));
                }
                // SAFETY: it is busy, and polled by this thread. It does not unwind.
                poll.enter(|| unsafe { (header.vtable.poll)(frame) })
            }
        };
        resumed.append(poll.take_later());
        let FrameSuccessor { whom, complete } = header.successor();
        if let Some(child) = header.take_child() {
            while let Some(sibling) = header.take_child() {
                // SAFETY: it is busy, and in no queue.
                resumed.append(unsafe { Transfer::to(sibling.cast::<Job>()) });
            }
            if !done {
                frame = child;
                continue;
            }
            // The future has ended without them. They are stopped below, and run by themselves.
            // SAFETY: as above.
            resumed.append(unsafe { Transfer::to(child.cast::<Job>()) });
        }
        let wanders = frame == base && header.vtable.wanders;
        // An operation does nothing before it is completed. A future that awaits a child may be sent away, and dropped.
        let owner_waits = complete.is_some();
        // SAFETY: it is busy, and polled by this thread. Where it is done it may be gone then.
        if !done || !unsafe { finish(frame, owner_waits, &mut resumed) } {
            // SAFETY: the frames from here to the base are held.
            return unsafe { suspend_all(frame, base, resumed) };
        }
        // SAFETY: a task that was started has a continuation.
        let whom = unsafe { NonNull::new_unchecked(whom) };
        if let Some(complete) = complete {
            // SAFETY: the operation waits for this.
            return unsafe { complete(whom) }.and(resumed);
        }
        let parent = whom.cast::<Header>();
        if frame == base {
            let mut here = false;
            // SAFETY: it counts this child.
            let next = unsafe {
                Header::end_wait(parent, |placement| {
                    here = (!wanders || placement.is_here()) && current::may_poll();
                    here
                })
            };
            if !here {
                return next.and(resumed);
            }
            // It is polled right here.
            core::mem::forget(next);
            base = parent;
        } else {
            header_of(parent).add_pending(-1, 0);
        }
        frame = parent;
    }
}

/// Suspends a frame that has to wait, and those that are held for it.
///
/// # Safety
///
/// The frames from this one to the base are busy, and the caller polls them.
unsafe fn suspend_all(mut frame: NonNull<Header>, base: NonNull<Header>, mut resumed: Transfer) -> Transfer {
    loop {
        // Before it is suspended, after which it may be gone.
        let above = header_of(frame).whom();
        // SAFETY: by the caller's promise.
        resumed.append(unsafe { suspend(frame) });
        match NonNull::new(above) {
            Some(parent) if frame != base => frame = parent.cast(),
            _ => return resumed,
        }
    }
}
