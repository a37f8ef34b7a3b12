//! Polling frames: from a frame to the child that it awaits, and back, in a loop.
//!
//! [`Header::resume`] is the job of every frame. It polls the frame, and then what that awaits, and then what awaits that, for
//! as long as there is something to do. So depth costs memory and never stack.
//!
//! A child that is ready at once costs least inside the poll of its parent, so a few frames are polled inside one another. The
//! next one is *set aside*: it runs when the poll at the bottom is over, and the frames between are *held* for it: busy, and
//! waiting for their child. A child that is done while its parent is held costs its parent no atomic operation.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::state::{Finish, Held, Suspend};
use super::{ContextScope, Continuation, Header, Polling, Tracker, header_of};
use crate::scheduler::thread_pool::{Entry, Worker};
use crate::sender::current::{self, Gathered, Poll};
use crate::sync::per_thread;
use crate::{Job, Panic, Priority, Transfer};

/// How many frames are polled inside one another before they are polled in turn.
const NESTED_POLLS: u8 = 4;

/// How many frames of schedulers that have no queue are polled in the middle of one another.
const NESTED_INLINE: u8 = 4;

/// How many frames that were resumed in the middle of a poll wait in the queue of a pool as one.
const TOGETHER: u8 = 32;

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
        inner.continuation.set(Continuation::parent(this));
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
            core::mem::forget(Header::begin_in(child, placement, tracker, Continuation::parent(this)));
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
            && header.orphans.get() == 0
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
            inner.polled.set(!done);
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

    /// Sets a child aside, to run when the poll is over.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running. The child is busy, and in no queue.
    unsafe fn set_aside(this: NonNull<Header>, child: NonNull<Header>) {
        let first = match NonNull::new(header_of(this).child.replace(child.as_ptr())) {
            Some(last) => {
                let first = header_of(last).next();
                header_of(last).set_next(child.as_ptr());
                first
            }
            None => child.as_ptr(),
        };
        header_of(child).set_next(first);
    }

    /// The sibling that is to run after this one, or the first.
    fn next(&self) -> *mut Header {
        self.entry.job().next().cast()
    }

    fn set_next(&self, sibling: *mut Header) {
        self.entry.job().set_next(sibling.cast());
    }

    /// Takes the first of the children that were set aside.
    #[inline]
    fn take_child(&self) -> Option<NonNull<Header>> {
        let last = NonNull::new(self.child.get())?;
        let first = header_of(last).next();
        if first == last.as_ptr() {
            self.child.set(ptr::null_mut());
        } else {
            header_of(last).set_next(header_of(NonNull::new(first)?).next());
        }
        NonNull::new(first)
    }

    /// Takes a child out of those that were set aside. `false` where it is not one of them: it runs, or has run.
    ///
    /// # Safety
    ///
    /// The caller is what the parent's poll is running.
    unsafe fn recall(parent: NonNull<Header>, child: NonNull<Header>) -> bool {
        let parent = header_of(parent);
        let Some(last) = NonNull::new(parent.child.get()) else {
            return false;
        };
        let mut before = last;
        loop {
            let at = header_of(before).next();
            if at == child.as_ptr() {
                break;
            }
            match NonNull::new(at) {
                Some(at) if at != last => before = at,
                _ => return false,
            }
        }
        if before == child {
            parent.child.set(ptr::null_mut());
        } else {
            header_of(before).set_next(header_of(child).next());
            if last == child {
                parent.child.set(before.as_ptr());
            }
        }
        true
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
        let parent = NonNull::new(header_of(child).continuation.get().whom.cast::<Header>())
            .filter(|parent| Header::is_current(*parent));
        // SAFETY: the caller's promise: a child whose parent is polled by this thread was set aside by that poll, or not at all.
        // What was recalled is busy, and in no queue.
        unsafe {
            let tied = parent.is_some_and(|parent| Header::untie(parent, child));
            let held = if tied { Held::Reference } else { Held::Nothing };
            if Header::is_done(child) && !tied {
                return;
            }
            let Some(parent) = parent.filter(|parent| Header::recall(*parent, child)) else {
                Header::stop(child);
                return Header::wake(child, held, |_| false).run();
            };
            // The reference of the list was not applied yet.
            header_of(child).add_pending(0, -i32::from(tied));
            if header_of(child).nested.get() == 0 {
                // It was never polled. Its owner frees it as one that was not started.
                Header::unbegin(child);
                return header_of(parent).add_pending(-1, 0);
            }
            Header::stop(child);
            header_of(child).polled.set(false);
            Header::enqueue(child).run();
        }
    }

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
        if !current::may_poll() || header.polled.get() {
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
    let Continuation { whom, complete } = header.continuation.get();
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
unsafe fn enqueue_together(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    // SAFETY: it is busy, so its context is valid.
    let is_plain = unsafe { header.child.get().is_null() && !header.polled.get() && Polling::new(frame).is_default() };
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
unsafe fn resume_together(frame: NonNull<Header>) -> Transfer {
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
        let done = match (polled.take(), header.polled.replace(false)) {
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
        let Continuation { whom, complete } = header.continuation.get();
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
        let above = header_of(frame).continuation.get().whom;
        // SAFETY: by the caller's promise.
        resumed.append(unsafe { suspend(frame) });
        match NonNull::new(above) {
            Some(parent) if frame != base => frame = parent.cast(),
            _ => return resumed,
        }
    }
}

/// Hands over the children that polls on this stack have set aside: the thread is about to block.
///
/// # Safety
///
/// The frame is the one that this thread polls.
unsafe fn publish(frame: *const ()) -> Transfer {
    let mut resumed = Transfer::none();
    let mut at = NonNull::new(frame.cast::<Header>().cast_mut());
    while let Some(frame) = at {
        let header = header_of(frame);
        // SAFETY: the frame is polled by this thread, and so are those that it is nested in.
        resumed.append(unsafe { publish_children(frame) });
        at = match header.nested.get() {
            0 => None,
            _ => NonNull::new(header.continuation.get().whom.cast()),
        };
    }
    resumed
}

/// # Safety
///
/// The calling thread polls the frame, or holds it.
#[cold]
pub(super) unsafe fn publish_children(frame: NonNull<Header>) -> Transfer {
    let mut resumed = Transfer::none();
    while let Some(child) = header_of(frame).take_child() {
        // SAFETY: it is busy, and in no queue. Its parent counts it, and learns of its end.
        unsafe {
            if header_of(child).polled.replace(false) {
                // It waits for children of its own, which are set aside as well.
                resumed.append(publish_children(child));
                resumed.append(suspend(child));
            } else {
                resumed.append(Transfer::to(child.cast::<Job>()));
            }
        }
    }
    resumed
}

/// Ends the poll of a frame that waits for something.
///
/// # Safety
///
/// The frame is busy, and the caller polls it. It may be gone when this returns.
#[inline]
unsafe fn suspend(frame: NonNull<Header>) -> Transfer {
    let header = header_of(frame);
    // SAFETY: by the caller's promise.
    unsafe { header.sweep() };
    match header.state.suspend(header.pending.take()) {
        Suspend::Idle => Transfer::none(),
        // It was woken meanwhile, and gets in line again.
        // SAFETY: it is still busy, so its context is valid; it is in no queue.
        Suspend::Enqueue => unsafe { Header::enqueue_in(Header::placement(frame), frame) },
    }
}

/// Ends the poll of a frame whose result is there, unless something that it began is in flight: then it is not done.
///
/// # Safety
///
/// As for [`suspend`]. `owner_waits` says that the owner neither wakes the frame nor gives up its reference before the frame is
/// done. The frame is not the current one.
unsafe fn finish(frame: NonNull<Header>, owner_waits: bool, resumed: &mut Transfer) -> bool {
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
    if owner_waits && pending.is_zero() && header.state.is_private() {
        header.state.finish_private();
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
    if has_left(header) && !header.is_ending.replace(true) {
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
    // It is swept as a whole, when all has ended.
    header.orphans.set(0);
    // SAFETY: by the caller's promise. Children that were set aside have begun to run, or are about to.
    unsafe {
        let polling = Polling::new(frame);
        header.memory.abandon(polling, |transfer| resumed.append(transfer));
        Header::stop_awaited(frame, resumed);
    }
}

/// How many frames are freed inside one another before they wait for each other.
const NESTED_FREES: usize = 16;

per_thread! {
    /// How many frames this thread is freeing, inside one another; and those that wait until the innermost is.
    static FREEING: Cell<(usize, *mut Header)> = Cell::new((0, ptr::null_mut()));
}

/// Frees a frame, with its future or result. A few frames that are inside one another are freed one inside the other, as
/// everything in Rust is. Where they go deeper, those further in wait for those further out, which they may: they borrow
/// nothing.
///
/// # Safety
///
/// No other thread uses the frame any more.
pub(super) unsafe fn free(frame: NonNull<Header>) {
    /// One level less, also when a destructor unwinds.
    struct Level;
    impl Drop for Level {
        fn drop(&mut self) {
            FREEING.with(|freeing| freeing.set((freeing.get().0 - 1, freeing.get().1)));
        }
    }

    let (nested, waiting) = FREEING.with(Cell::get);
    if nested > NESTED_FREES {
        header_of(frame).child.set(waiting);
        FREEING.with(|freeing| freeing.set((nested, frame.as_ptr())));
        return;
    }
    FREEING.with(|freeing| freeing.set((nested + 1, waiting)));
    let _level = Level;
    if nested < NESTED_FREES {
        // SAFETY: by the caller's promise.
        unsafe { (header_of(frame).vtable.free)(frame) };
    } else {
        // SAFETY: as above.
        unsafe { free_all(frame) };
    }
}

/// Frees a frame, and those that come to wait meanwhile. Goes on with the first panic when all of them are gone.
///
/// # Safety
///
/// As for [`free`].
#[cold]
unsafe fn free_all(mut frame: NonNull<Header>) {
    let mut panicked = None;
    loop {
        // SAFETY: by the caller's promise; and what waits is freed here.
        if let Err(payload) = Panic::catch(|| unsafe { (header_of(frame).vtable.free)(frame) }) {
            panicked.get_or_insert(payload);
        }
        let (nested, first) = FREEING.with(Cell::get);
        let Some(first) = NonNull::new(first) else { break };
        FREEING.with(|freeing| freeing.set((nested, header_of(first).child.get())));
        frame = first;
    }
    if let Some(payload) = panicked {
        payload.resume();
    }
}
