//! Frames that share one entry in the queue of a pool.

use core::ptr::{self, NonNull};

use super::flags::Flag;
use super::{Header, Polling, header_of};
use crate::scheduler::thread_pool::{Entry, Worker};
use crate::sender::current::{self, Gathered};
use crate::{Job, Priority, Transfer};

/// How many frames that were resumed during a poll share one entry.
const TOGETHER: u8 = 32;

/// Queues a frame that was resumed during a poll. Several such frames, like the children of a cancelled group, share one
/// entry. They are alike, and every thread of their pool is busy, so no thread would take one of them now.
///
/// Frames that share an entry are not raised: they are about to run.
///
/// # Safety
///
/// The frame is busy and in no queue. It may run, and be freed, before this returns.
#[cold]
#[inline(never)]
pub(super) unsafe fn enqueue_together(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    // Only frames of the default level share an entry, because the entry has one level.
    // SAFETY: a busy frame has a valid context, and the caller has exclusive access.
    let is_plain =
        unsafe { header.child.get().is_null() && !header.flags.has(Flag::Polled) && Polling::new(frame).is_default() };
    if !is_plain || !current::may_gather() {
        // SAFETY: the caller promises a busy frame in no queue.
        return unsafe { Header::enqueue(frame) };
    }
    // A frame with the same placement joins the gathered ones: they have one home.
    let gathered = current::replace_gathered(None);
    if let Some(Gathered { first, many, .. }) = gathered
        && let Some(leader) = NonNull::new(first.cast::<Header>().cast_mut())
        && header_of(leader).placement.get() == header.placement.get()
        && many < TOGETHER
    {
        // SAFETY: this thread owns both frames. Neither has set children of its own aside: `is_plain` of each.
        unsafe { Header::set_aside(leader, frame) };
        let many = many + 1;
        current::replace_gathered(Some(Gathered { first, many, hand_over }));
        return Transfer::none();
    }
    // The frame starts a new entry, so the gathered ones are queued first.
    // SAFETY: the gathered frames were taken above, and are queued once.
    let before = gathered.map(|gathered| unsafe { hand_over(gathered.first) });
    // SAFETY: a busy frame has a valid context.
    let next = if unsafe { Header::placement(frame).as_ref() }.home.is_busy_pool() {
        current::replace_gathered(Some(Gathered {
            first: frame.as_ptr().cast(),
            many: 1,
            hand_over,
        }));
        Transfer::none()
    } else {
        // SAFETY: the caller promises a busy frame in no queue.
        unsafe { Header::enqueue(frame) }
    };
    before.unwrap_or_default().and(next)
}

/// Queues a frame, with those that wait behind it.
///
/// # Safety
///
/// The caller owns the gathered frames. All of them may be freed when this returns.
unsafe fn hand_over(first: *const ()) -> Transfer {
    let Some(leader) = NonNull::new(first.cast::<Header>().cast_mut()) else {
        return Transfer::none();
    };
    let header = header_of(leader);
    // SAFETY: the frame is busy and in no queue, so its context is valid. It is not tracked, so no other thread raises it.
    unsafe {
        if header.child.get().is_null() {
            return Header::enqueue(leader);
        }
        header.entry.set_level(Priority::Default);
        header.entry.set_leads(true);
        let home = Header::placement(leader).as_ref().home;
        home.enqueue(leader.cast::<Entry>())
    }
}

/// Resumes a frame that has left its queue. Those behind it run next, or are taken by other threads.
///
/// # Safety
///
/// The frame is busy, and was popped from the queue of a pool.
#[inline(never)]
pub(super) unsafe fn resume_together(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    header.entry.set_leads(false);
    // SAFETY: the frames are busy and in no queue. Those behind the first are not tracked, so no other thread raises them.
    unsafe {
        let mut resumed = Transfer::to(frame.cast::<Job>());
        let Some(last) = NonNull::new(header.child.replace(ptr::null_mut())) else {
            return resumed;
        };
        // The ring of set-aside frames becomes a list of jobs.
        let first = header_of(last).next();
        header_of(last).set_next(ptr::null_mut());
        let others = Transfer::from_raw(first.cast());
        let mut others = match Worker::current() {
            Some(worker) => worker.shelve(others),
            None => others,
        };
        while let Some(other) = others.pop() {
            resumed.append(Header::enqueue(other.cast()));
        }
        resumed
    }
}
