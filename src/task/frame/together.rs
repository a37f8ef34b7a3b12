//! Frames that wait in the queue of a pool as one entry.

use core::ptr::{self, NonNull};

use super::flags::Flag;
use super::{Header, Polling, header_of};
use crate::scheduler::thread_pool::{Entry, Worker};
use crate::sender::current::{self, Gathered};
use crate::{Job, Priority, Transfer};

/// How many frames that were resumed in the middle of a poll wait in the queue of a pool as one.
const TOGETHER: u8 = 32;

/// Queues a frame that was resumed in the middle of a poll. Of many, such as the children of a group that is cancelled, a few wait
/// in the queue as one: they are alike, and all threads of their pool are at work, so none would take one of them now.
///
/// Meanwhile they are not raised, as they are about to run.
///
/// # Safety
///
/// The frame is busy, and in no queue. It may run, and be gone, before this returns.
#[cold]
#[inline(never)]
pub(super) unsafe fn enqueue_together(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    // SAFETY: it is busy, so its context is valid.
    let is_plain =
        unsafe { header.child.get().is_null() && !header.flags.has(Flag::Polled) && Polling::new(frame).is_default() };
    if !is_plain || !current::may_gather() {
        // SAFETY: by the caller's promise.
        return unsafe { Header::enqueue(frame) };
    }
    let gathered = current::replace_gathered(None);
    if let Some(Gathered { first, many, .. }) = gathered
        && let Some(leader) = NonNull::new(first.cast::<Header>().cast_mut())
        // So they have one home, and one level.
        && header_of(leader).placement.get() == header.placement.get()
        && many < TOGETHER
    {
        // SAFETY: both are busy, in no queue, and this thread's. A frame that is queued has no children set aside.
        unsafe { Header::set_aside(leader, frame) };
        let many = many + 1;
        current::replace_gathered(Some(Gathered { first, many, hand_over }));
        return Transfer::none();
    }
    // SAFETY: they are handed over this once.
    let before = gathered.map(|gathered| unsafe { hand_over(gathered.first) });
    // SAFETY: it is busy, so its context is valid.
    let next = if unsafe { Header::placement(frame).as_ref() }.home.is_busy_pool() {
        current::replace_gathered(Some(Gathered {
            first: frame.as_ptr().cast(),
            many: 1,
            hand_over,
        }));
        Transfer::none()
    } else {
        // SAFETY: by the caller's promise.
        unsafe { Header::enqueue(frame) }
    };
    before.unwrap_or_default().and(next)
}

/// Queues a frame, with those that wait behind it.
///
/// # Safety
///
/// It was gathered, with those. All of them may be gone when this returns.
unsafe fn hand_over(first: *const ()) -> Transfer {
    let Some(leader) = NonNull::new(first.cast::<Header>().cast_mut()) else {
        return Transfer::none();
    };
    let header = header_of(leader);
    // SAFETY: it is busy, so its context is valid; it is in no queue, and not tracked. Another thread cannot raise it.
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

/// Resumes a frame that has left its queue. Those that wait behind it are next, and others can take them.
///
/// # Safety
///
/// The frame is busy, and in no queue. It was taken out of the queue of a pool.
#[inline(never)]
pub(super) unsafe fn resume_together(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    header.entry.set_leads(false);
    // SAFETY: the frames are busy, and in no queue. Those behind the first are not tracked, so they are not raised.
    unsafe {
        let mut resumed = Transfer::to(frame.cast::<Job>());
        let Some(last) = NonNull::new(header.child.replace(ptr::null_mut())) else {
            return resumed;
        };
        // They are linked in a circle, from the last to the first.
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
