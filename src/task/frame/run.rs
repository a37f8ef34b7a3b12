//! The run loop: from a frame to the child that it awaits, and back.
//!
//! [`Header::resume`] is the job of every frame. It polls the frame, then the child that it awaits, then the parent of a
//! child that is done. It returns when a frame has to wait. So deep chains of awaits use memory, and no stack.
//!
//! The frames between the first one and the polled one are *held*: busy, and waiting for their child. A child that finishes
//! costs its held parent no atomic operation. If only its owner knows it, neither does its own end: it is [set
//! aside](super::aside) once more, and the poll of its parent takes the result.

use core::ptr::NonNull;

use super::aside::{publish, publish_child};
use super::finish::{finish, finish_at_once, suspend};
use super::flags::Flag;
use super::{FrameSuccessor, Header, Polled, Tracker, header_of};
use crate::sender::current::{self, Poll};
use crate::{Job, Transfer};

/// How many frames of schedulers without a queue are polled inside one another.
const NESTED_INLINE: u8 = 4;

impl Header {
    /// Polls a frame. Handles the common cases here: the frame waits, or is done and known to its operation alone.
    ///
    /// # Safety
    ///
    /// The job is that of a frame that is busy and in no queue.
    pub(super) unsafe fn resume(job: NonNull<Job>) -> Transfer {
        let frame = job.cast::<Header>();
        let header = header_of(frame);
        if header.entry.is_tracked() {
            // SAFETY: the caller promises a busy frame in no queue.
            unsafe { Tracker::dequeue(frame) };
        }
        if !current::may_poll() || header.flags.has(Flag::Polled) {
            // SAFETY: the caller promises a busy frame in no queue.
            return unsafe { resume_slowly(frame) };
        }
        header.nested.set(0);
        // SAFETY: a busy frame is not done.
        unsafe { Header::note_poll(frame) };
        let poll = Poll::new(frame.as_ptr().cast(), publish);
        // SAFETY: this thread owns the busy frame. The vtable's `poll` does not unwind.
        let done = poll.enter_first(|| unsafe { poll_frame(frame) });
        if done || !header.child.get().is_null() {
            // SAFETY: the frame is still busy, and this thread has polled it.
            unsafe {
                if poll.has_later() || !header.child.get().is_null() {
                    return polled(frame, &poll, done);
                }
                let FrameSuccessor { whom, complete } = Header::successor(frame);
                return match complete {
                    // `whom` is the operation, or the frame of a spawned child: both wait for this call.
                    Some(complete) if finish_at_once(frame) => complete(NonNull::new_unchecked(whom)),
                    _ => polled(frame, &poll, done),
                };
            }
        }
        let resumed = poll.into_later();
        // SAFETY: the frame is busy, and this thread has polled it. Afterwards another thread may poll or free it.
        let next = unsafe { suspend(frame) };
        // Nearly always empty: `forget` spares the check of its destructor.
        if resumed.is_none() {
            core::mem::forget(resumed);
            return next;
        }
        resumed.and(next)
    }
}

impl Header {
    /// Notes that a frame is polled next.
    ///
    /// # Safety
    ///
    /// The frame is busy.
    #[inline(always)]
    unsafe fn note_poll(this: NonNull<Header>) {
        // SAFETY: the caller's promise: a busy frame is not done, so its context and its strand are valid.
        unsafe {
            let around = Header::placement(this).as_ref().deadline_around;
            Header::tracker(this).as_ref().activity.runs(around);
        }
    }
}

/// Polls a frame, between the hooks of an instrument if there is one.
///
/// # Safety
///
/// This thread owns the busy frame, and has entered its poll.
#[inline(always)]
unsafe fn poll_frame(frame: NonNull<Header>) -> bool {
    // SAFETY: the caller's promise. The frame is busy until the caller ends the poll, so its strand does not end.
    unsafe {
        #[cfg(feature = "inspect")]
        if let Some(hooks) = super::PollHooks::get() {
            let tracker = Header::tracker(frame);
            (hooks.polled)(tracker);
            let polled = (header_of(frame).vtable.poll)(frame, None);
            (hooks.suspended)(tracker);
            return polled != Polled::Pending;
        }
        (header_of(frame).vtable.poll)(frame, None) != Polled::Pending
    }
}

/// Continues after the first poll of a frame that is done, or has set children aside.
///
/// # Safety
///
/// The frame is busy and in no queue, and the caller has polled it.
#[inline(never)]
unsafe fn polled(frame: NonNull<Header>, poll: &Poll, done: bool) -> Transfer {
    let header = header_of(frame);
    // SAFETY: the caller polls the frame.
    let FrameSuccessor { whom, complete } = unsafe { Header::successor(frame) };
    if let Some(complete) = complete.filter(|_| header.child.get().is_null()) {
        let mut resumed = poll.take_later();
        // SAFETY: the caller polls the busy frame. An operation does nothing before it is completed.
        if unsafe { finish(frame, true, &mut resumed) } {
            // SAFETY: `whom` of a frame with a completion is its operation, or the frame of a spawned child: both wait for this call.
            return unsafe { complete(NonNull::new_unchecked(whom)) }.and(resumed);
        }
        poll.keep(resumed);
    }
    // SAFETY: the frame is not done, so it is still busy and in no queue.
    unsafe { run(frame, poll, Some(done)) }
}

/// Resumes a frame where it may not be polled, or that was polled inside its parent already.
///
/// # Safety
///
/// The frame is busy and in no queue.
#[cold]
#[inline(never)]
unsafe fn resume_slowly(frame: NonNull<Header>) -> Transfer {
    if !current::may_poll() {
        // SAFETY: a busy frame has a valid context.
        if unsafe { Header::placement(frame).as_ref() }.home.has_queue() {
            // SAFETY: the caller promises a busy frame in no queue.
            return unsafe { Header::enqueue_child(frame) };
        }
        // Without a queue the frame is at home on this thread. Beyond the depth limit it runs after the poll below.
        if current::depth() >= NESTED_INLINE {
            // SAFETY: a busy frame is alive until this job has run.
            return current::run_later(unsafe { Transfer::to(frame.cast::<Job>()) });
        }
    }
    let poll = Poll::new(frame.as_ptr().cast(), publish);
    // SAFETY: the caller promises a busy frame in no queue.
    unsafe { run(frame, &poll, None) }
}

/// Resumes a frame that is at home: right after the caller, or by its queue during a poll.
///
/// # Safety
///
/// The frame is busy and in no queue. It may run, and be freed, before this returns.
#[inline]
pub(super) unsafe fn resume_here(frame: NonNull<Header>) -> Transfer {
    // SAFETY: a busy frame has a valid context, and is alive until it has run.
    unsafe {
        if current::may_poll() || !Header::placement(frame).as_ref().home.has_queue() {
            Transfer::to(frame.cast::<Job>())
        } else {
            Header::enqueue_child(frame)
        }
    }
}

/// Polls a frame, then its child or its parent, until a frame has to wait.
///
/// The caller made `base` busy. The frames between `base` and the polled one are held, and suspended together when the last
/// one has to wait. `polled` is the outcome of the first poll, if the caller made it.
///
/// # Safety
///
/// The frame is busy and in no queue.
#[inline(never)]
unsafe fn run(mut base: NonNull<Header>, poll: &Poll, mut polled: Option<bool>) -> Transfer {
    let mut frame = base;
    let mut resumed = Transfer::none();
    loop {
        let header = header_of(frame);
        // A frame with `Polled` set was polled by its parent: only its children run.
        let done = match (polled.take(), header.flags.replace(Flag::Polled, false)) {
            (Some(done), _) => done,
            (None, true) => false,
            (None, false) => {
                header.nested.set(0);
                // SAFETY: a busy frame is not done.
                unsafe { Header::note_poll(frame) };
                poll.set_frame(frame.as_ptr().cast());
                if !resumed.is_none() {
                    // A poll that blocks publishes the jobs kept here.
                    poll.keep(core::mem::take(&mut resumed));
                }
                // SAFETY: this thread owns the busy frame. The vtable's `poll` does not unwind.
                poll.enter(|| unsafe { poll_frame(frame) })
            }
        };
        resumed.append(poll.take_later());
        // Read before `finish`, after which the frame may be freed.
        // SAFETY: this thread polls the frame.
        let FrameSuccessor { whom, complete } = unsafe { Header::successor(frame) };
        // The first child runs here, in place of its parent; its siblings are returned as jobs.
        if let Some(child) = header.take_child() {
            while let Some(sibling) = header.take_child() {
                // SAFETY: this thread holds the frame, and took the child out of the ring.
                resumed.append(unsafe { publish_child(frame, sibling) });
            }
            if !done {
                frame = child;
                continue;
            }
            // The future has ended without its children: `finish` stops them, and they run by themselves.
            // SAFETY: this thread holds the frame, and took the child out of the ring.
            resumed.append(unsafe { publish_child(frame, child) });
        }
        if done && frame != base && header.try_leave_to_parent() {
            // The poll of the held parent takes the result, which needs no atomic operation.
            // SAFETY: this thread holds the parent, which is not null. The child is busy and in no queue.
            unsafe {
                let parent = NonNull::new_unchecked(header.whom.get().cast::<Header>());
                Header::set_aside(parent, frame);
                frame = parent;
            }
            continue;
        }
        let wanders = frame == base && header.vtable.wanders;
        // An operation waits for its completion. The future that owns a child may be sent away, and dropped.
        let owner_waits = complete.is_some();
        // SAFETY: this thread polls the busy frame, and does not use it after it is done.
        if !done || !unsafe { finish(frame, owner_waits, &mut resumed) } {
            // SAFETY: this thread holds the frames from this one to the base.
            return unsafe { suspend_all(frame, base, resumed) };
        }
        // SAFETY: `begin_in` or `await_child` set a successor, which is not null.
        let whom = unsafe { NonNull::new_unchecked(whom) };
        if let Some(complete) = complete {
            // SAFETY: `whom` of a frame with a completion is its operation, or the frame of a spawned child: both wait for this call.
            return unsafe { complete(whom) }.and(resumed);
        }
        let parent = whom.cast::<Header>();
        // The parent of the base is not held: a wake makes it busy. It becomes the new base if it may run here.
        if frame == base {
            let mut here = false;
            // SAFETY: the parent counts this child as an await.
            let next = unsafe {
                Header::end_await(parent, frame.cast(), |placement| {
                    here = (!wanders || placement.is_here()) && current::may_poll();
                    here
                })
            };
            if !here {
                return next.and(resumed);
            }
            // The loop polls the parent itself.
            core::mem::forget(next);
            base = parent;
        } else {
            header_of(parent).add_pending(-1, 0);
            if header_of(parent).state.is_moved() {
                // SAFETY: this thread holds the parent.
                unsafe { Header::wake_moved(parent, frame.cast()) };
            }
        }
        frame = parent;
    }
}

/// Suspends a frame that has to wait, and the frames that are held for it.
///
/// # Safety
///
/// The frames from this one to the base are busy, and the caller holds them.
unsafe fn suspend_all(mut frame: NonNull<Header>, base: NonNull<Header>, mut resumed: Transfer) -> Transfer {
    loop {
        // Read before `suspend`, after which the frame may be freed.
        let above = header_of(frame).whom.get();
        let parent = NonNull::new(above.cast::<Header>()).filter(|_| frame != base);
        // SAFETY: the caller holds the frame, and its parent unless it is the base.
        unsafe {
            if let Some(parent) = parent {
                Header::tie(parent, frame);
            }
            resumed.append(suspend(frame));
        }
        match parent {
            Some(parent) => frame = parent,
            None => return resumed,
        }
    }
}
