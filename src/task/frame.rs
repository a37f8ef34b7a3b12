//! The frame of a task: its future, and what polls it.
//!
//! A frame is polled by whoever has made it busy, in [`run`]: a loop that goes from frame to frame as tasks await tasks,
//! so that depth costs memory and never stack.

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::mem::{self, ManuallyDrop};
use core::ptr::{self, NonNull};
use core::task::{RawWaker, RawWakerVTable, Waker};

use super::context::Context;
use super::priority;
use super::unit::Unit;
use super::wait::wait_until;
use crate::scheduler::thread_pool::{Entry, Kind};
use crate::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::per_thread;
use crate::{Job, Panic, Transfer};

/// What all frames have in common. It comes first in each, so that the address of one is that of the other.
#[repr(C)]
pub(crate) struct Header {
    /// Waits in the queue of the task's scheduler. First, so that its address is the frame's.
    entry: Entry,
    vtable: &'static Vtable,
    /// Flags, and two counts of who may still touch the header:
    ///
    /// | flag | means | set by | cleared by |
    /// |---|---|---|---|
    /// | `BUSY` | somebody polls the frame, or it is queued to be polled | who wakes it when it is idle | who polls it, when that is over |
    /// | `NOTIFIED` | it was woken while it was busy, and is queued again afterwards | who wakes it | who polls it |
    /// | `DONE` | the future is gone; there is a result | who polls it | |
    ///
    /// In units of `COUNT`: one for the owner (the operation, or the future that awaits it), and one for each waker.
    /// Whoever takes the last one of a frame that is done frees the memory.
    ///
    /// In units of `AWAIT`: one for each sender or child that it awaits and that will wake it. They are added when the
    /// polling is over, all at once; one that completes before has been subtracted by then, so while the frame is
    /// busy both counts may be off, and mean nothing to anyone but who polls. The frame is not done before this count
    /// is zero, though the future be gone: an await may have been forgotten, or sent away, and uses the context.
    ///
    /// Every change acquires and releases: who polls sees what was done before each wake, and who frees sees everything.
    state: AtomicUsize,
    /// How many awaits began to wait since the frame became busy, less those that were taken back: what is to be added to
    /// the count. Like all but the flag after it, this belongs to whoever polls.
    waits: Cell<i32>,
    /// An awaited sender, or child, has stopped: the future is not polled again, but dropped. Set by who polls, when it
    /// sees that.
    stopped: AtomicBool,
    /// How many frames beneath this one, on the same stack, are being polled.
    nested: Cell<u8>,
    /// It was polled by its parent, and has to wait for a child that is to run. The next who comes to poll it does not.
    polled: Cell<bool>,
    /// Something may be attached to it, which must end before it does.
    attached: Cell<bool>,
    /// Where the task runs. Null before its start; valid until it is done. While it is polled, that of the innermost scope
    /// that the poll is in.
    context: Cell<*const Context>,
    /// The strand that the frame is of. As for the context.
    unit: Cell<*const Unit>,
    continuation: Cell<Continuation>,
    /// The last of the children that are to run when the polling is over, or null. They are in no queue, and so are linked
    /// by their jobs, the last to the first. Of a frame that is queued, or that waits to be freed: the next of those.
    child: Cell<*mut Header>,
    /// What else is to be resumed when the polling is over.
    resumed: UnsafeCell<Transfer>,
}

/// How many frames are polled inside one another before they are polled in turn. A child that is ready at once costs
/// least inside of its parent; and this many take a stack that is as good as constant.
const NESTED_POLLS: u8 = 4;

const BUSY: usize = 1;
const NOTIFIED: usize = 2;
const DONE: usize = 4;
const AWAIT: usize = 8;
/// The awaits have half of the word, and borrow from the other half while there are fewer than none.
const COUNT: usize = 1 << (usize::BITS / 2 + 2);
/// More than this of either is an error of whoever made them.
const MANY: usize = usize::MAX / COUNT / 4;

/// Who learns that the task is done.
#[derive(Clone, Copy)]
pub(super) struct Continuation {
    /// The frame that awaits it; or the operation that it was connected to.
    whom: *mut (),
    /// What the operation does then.
    complete: Option<unsafe fn(NonNull<()>) -> Transfer>,
}

impl Continuation {
    /// Of a task that was not started.
    const NOBODY: Continuation = Continuation {
        whom: ptr::null_mut(),
        complete: None,
    };

    /// `complete` is called with `operation` when the task is done.
    pub(super) fn operation(operation: NonNull<()>, complete: unsafe fn(NonNull<()>) -> Transfer) -> Self {
        Continuation {
            whom: operation.as_ptr(),
            complete: Some(complete),
        }
    }

    fn parent(parent: NonNull<Header>) -> Self {
        Continuation {
            whom: parent.as_ptr().cast(),
            complete: None,
        }
    }
}

/// What a first poll has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// It waits for something.
    Pending,
    /// The result is in the frame.
    Done,
    /// The result was moved out, and the frame freed.
    Gone,
}

/// Makes a frame's own context inside another, and returns it.
pub(super) type Adopt = unsafe fn(NonNull<Header>, NonNull<Context>) -> NonNull<Context>;

/// What is known of the type of a frame.
pub(super) struct Vtable {
    /// Polls the future, or drops it if it is to stop. `true` when it is gone, and the result is there.
    pub(super) poll: unsafe fn(NonNull<Header>) -> bool,
    /// The first poll of a child, on the stack of its parent. Where it is done by that, and nobody else knows it, the result
    /// is moved to where the pointer points, and the frame is gone.
    pub(super) poll_here: unsafe fn(NonNull<Header>, NonNull<()>) -> Polled,
    /// Moves the result to where the pointer points, and frees the memory if it is told to.
    pub(super) take: unsafe fn(NonNull<Header>, NonNull<()>, bool),
    /// Drops what is still there, future or result, and frees the memory.
    pub(super) free: unsafe fn(NonNull<Header>),
    /// Makes the frame's own context, inside another. None where it uses that other.
    pub(super) adopt: Option<Adopt>,
    /// Drops the frame's own context. None where it has none.
    pub(super) leave: Option<unsafe fn(NonNull<Header>)>,
    /// More memory from the allocator that the frame is from.
    pub(super) allocate: unsafe fn(NonNull<Header>, Layout) -> Option<NonNull<u8>>,
    /// Gives that back.
    pub(super) deallocate: unsafe fn(NonNull<Header>, NonNull<u8>, Layout),
    /// Drops the future. The result is this panic.
    pub(super) fail: unsafe fn(NonNull<Header>, Panic),
    /// By its own context it runs anywhere, and so ends where the frame that awaits it need not be at home.
    pub(super) wanders: bool,
    /// It stays on its thread.
    pub(super) is_local: bool,
}

per_thread! {
    /// The frame that this thread polls, or null.
    static CURRENT: Cell<*const Header> = Cell::new(ptr::null());
}

per_thread! {
    /// The frames that this thread polls further down on its stack, where one of them has another one run meanwhile; or null.
    static BENEATH: Cell<*const Beneath> = Cell::new(ptr::null());
}

per_thread! {
    /// How many waits are under way on this stack, and the frames that were set aside meanwhile, by the links of their jobs.
    static WAITING: Cell<(usize, *mut Header)> = Cell::new((0, ptr::null_mut()));
}

/// A frame that is polled while another one runs inside of that, and those further down.
struct Beneath {
    frame: *const Header,
    next: *const Beneath,
}

impl Header {
    #[inline(always)]
    pub(super) fn new(vtable: &'static Vtable) -> Self {
        Header {
            entry: Entry::new(Header::resume),
            vtable,
            state: AtomicUsize::new(COUNT),
            waits: Cell::new(0),
            stopped: AtomicBool::new(false),
            nested: Cell::new(0),
            polled: Cell::new(false),
            attached: Cell::new(false),
            context: Cell::new(ptr::null()),
            unit: Cell::new(ptr::null()),
            continuation: Cell::new(Continuation::NOBODY),
            child: Cell::new(ptr::null_mut()),
            resumed: UnsafeCell::new(Transfer::none()),
        }
    }

    /// The frame that this thread is polling.
    #[inline]
    pub(super) fn is_current(this: NonNull<Header>) -> bool {
        ptr::eq(CURRENT.with(Cell::get), this.as_ptr())
    }

    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(super) unsafe fn context(this: NonNull<Header>) -> NonNull<Context> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().context.get().cast_mut()) }
    }

    /// The strand that the frame is of.
    ///
    /// # Safety
    ///
    /// The task has started and is not done.
    #[inline]
    pub(super) unsafe fn unit(this: NonNull<Header>) -> NonNull<Unit> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().unit.get().cast_mut()) }
    }

    /// The frame that this thread polls.
    #[inline]
    pub(super) fn current() -> Option<NonNull<Header>> {
        NonNull::new(CURRENT.with(Cell::get).cast_mut())
    }

    /// What waits in the queues.
    #[inline]
    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// A link for whoever keeps a list of frames that are queued. It is null while the frame is not in that.
    #[inline]
    pub(super) fn link(&self) -> &Cell<*mut Header> {
        // A frame that is queued was polled to the end, so no child is to run.
        &self.child
    }

    /// Whether it stays on its thread.
    ///
    /// # Safety
    ///
    /// The frame is there.
    pub(super) unsafe fn is_local(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.vtable.is_local
    }

    /// Says that something is attached to the frame.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running.
    pub(super) unsafe fn set_attached(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.attached.set(true);
    }

    /// Puts another context in the place of the frame's, and returns that which was there.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running, and puts that back before it returns.
    pub(super) unsafe fn replace_context(this: NonNull<Header>, context: NonNull<Context>) -> NonNull<Context> {
        // SAFETY: the caller's promise.
        unsafe { NonNull::new_unchecked(this.as_ref().context.replace(context.as_ptr()).cast_mut()) }
    }

    /// More memory from the allocator that the frame is from, if that has some.
    ///
    /// # Safety
    ///
    /// The frame is there.
    pub(super) unsafe fn allocate(this: NonNull<Header>, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.allocate)(this, layout) }
    }

    /// Gives such memory back.
    ///
    /// # Safety
    ///
    /// It is from this frame, of this layout, and not used any more.
    pub(super) unsafe fn deallocate(this: NonNull<Header>, memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.deallocate)(this, memory, layout) };
    }

    /// Has a task end with a panic before it has begun.
    ///
    /// # Safety
    ///
    /// It was not started, and is next.
    #[cold]
    pub(super) unsafe fn fail(this: NonNull<Header>, payload: Panic) {
        // SAFETY: the caller's promise.
        unsafe { (this.as_ref().vtable.fail)(this, payload) };
    }

    /// Makes a frame ready for its first poll, and returns the job for it.
    ///
    /// # Safety
    ///
    /// It was not started. The context and the unit are there until it is done.
    pub(super) unsafe fn begin(
        this: NonNull<Header>,
        context: NonNull<Context>,
        unit: NonNull<Unit>,
        continuation: Continuation,
    ) -> Transfer {
        // SAFETY: nobody else knows the frame yet.
        let header = unsafe { this.as_ref() };
        header.unit.set(unit.as_ptr());
        // SAFETY: the caller's promise.
        unsafe { context.as_ref() }.enter();
        let context = match header.vtable.adopt {
            // SAFETY: the caller's promise.
            Some(adopt) => unsafe { Header::adopt(this, context, adopt) },
            None => context,
        };
        header.context.set(context.as_ptr());
        header.continuation.set(continuation);
        header.state.store(COUNT | BUSY, Relaxed);
        // SAFETY: the frame stays until it is done, which it is not before it was polled.
        unsafe { Transfer::to(this.cast::<Job>()) }
    }

    /// Takes that back: the frame is not started after all.
    ///
    /// # Safety
    ///
    /// It has begun, and was not polled.
    pub(super) unsafe fn unbegin(this: NonNull<Header>) {
        // SAFETY: nobody else knows the frame.
        unsafe {
            Header::context(this).as_ref().exit();
            this.as_ref().context.set(ptr::null());
            this.as_ref().unit.set(ptr::null());
        }
    }

    /// Queues a frame with its scheduler. It may run, and be gone, before this returns.
    ///
    /// # Safety
    ///
    /// It is busy, and in no queue.
    #[inline]
    pub(super) unsafe fn enqueue(this: NonNull<Header>) -> Transfer {
        // SAFETY: it is busy, so its context is there.
        unsafe { Context::enqueue(Header::context(this), this.cast::<Entry>()) }
    }

    /// Out of the way of the frames that have no context of their own.
    ///
    /// # Safety
    ///
    /// As for [`begin`](Header::begin).
    #[cold]
    unsafe fn adopt(this: NonNull<Header>, context: NonNull<Context>, adopt: Adopt) -> NonNull<Context> {
        // SAFETY: the caller's promise.
        unsafe { adopt(this, context) }
    }

    /// Starts a child, and polls it right here. While that is pending, this frame waits for it.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running. The child was not started. There is room for its result.
    #[inline]
    pub(super) unsafe fn await_child(this: NonNull<Header>, child: NonNull<Header>, room: NonNull<()>) -> Polled {
        let (header, inner) = (header_of(this), header_of(child));
        let nested = header.nested.get() + 1;
        if nested == NESTED_POLLS || inner.vtable.adopt.is_some() {
            // SAFETY: by the caller's promise.
            unsafe { Header::await_later(this, child) };
            return Polled::Pending;
        }
        // Nobody else knows it.
        inner.nested.set(nested);
        inner.context.set(header.context.get());
        inner.unit.set(header.unit.get());
        inner.continuation.set(Continuation::parent(this));
        inner.state.store(COUNT | BUSY, Relaxed);
        // SAFETY: the parent is polled, so its context is there.
        let context = unsafe { Header::context(this).as_ref() };
        context.enter();
        CURRENT.with(|current| current.set(child.as_ptr()));
        // SAFETY: it is busy, and we are the one who polls it; there is room. It does not unwind.
        let polled = unsafe { (inner.vtable.poll_here)(child, room) };
        CURRENT.with(|current| current.set(this.as_ptr()));
        if polled == Polled::Gone {
            context.exit();
            return Polled::Gone;
        }
        // SAFETY: as above.
        unsafe { Header::settle(this, child, polled == Polled::Done) }
    }

    /// Has a child run when the polling is over, and this frame wait for it.
    ///
    /// # Safety
    ///
    /// As for [`await_child`](Header::await_child).
    #[cold]
    unsafe fn await_later(this: NonNull<Header>, child: NonNull<Header>) {
        let header = header_of(this);
        header.waits.set(header.waits.get() + 1);
        // SAFETY: the context is there until this frame is done, or the scope that it is of; both wait for the child.
        mem::forget(unsafe {
            let (context, unit) = (Header::context(this), Header::unit(this));
            Header::begin(child, context, unit, Continuation::parent(this))
        });
        // SAFETY: it is busy, and in no queue.
        unsafe { Header::run_later(this, child) };
    }

    /// Whether a frame that has a result leaves nothing behind, and is known to its owner alone.
    ///
    /// # Safety
    ///
    /// The caller polls it.
    #[inline]
    pub(super) unsafe fn is_alone(this: NonNull<Header>) -> bool {
        let header = header_of(this);
        // SAFETY: what belongs to whoever polls is the caller's.
        let resumes = unsafe { !(*header.resumed.get()).is_none() };
        header.waits.get() == 0
            && header.child.get().is_null()
            && !header.attached.get()
            && !resumes
            && header.state.load(Acquire) == COUNT | BUSY
    }

    /// Lets go of a child that was polled by its parent and has to wait, or is known to others. Its end wakes the parent.
    ///
    /// # Safety
    ///
    /// The caller polls both.
    #[inline(never)]
    unsafe fn settle(this: NonNull<Header>, child: NonNull<Header>, done: bool) -> Polled {
        let (header, inner) = (header_of(this), header_of(child));
        header.waits.set(header.waits.get() + 1);
        // SAFETY: both are polled by us.
        unsafe { Header::resume_later(this, mem::take(&mut *inner.resumed.get())) };
        if !inner.child.get().is_null() {
            inner.polled.set(!done);
            // SAFETY: it is busy, and in no queue.
            unsafe { Header::run_later(this, child) };
            return Polled::Pending;
        }
        // SAFETY: it is busy, and polled by us; its owner waits for what this returns.
        if done && unsafe { finish(child, true) } {
            header.waits.set(header.waits.get() - 1);
            return Polled::Done;
        }
        // SAFETY: as above. What it is not done for may have left something to be resumed.
        unsafe {
            Header::resume_later(this, mem::take(&mut *inner.resumed.get()));
            Header::resume_later(this, suspend(child));
        }
        Polled::Pending
    }

    /// Has a child run when the polling is over.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running. The child is busy, and in no queue.
    unsafe fn run_later(this: NonNull<Header>, child: NonNull<Header>) {
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

    /// Takes the first of the children that are to run.
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

    /// Takes a child out of those that are to run. `false` where it is not one of them: it runs, or has run.
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

    /// Has something resumed when the polling is over.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running.
    pub(super) unsafe fn resume_later(this: NonNull<Header>, transfer: Transfer) {
        // SAFETY: the caller's promise.
        unsafe { (*this.as_ref().resumed.get()).append(transfer) };
    }

    /// Counts an await that will wake the frame.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running.
    pub(super) unsafe fn count_wait(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let header = unsafe { this.as_ref() };
        header.waits.set(header.waits.get() + 1);
    }

    /// Takes back an await that was counted, and will not wake the frame.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running.
    pub(super) unsafe fn uncount_wait(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let header = unsafe { this.as_ref() };
        header.waits.set(header.waits.get() - 1);
    }

    /// What is awaited right now has stopped: nothing of the innermost scope that the poll is in, or else of the frame, is
    /// polled again.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running.
    pub(super) unsafe fn stop_here(this: NonNull<Header>) {
        // SAFETY: the caller's promise. The context is there while the frame is polled.
        unsafe {
            match Header::context(this).as_ref().scope_in(this) {
                Some(scope) => scope.stop(),
                None => Header::stop(this),
            }
        }
    }

    /// Has the future dropped instead of polled again. A wake follows, or the end of the poll.
    ///
    /// # Safety
    ///
    /// The frame is not done, or counts the caller.
    pub(super) unsafe fn stop(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.stopped.store(true, Relaxed);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Whether the result is there.
    ///
    /// # Safety
    ///
    /// The caller owns the frame.
    pub(super) unsafe fn is_done(this: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.state.load(Acquire) & DONE != 0
    }

    /// Wakes the frame for an await that is over. `here` says whether this is a place where it may run.
    ///
    /// # Safety
    ///
    /// The caller is that await, and counted as one.
    pub(super) unsafe fn end_wait(this: NonNull<Header>, here: impl FnOnce(&Context) -> bool) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { Header::wake(this, AWAIT, here) }
    }

    /// Wakes the frame, as its waker does, for somebody who counts as an await and goes on to.
    ///
    /// # Safety
    ///
    /// The caller is that await.
    pub(super) unsafe fn poll_again(this: NonNull<Header>) -> Transfer {
        // SAFETY: the frame is not done before that is over.
        unsafe { Header::wake(this, 0, |_| false) }
    }

    /// Wakes the frame for a child that has ended: it goes on when the children are through that were spawned after that.
    ///
    /// # Safety
    ///
    /// The caller is an await of the frame, and counted as one.
    pub(super) unsafe fn end_wait_for_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: by the caller's promise. Who made it busy has the entry to itself.
        unsafe {
            Header::end_wait(this, |_| {
                this.as_ref().entry.set_kind(Kind::Parent);
                false
            })
        }
    }

    /// Queues a child that was spawned. It may run, and be gone, before this returns.
    ///
    /// # Safety
    ///
    /// It has begun, and is in no queue.
    pub(super) unsafe fn enqueue_child(this: NonNull<Header>) -> Transfer {
        // SAFETY: the caller's promise.
        unsafe {
            this.as_ref().entry.set_kind(Kind::Child);
            Header::enqueue(this)
        }
    }

    /// Wakes the frame, and gives a count back.
    ///
    /// # Safety
    ///
    /// The caller is counted.
    #[inline]
    unsafe fn wake(this: NonNull<Header>, counted: usize, here: impl FnOnce(&Context) -> bool) -> Transfer {
        // SAFETY: the caller is counted, so the header is there.
        let header = unsafe { this.as_ref() };
        let mut state = header.state.load(Relaxed);
        loop {
            let idle = state & (BUSY | DONE) == 0;
            let flag = match (idle, state & DONE != 0) {
                (true, _) => BUSY,
                (false, true) => 0,
                (false, false) => NOTIFIED,
            };
            let next = state.wrapping_sub(counted);
            match header.state.compare_exchange_weak(state, next | flag, AcqRel, Relaxed) {
                Err(now) => state = now,
                Ok(_) if idle => {
                    // SAFETY: we made it busy, so it is not done before it runs, and its context is there.
                    // It is in no queue, and stays until it is done.
                    return unsafe {
                        let context = Header::context(this);
                        if here(context.as_ref()) {
                            Transfer::to(this.cast::<Job>())
                        } else {
                            Context::enqueue(context, this.cast::<Entry>())
                        }
                    };
                }
                Ok(_) => {
                    if counted == COUNT && state & DONE != 0 && next / COUNT == 0 {
                        // SAFETY: that was the last count.
                        unsafe { free(this) };
                    }
                    return Transfer::none();
                }
            }
        }
    }

    /// Resumes at once what one of the frames that this thread polls, one inside the other, wanted resumed later. `false`
    /// where there is nothing.
    pub(super) fn run_resumed() -> bool {
        let mut polled = CURRENT.with(Cell::get);
        let mut beneath = BENEATH.with(Cell::get);
        loop {
            // SAFETY: what a thread polls is there.
            while let Some(header) = unsafe { polled.as_ref() } {
                // SAFETY: it belongs to whoever polls, and that is who called us.
                let resumed = mem::take(unsafe { &mut *header.resumed.get() });
                if !resumed.is_none() {
                    resumed.run();
                    return true;
                }
                polled = if header.nested.get() == 0 {
                    ptr::null()
                } else {
                    header.continuation.get().whom.cast()
                };
            }
            // SAFETY: it is on the stack beneath us.
            let Some(next) = (unsafe { beneath.as_ref() }) else {
                return false;
            };
            (polled, beneath) = (next.frame, next.next);
        }
    }

    /// Whether a frame that this thread polls is part of this one, which is not done before that is.
    fn has_part_beneath(&self) -> bool {
        let mut polled = CURRENT.with(Cell::get);
        let mut beneath = BENEATH.with(Cell::get);
        loop {
            // SAFETY: what a thread polls is there, and so is whatever waits for it, with its context. None of what is
            // looked at changes once they were started.
            while let Some(header) = unsafe { polled.as_ref() } {
                if ptr::eq(header, self) {
                    return true;
                }
                let Continuation { whom, complete } = header.continuation.get();
                polled = match complete {
                    None => whom.cast_const().cast(),
                    // That which the frame itself points at may be another one meanwhile, if somebody polls it.
                    // SAFETY: as above.
                    Some(_) => unsafe { (*header.unit.get()).around() }
                        .map_or(ptr::null(), |around| around.frame.as_ptr().cast_const()),
                };
            }
            // SAFETY: it is on the stack beneath us.
            let Some(next) = (unsafe { beneath.as_ref() }) else {
                return false;
            };
            (polled, beneath) = (next.frame, next.next);
        }
    }

    /// Runs `wait`, which may run other frames meanwhile, but none that waits for what waits here: that would wait for
    /// itself. Those are set aside, and queued again afterwards.
    pub(super) fn while_waiting(wait: impl FnOnce()) {
        /// Also when it unwinds.
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                let (waits, mut aside) = WAITING.with(Cell::get);
                WAITING.with(|waiting| waiting.set((waits - 1, ptr::null_mut())));
                while let Some(frame) = NonNull::new(aside) {
                    aside = header_of(frame).next();
                    // SAFETY: it is busy, so its context is there, and in no queue.
                    unsafe { Context::enqueue(Header::context(frame), frame.cast::<Entry>()) }.run();
                }
            }
        }

        WAITING.with(|waiting| waiting.set((waiting.get().0 + 1, waiting.get().1)));
        let _end = End;
        wait();
    }

    /// Runs a piece of the work of the scheduler of the frame that this thread polls, if there is one.
    pub(super) fn help() -> bool {
        // SAFETY: what a thread polls is there, and so is its context.
        let context = unsafe { CURRENT.with(Cell::get).as_ref().map(|header| &*header.context.get()) };
        context.is_some_and(|context| context.home.help())
    }

    /// Ends a child that is not awaited any more: its future is dropped, where it runs, by whoever polls it.
    ///
    /// In a frame that goes on, this waits for the child. In one that stops, which is how it goes from there down a chain
    /// of tasks, it does not: that frame is not done before the child is, and nothing is kept on the stack. So of a chain
    /// that is ended in this way the outer futures are dropped before the inner ones.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started, and lets go of it next.
    #[cold]
    pub(super) unsafe fn abandon(child: NonNull<Header>) {
        let parent = header_of(child).continuation.get().whom.cast::<Header>();
        let parent = NonNull::new(parent).filter(|parent| Header::is_current(*parent));
        // SAFETY: the caller's promise.
        let recalled = parent.is_some_and(|parent| unsafe { Header::recall(parent, child) });
        // Only of one that was recalled is this ours to look at: another thread may be polling it.
        if recalled
            && let Some(parent) = parent
            && header_of(child).nested.get() == 0
        {
            // It was never polled. Its owner frees it as one that nobody else knows.
            // SAFETY: it was started, so it has a context, which waits for it.
            unsafe { Header::context(child).as_ref() }.exit();
            header_of(child).context.set(ptr::null());
            header_of(child).unit.set(ptr::null());
            let waits = &header_of(parent).waits;
            waits.set(waits.get() - 1);
            return;
        }
        // SAFETY: as above. A frame that is polled is there. What was recalled is busy, and in no queue.
        unsafe {
            Header::stop(child);
            let polled = if recalled {
                header_of(child).polled.set(false);
                Transfer::to(child.cast::<Job>())
            } else {
                Header::wake(child, 0, |context| parent.is_some() || context.is_here())
            };
            match parent {
                Some(parent) if header_of(parent).is_stopped() => Header::resume_later(parent, polled),
                _ => {
                    polled.run();
                    wait_until(|| Header::is_done(child));
                }
            }
        }
    }

    /// Whether this is the frame that the child's end will wake.
    ///
    /// # Safety
    ///
    /// The caller owns the child, which was started.
    pub(super) unsafe fn is_parent(this: NonNull<Header>, child: NonNull<Header>) -> bool {
        // SAFETY: the caller's promise. It does not change once the child was started.
        unsafe { child.as_ref() }.continuation.get().whom == this.as_ptr().cast()
    }

    /// Counts one more who may touch the header.
    ///
    /// # Safety
    ///
    /// The caller is counted, or knows somebody who is.
    pub(super) unsafe fn count(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let state = unsafe { this.as_ref() }.state.fetch_add(COUNT, Relaxed);
        // Less than nothing is possible for a moment, when awaits have borrowed.
        refuse_too_many(state.cast_signed() / COUNT.cast_signed() > MANY.cast_signed());
    }

    /// Lets go of a frame. One that runs goes on running, and whoever awaited it is not done before it is.
    ///
    /// # Safety
    ///
    /// The caller is the owner, and uses the frame no more.
    pub(super) unsafe fn release(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let header = unsafe { this.as_ref() };
        // The strand does not change once there is one. The context does, and another thread may be polling the frame.
        let unstarted = header.unit.get().is_null();
        let is_last = |state: usize| state & DONE != 0 && state / COUNT == 1;
        let free_it =
            unstarted || is_last(header.state.load(Acquire)) || is_last(header.state.fetch_sub(COUNT, AcqRel));
        if free_it {
            // SAFETY: that was the last count, or nobody else knows the frame.
            unsafe { free(this) };
        }
    }

    /// Takes the result out, and lets go of the frame.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller is its owner, and uses it no more; `T` is the type of its result.
    #[inline]
    pub(super) unsafe fn take<T>(this: NonNull<Header>) -> T {
        let header = header_of(this);
        let mut result = mem::MaybeUninit::<T>::uninit();
        let is_last = header.state.load(Acquire) == COUNT | DONE;
        // SAFETY: the caller's promise.
        unsafe {
            (header.vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast(), is_last);
            if !is_last {
                Header::release(this);
            }
            result.assume_init()
        }
    }

    /// Takes the result out, and leaves the frame.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller is its owner, and the result was not taken; `T` is the type of that.
    pub(super) unsafe fn take_result<T>(this: NonNull<Header>) -> T {
        let mut result = mem::MaybeUninit::<T>::uninit();
        // SAFETY: the caller's promise.
        unsafe {
            (header_of(this).vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast(), false);
            result.assume_init()
        }
    }

    /// Polls a frame, and sees to the plain cases: that it has to wait, and that it is done, and known to its operation
    /// alone.
    ///
    /// # Safety
    ///
    /// The job is that of a frame that is busy and in no queue.
    unsafe fn resume(job: NonNull<Job>) -> Transfer {
        let frame = job.cast::<Header>();
        let header = header_of(frame);
        if header.entry.is_tracked() {
            // SAFETY: by the caller's promise.
            unsafe { priority::dequeue(frame) };
        }
        let outer = CURRENT.with(Cell::get);
        if !outer.is_null() || header.polled.get() {
            // SAFETY: by the caller's promise. What a thread polls is there.
            return unsafe { resume_inside(frame, outer) };
        }
        header.nested.set(0);
        CURRENT.with(|current| current.set(frame.as_ptr()));
        // SAFETY: it is busy, and we are the one who polls it. It does not unwind.
        let done = unsafe { (header.vtable.poll)(frame) };
        CURRENT.with(|current| current.set(ptr::null()));
        if !header.child.get().is_null() {
            // SAFETY: as above.
            return unsafe { run(frame, Some(done)) };
        }
        // SAFETY: what belongs to whoever polls is ours.
        let resumed = unsafe { &mut *header.resumed.get() };
        if !done {
            let resumed = mem::take(resumed);
            // SAFETY: as above. From here on others may poll it.
            return resumed.and(unsafe { suspend(frame) });
        }
        let Continuation { whom, complete } = header.continuation.get();
        if let Some(complete) = complete
            && resumed.is_none()
            // SAFETY: as above.
            && unsafe { finish(frame, true) }
        {
            // SAFETY: the operation waits for this.
            return unsafe { complete(NonNull::new_unchecked(whom)) };
        }
        // SAFETY: as above.
        unsafe { run(frame, Some(true)) }
    }
}

/// Keeps a frame for later which waits for one that waits on this stack. `false` where it need not be kept.
///
/// The frame is busy, and in no queue.
fn set_aside(frame: NonNull<Header>) -> bool {
    let (waits, aside) = WAITING.with(Cell::get);
    if waits == 0 || !header_of(frame).has_part_beneath() {
        return false;
    }
    header_of(frame).set_next(aside);
    WAITING.with(|waiting| waiting.set((waits, frame.as_ptr())));
    true
}

/// Runs a frame while another one is polled, or one that was polled before.
///
/// # Safety
///
/// As for [`run`]. The outer frame is null, or the one that this thread polls.
#[cold]
#[inline(never)]
unsafe fn resume_inside(frame: NonNull<Header>, outer: *const Header) -> Transfer {
    /// Puts back what was there before.
    struct Restore(*const Beneath);
    impl Drop for Restore {
        fn drop(&mut self) {
            BENEATH.with(|beneath| beneath.set(self.0));
        }
    }

    if set_aside(frame) {
        return Transfer::none();
    }
    let next = BENEATH.with(Cell::get);
    let here = Beneath { frame: outer, next };
    BENEATH.with(|beneath| beneath.set(&raw const here));
    let _restore = Restore(next);
    // SAFETY: by the caller's promise.
    unsafe { run(frame, None) }
}

/// Polls a frame, then what it awaits, then what awaits it, for as long as there is something to do.
///
/// The frames between `base`, which the caller made busy, and the one that is polled are *held*: busy, and waiting for their
/// child. A child that is done while its parent is held costs no atomic operation. When the frame at the bottom has to
/// wait, all of them are let go.
///
/// `polled` is what the first poll has come to, if the caller has seen to that.
///
/// # Safety
///
/// The frame is busy, and in no queue.
#[inline(never)]
unsafe fn run(mut base: NonNull<Header>, mut polled: Option<bool>) -> Transfer {
    let outer = Polling::new();
    let mut frame = base;
    let mut resumed = Transfer::none();
    loop {
        // SAFETY: a busy frame is alive.
        let header = unsafe { frame.as_ref() };
        if !resumed.is_none() {
            // Where it can be found, should the frame wait for some of it.
            // SAFETY: it is busy, and we are the one who polls it.
            unsafe { Header::resume_later(frame, mem::take(&mut resumed)) };
        }
        let done = match (polled.take(), header.polled.replace(false)) {
            (Some(done), _) => done,
            (None, true) => false,
            (None, false) => {
                header.nested.set(0);
                CURRENT.with(|current| current.set(frame.as_ptr()));
                // SAFETY: it is busy, and we are the one who polls it.
                unsafe { (header.vtable.poll)(frame) }
            }
        };
        // SAFETY: as above.
        resumed.append(mem::take(unsafe { &mut *header.resumed.get() }));
        let Continuation { whom, complete } = header.continuation.get();
        if let Some(child) = header.take_child() {
            while let Some(sibling) = header.take_child() {
                // SAFETY: it is busy, and in no queue.
                resumed.append(unsafe { Transfer::to(sibling.cast::<Job>()) });
            }
            frame = child;
            continue;
        }
        let held = frame != base;
        let wanders = !held && header.vtable.wanders;
        // Of a frame that is held, or that an operation waits for, the owner does nothing meanwhile.
        let alone = held || complete.is_some();
        // SAFETY: it is busy, and it is we who poll it. Where it is done and not held it may be gone then.
        if !done || !unsafe { finish(frame, alone) } {
            // From here on others may poll these frames, and what runs below is not under our poll.
            drop(outer);
            // What it is not done for may have left something to be resumed.
            // SAFETY: as above: it is still busy.
            resumed.append(mem::take(unsafe { &mut *header.resumed.get() }));
            // SAFETY: the frames from here to the base are held.
            return unsafe { suspend_all(frame, base, resumed) };
        }
        // SAFETY: a task that was started has a continuation.
        let whom = unsafe { NonNull::new_unchecked(whom) };
        if let Some(complete) = complete {
            drop(outer);
            // SAFETY: the operation waits for this.
            return unsafe { complete(whom) }.and(resumed);
        }
        let parent = whom.cast::<Header>();
        if held {
            let waits = &header_of(parent).waits;
            waits.set(waits.get() - 1);
        } else {
            let mut here = false;
            // SAFETY: it counts this child.
            let next = unsafe {
                Header::end_wait(parent, |context| {
                    here = !wanders || context.is_here();
                    here
                })
            };
            if !here {
                return next.and(resumed);
            }
            mem::forget(next);
            // The frame that was polled may be gone.
            outer.restore();
            if set_aside(parent) {
                return resumed;
            }
            // It is polled right here.
            base = parent;
        }
        frame = parent;
    }
}

/// Lets go of a frame that has to wait, and of those that are held for it.
///
/// # Safety
///
/// The frames from this one to the base are busy, and the caller polls them.
unsafe fn suspend_all(mut frame: NonNull<Header>, base: NonNull<Header>, mut resumed: Transfer) -> Transfer {
    loop {
        // Before it is let go, after which it may be gone.
        let above = header_of(frame).continuation.get().whom;
        // SAFETY: by the caller's promise.
        resumed.append(unsafe { suspend(frame) });
        match NonNull::new(above) {
            Some(parent) if frame != base => frame = parent.cast(),
            _ => return resumed,
        }
    }
}

/// Puts back, in the end, what this thread polled before.
struct Polling(*const Header);

impl Polling {
    fn new() -> Self {
        Polling(CURRENT.with(Cell::get))
    }
}

impl Polling {
    fn restore(&self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.restore();
    }
}

/// A frame that is known to be there: one that is held, is to run, or waits to be freed.
fn header_of<'a>(frame: NonNull<Header>) -> &'a Header {
    // SAFETY: a held frame is busy, and so alive; and the others were not freed.
    unsafe { frame.as_ref() }
}

/// Ends the polling of a frame that waits for something.
///
/// # Safety
///
/// The frame is busy, and the caller polls it. It may be gone when this returns.
unsafe fn suspend(frame: NonNull<Header>) -> Transfer {
    // SAFETY: by the caller's promise.
    let header = unsafe { frame.as_ref() };
    let waits = awaits(header.waits.take());
    let mut state = header.state.load(Relaxed);
    loop {
        let notified = state & NOTIFIED != 0;
        let counted = state.wrapping_add(waits);
        refuse_too_many(counted % COUNT / AWAIT > MANY);
        let next = if notified { counted & !NOTIFIED } else { counted & !BUSY };
        match header.state.compare_exchange_weak(state, next, AcqRel, Relaxed) {
            Err(now) => state = now,
            // Woken meanwhile: it gets in line again.
            // SAFETY: it is still busy, so its context is there; it is in no queue.
            Ok(_) if notified => return unsafe { Context::enqueue(Header::context(frame), frame.cast::<Entry>()) },
            Ok(_) => return Transfer::none(),
        }
    }
}

/// Ends the polling of a frame whose result is there, unless it still counts an await: then it is not done.
///
/// # Safety
///
/// As for [`suspend`]. `alone` says that the owner neither wakes the frame nor lets go of it before it is done.
unsafe fn finish(frame: NonNull<Header>, alone: bool) -> bool {
    // SAFETY: by the caller's promise.
    let header = unsafe { frame.as_ref() };
    if header.attached.replace(false) {
        // SAFETY: it is polled by the caller, so its unit is there.
        unsafe { Header::unit(frame).as_ref().detach_all(frame, None) };
    }
    let waits = awaits(header.waits.get());
    // SAFETY: it is not done, so its context is there. That is gone when it has left.
    let scope = unsafe { Header::context(frame).as_ref().scope() };
    let exit = || {
        if let Some(scope) = scope {
            // SAFETY: it waits for this frame.
            unsafe { scope.as_ref() }.exit();
        }
    };
    let mut state = header.state.load(Acquire);
    if alone && waits == 0 && state == COUNT | BUSY {
        // SAFETY: by the caller's promise, and nothing that it awaited is left.
        unsafe { leave(frame) };
        exit();
        // Nobody else knows the frame.
        header.state.store(COUNT | DONE, Release);
        return true;
    }
    loop {
        let counted = state.wrapping_add(waits);
        if counted % COUNT / AWAIT != 0 {
            return false;
        }
        // SAFETY: as above. Once there is nothing left, nothing comes: the future is gone.
        unsafe { leave(frame) };
        match header
            .state
            .compare_exchange_weak(state, counted - BUSY + DONE, AcqRel, Relaxed)
        {
            Err(now) => state = now,
            Ok(_) => {
                exit();
                if counted / COUNT == 0 {
                    // SAFETY: whoever awaited it has let go of it, and that was the last count.
                    unsafe { free(frame) };
                }
                return true;
            }
        }
    }
}

/// So many awaits, or fewer than none, in the units of the state.
#[inline]
fn awaits(number: i32) -> usize {
    (number as isize as usize).wrapping_mul(AWAIT)
}

/// Drops the own context of a frame, if it has one and has not dropped it.
///
/// # Safety
///
/// As for [`suspend`]; the future is gone, and so is all that it awaited.
#[inline]
unsafe fn leave(frame: NonNull<Header>) {
    if let Some(leave) = header_of(frame).vtable.leave {
        // SAFETY: by the caller's promise.
        unsafe { leave(frame) };
    }
}

/// A count that is about to run over, as only code that forgets what it counts gets it to.
#[inline]
fn refuse_too_many(too_many: bool) {
    if too_many {
        // As the counts of the standard library do: there is no way on.
        std::process::abort();
    }
}

/// How many frames are freed inside one another before they wait for each other.
const NESTED: usize = 16;

per_thread! {
    /// How many frames this thread is freeing, inside one another; and those that wait until the innermost is.
    static FREEING: Cell<(usize, *mut Header)> = Cell::new((0, ptr::null_mut()));
}

/// Frees a frame, with what is still in it. A few frames that are inside one another are freed one inside the
/// other, as everything in Rust is. Where they go deeper, those further in wait for those further out, which they may:
/// they borrow nothing.
///
/// # Safety
///
/// Nobody uses the frame any more.
unsafe fn free(frame: NonNull<Header>) {
    /// One level less, also when a destructor unwinds.
    struct Level;
    impl Drop for Level {
        fn drop(&mut self) {
            FREEING.with(|freeing| freeing.set((freeing.get().0 - 1, freeing.get().1)));
        }
    }

    let (nested, waiting) = FREEING.with(Cell::get);
    if nested > NESTED {
        header_of(frame).child.set(waiting);
        FREEING.with(|freeing| freeing.set((nested, frame.as_ptr())));
        return;
    }
    FREEING.with(|freeing| freeing.set((nested + 1, waiting)));
    let _level = Level;
    if nested < NESTED {
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
        // SAFETY: by the caller's promise; and what waits is freed by us.
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

/// The waker of a frame, for the time of one poll. It is not counted: who keeps it clones it.
///
/// # Safety
///
/// The frame is alive as long as this is used.
pub(super) unsafe fn waker(frame: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: the functions below keep the contract of a waker; this one is not dropped.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(frame.as_ptr().cast(), &WAKER)) })
}

/// The frame whose waker it is, if it is that of the frame which this thread polls. Any other is a waker like those of other
/// crates: somebody may have kept it, and poll with it wherever they like.
#[inline]
pub(super) fn frame_of(waker: &Waker) -> Option<NonNull<Header>> {
    let frame = NonNull::new(waker.data().cast::<Header>().cast_mut())?;
    (ptr::eq(waker.vtable(), &WAKER) && Header::is_current(frame)).then_some(frame)
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone_waker, wake_waker, wake_waker_by_ref, drop_waker);

/// # Safety
///
/// The data is that of a waker of a frame.
unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: whoever has a waker is counted, or polls.
    unsafe { Header::count(NonNull::new_unchecked(data.cast::<Header>().cast_mut())) };
    RawWaker::new(data, &WAKER)
}

/// # Safety
///
/// As above; the waker is gone afterwards.
unsafe fn wake_waker(data: *const ()) {
    // SAFETY: as above.
    unsafe {
        Header::wake(NonNull::new_unchecked(data.cast::<Header>().cast_mut()), COUNT, |_| {
            false
        })
    }
    .run();
}

/// # Safety
///
/// As above.
unsafe fn wake_waker_by_ref(data: *const ()) {
    // SAFETY: as above.
    unsafe { Header::wake(NonNull::new_unchecked(data.cast::<Header>().cast_mut()), 0, |_| false) }.run();
}

/// # Safety
///
/// As above; the waker is gone afterwards.
unsafe fn drop_waker(data: *const ()) {
    let frame = data.cast::<Header>().cast_mut();
    // SAFETY: as above.
    let state = unsafe { &(*frame).state }.fetch_sub(COUNT, AcqRel);
    if state / COUNT == 1 && state & DONE != 0 {
        // SAFETY: that was the last count of a frame that is done.
        unsafe { free(NonNull::new_unchecked(frame)) };
    }
}
