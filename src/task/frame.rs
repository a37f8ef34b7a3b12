//! The frame of a task: its future, and what polls it.
//!
//! A frame is polled by whoever has made it busy, in [`run`]: a loop that goes from frame to frame as tasks await tasks,
//! so that depth costs memory and never stack.

use core::cell::{Cell, UnsafeCell};
use core::mem::{self, ManuallyDrop};
use core::ptr::{self, NonNull};
use core::task::{RawWaker, RawWakerVTable, Waker};

use super::context::Context;
use crate::scheduler::thread_pool::Entry;
use crate::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sync::per_thread;
use crate::{Job, Transfer};

/// What all frames have in common. It comes first in each, so that the address of one is that of the other.
#[repr(C)]
pub(crate) struct Header {
    /// Waits in the queue of the task's scheduler. First, so that its address is the frame's.
    entry: Entry,
    vtable: &'static Vtable,
    /// Flags, and a count of who may still touch the header:
    ///
    /// | flag | means | set by | cleared by |
    /// |---|---|---|---|
    /// | `BUSY` | somebody polls the frame, or it is queued to be polled | who wakes it when it is idle | who polls it, when that is over |
    /// | `NOTIFIED` | it was woken while it was busy, and is queued again afterwards | who wakes it | who polls it |
    /// | `DONE` | the future is gone; there is a result | who polls it | |
    ///
    /// The count is in units of `COUNT`: one for the owner (the operation, or the future that awaits it), one for each
    /// waker, and one for each sender or child that it awaits and that will wake it. Those last are added when the
    /// polling is over, all at once; one that completes before has been subtracted by then, so the count may be
    /// too small while the frame is busy, and means nothing then. Whoever takes the last one of a frame that is done frees
    /// the memory.
    ///
    /// Every change acquires and releases: who polls sees what was done before each wake, and who frees sees everything.
    state: AtomicUsize,
    /// An awaited sender, or child, has stopped: the future is not polled again, but dropped. Set before the wake that
    /// makes it seen.
    stopped: AtomicBool,
    /// How many awaits began to wait since the frame became busy: what is to be added to the count. From here on, all
    /// belongs to whoever polls.
    waits: Cell<usize>,
    /// Where the task runs. Valid from its start until it is done.
    context: Cell<*const Context>,
    continuation: Cell<Continuation>,
    /// The child that is to run next, or null.
    child: Cell<*mut Header>,
    /// What else is to be resumed when the polling is over.
    resumed: UnsafeCell<Transfer>,
}

const BUSY: usize = 1;
const NOTIFIED: usize = 2;
const DONE: usize = 4;
const COUNT: usize = 8;

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

/// Makes a frame's own context inside another, and returns it.
pub(super) type Adopt = unsafe fn(NonNull<Header>, NonNull<Context>) -> NonNull<Context>;

/// What is known of the type of a frame.
pub(super) struct Vtable {
    /// Polls the future, or drops it if it is to stop. `true` when it is gone, and the result is there.
    pub(super) poll: unsafe fn(NonNull<Header>) -> bool,
    /// Moves the result to where the pointer points.
    pub(super) take: unsafe fn(NonNull<Header>, NonNull<()>),
    /// Drops what is still there, future or result, and frees the memory.
    pub(super) free: unsafe fn(NonNull<Header>),
    /// Makes the frame's own context, inside another. None where it uses that other.
    pub(super) adopt: Option<Adopt>,
    /// By its own context it runs anywhere, and so ends where the frame that awaits it need not be at home.
    pub(super) wanders: bool,
}

per_thread! {
    /// The frame that this thread polls, or null.
    static CURRENT: Cell<*const Header> = Cell::new(ptr::null());
}

impl Header {
    pub(super) fn new(vtable: &'static Vtable) -> Self {
        Header {
            entry: Entry::new(Header::resume),
            vtable,
            state: AtomicUsize::new(COUNT),
            stopped: AtomicBool::new(false),
            waits: Cell::new(0),
            context: Cell::new(ptr::null()),
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

    /// Makes a frame ready for its first poll, and returns the job for it.
    ///
    /// # Safety
    ///
    /// It was not started. The context is there until it is done.
    pub(super) unsafe fn begin(
        this: NonNull<Header>,
        context: NonNull<Context>,
        continuation: Continuation,
    ) -> Transfer {
        // SAFETY: nobody else knows the frame yet.
        let header = unsafe { this.as_ref() };
        let context = match header.vtable.adopt {
            // SAFETY: the caller's promise.
            Some(adopt) => unsafe { adopt(this, context) },
            None => context,
        };
        // SAFETY: as above.
        if let Some(priority) = unsafe { context.as_ref() }.priority {
            header.entry.set_level(priority);
        }
        header.context.set(context.as_ptr());
        header.continuation.set(continuation);
        header.state.store(COUNT | BUSY, Relaxed);
        // SAFETY: the frame stays until it is done, which it is not before it was polled.
        unsafe { Transfer::to(this.cast::<Job>()) }
    }

    /// Has a child run next, and this frame wait for it.
    ///
    /// # Safety
    ///
    /// The caller is what this frame's poll is running. The child was not started.
    pub(super) unsafe fn await_child(this: NonNull<Header>, child: NonNull<Header>) {
        // SAFETY: the frame is being polled.
        let header = unsafe { this.as_ref() };
        header.waits.set(header.waits.get() + 1);
        // SAFETY: the context is there until this frame is done, and it waits for the child.
        let job = unsafe { Header::begin(child, Header::context(this), Continuation::parent(this)) };
        if header.child.get().is_null() {
            header.child.set(child.as_ptr());
            mem::forget(job);
        } else {
            // SAFETY: by the caller's promise.
            unsafe { Header::resume_later(this, job) };
        }
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

    /// Has the future dropped instead of polled again. A wake follows, or the end of the poll.
    ///
    /// # Safety
    ///
    /// The frame is not done, or counts the caller.
    pub(super) unsafe fn stop(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe { this.as_ref() }.stopped.store(true, Relaxed);
    }

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

    /// Wakes the frame. `release` gives a count back; `here` says that this is a place where it may run.
    ///
    /// # Safety
    ///
    /// The caller is counted.
    pub(super) unsafe fn wake(this: NonNull<Header>, release: bool, here: impl FnOnce(&Context) -> bool) -> Transfer {
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
            let counted = state.wrapping_sub(if release { COUNT } else { 0 });
            match header
                .state
                .compare_exchange_weak(state, counted | flag, AcqRel, Relaxed)
            {
                Err(now) => state = now,
                Ok(_) if idle => {
                    // SAFETY: we made it busy, so it is not done before it runs, and its context is there.
                    let context = unsafe { &*header.context.get() };
                    // SAFETY: it is in no queue, and stays until it is done.
                    return unsafe {
                        if here(context) {
                            Transfer::to(this.cast::<Job>())
                        } else {
                            context.enqueue(NonNull::from(&header.entry))
                        }
                    };
                }
                Ok(_) => {
                    if release && state & DONE != 0 && counted / COUNT == 0 {
                        // SAFETY: that was the last count.
                        unsafe { (header.vtable.free)(this) };
                    }
                    return Transfer::none();
                }
            }
        }
    }

    /// Lets go of a frame that is done, or was not started.
    ///
    /// # Safety
    ///
    /// The caller is the owner, and uses the frame no more.
    pub(super) unsafe fn release(this: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let header = unsafe { this.as_ref() };
        let state = header.state.load(Acquire);
        if state / COUNT == 1 || header.state.fetch_sub(COUNT, AcqRel) / COUNT == 1 {
            // SAFETY: that was the last count.
            unsafe { (header.vtable.free)(this) };
        }
    }

    /// Takes the result out.
    ///
    /// # Safety
    ///
    /// The frame is done, the caller owns it, and `T` is the type of its result.
    pub(super) unsafe fn take<T>(this: NonNull<Header>) -> T {
        let mut result = mem::MaybeUninit::<T>::uninit();
        // SAFETY: the caller's promise.
        unsafe {
            (this.as_ref().vtable.take)(this, NonNull::new_unchecked(result.as_mut_ptr()).cast());
            result.assume_init()
        }
    }

    /// # Safety
    ///
    /// The job is that of a frame that is busy and in no queue.
    unsafe fn resume(job: NonNull<Job>) -> Transfer {
        // SAFETY: by the caller's promise.
        unsafe { run(job.cast()) }
    }
}

/// Polls a frame, then what it awaits, then what awaits it, for as long as there is something to do.
///
/// The frames between `base`, which the caller made busy, and the one that is polled are *held*: busy, and waiting for their
/// child. A child that is done while its parent is held costs no atomic operation. When the frame at the bottom has to
/// wait, all of them are let go.
///
/// # Safety
///
/// The frame is busy, and in no queue.
unsafe fn run(mut base: NonNull<Header>) -> Transfer {
    let _outer = Polling::new();
    let mut frame = base;
    let mut resumed = Transfer::none();
    loop {
        // SAFETY: a busy frame is alive.
        let header = unsafe { frame.as_ref() };
        CURRENT.with(|current| current.set(frame.as_ptr()));
        // SAFETY: it is busy, and we are the one who polls it.
        let done = unsafe { (header.vtable.poll)(frame) };
        // SAFETY: as above.
        resumed.append(mem::take(unsafe { &mut *header.resumed.get() }));
        let Continuation { whom, complete } = header.continuation.get();
        if !done {
            if let Some(child) = NonNull::new(header.child.replace(ptr::null_mut())) {
                frame = child;
                continue;
            }
            // SAFETY: the frames from here to the base are held.
            return unsafe { suspend_all(frame, base, resumed) };
        }
        let stopped = header.is_stopped();
        let held = frame != base;
        let wanders = header.vtable.wanders;
        // SAFETY: it is busy, and it is we who poll it. Where it is not held it may be gone then.
        unsafe { finish(frame) };
        // SAFETY: a task that was started has a continuation.
        let whom = unsafe { NonNull::new_unchecked(whom) };
        if let Some(complete) = complete {
            // SAFETY: the operation waits for this.
            return unsafe { complete(whom) }.and(resumed);
        }
        let parent = whom.cast::<Header>();
        if stopped {
            // SAFETY: it is held, or counts this child.
            unsafe { Header::stop(parent) };
        }
        if held {
            let waits = &header_of(parent).waits;
            waits.set(waits.get() - 1);
        } else {
            let mut here = false;
            // SAFETY: it counts this child.
            let next = unsafe {
                Header::wake(parent, true, |context| {
                    here = !wanders || context.is_here();
                    here
                })
            };
            if !here {
                return next.and(resumed);
            }
            // It is polled right here.
            mem::forget(next);
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

impl Drop for Polling {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

/// A frame that is held.
fn header_of<'a>(frame: NonNull<Header>) -> &'a Header {
    // SAFETY: a held frame is busy, and so alive.
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
    let waits = header.waits.take() * COUNT;
    let mut state = header.state.load(Relaxed);
    loop {
        let notified = state & NOTIFIED != 0;
        let counted = state.wrapping_add(waits);
        let next = if notified { counted & !NOTIFIED } else { counted & !BUSY };
        match header.state.compare_exchange_weak(state, next, AcqRel, Relaxed) {
            Err(now) => state = now,
            // Woken meanwhile: it gets in line again.
            // SAFETY: it is still busy, so its context is there; it is in no queue.
            Ok(_) if notified => return unsafe { (*header.context.get()).enqueue(NonNull::from(&header.entry)) },
            Ok(_) => return Transfer::none(),
        }
    }
}

/// Ends the polling of a frame whose result is there.
///
/// # Safety
///
/// As for [`suspend`].
unsafe fn finish(frame: NonNull<Header>) {
    // SAFETY: by the caller's promise.
    let header = unsafe { frame.as_ref() };
    let waits = header.waits.take() * COUNT;
    if waits == 0 && header.state.load(Acquire) == COUNT | BUSY {
        // Nobody else knows the frame.
        header.state.store(COUNT | DONE, Release);
    } else {
        header.state.fetch_add(waits.wrapping_add(DONE - BUSY), AcqRel);
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

/// The frame whose waker it is, if it is one of a frame.
#[inline]
pub(super) fn frame_of(waker: &Waker) -> Option<NonNull<Header>> {
    if ptr::eq(waker.vtable(), &WAKER) {
        NonNull::new(waker.data().cast::<Header>().cast_mut())
    } else {
        None
    }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(clone_waker, wake_waker, wake_waker_by_ref, drop_waker);

/// # Safety
///
/// The data is that of a waker of a frame.
unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: whoever has a waker is counted, or polls.
    unsafe { &*data.cast::<Header>() }.state.fetch_add(COUNT, Relaxed);
    RawWaker::new(data, &WAKER)
}

/// # Safety
///
/// As above; the waker is gone afterwards.
unsafe fn wake_waker(data: *const ()) {
    // SAFETY: as above.
    unsafe {
        Header::wake(NonNull::new_unchecked(data.cast::<Header>().cast_mut()), true, |_| {
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
    unsafe {
        Header::wake(NonNull::new_unchecked(data.cast::<Header>().cast_mut()), false, |_| {
            false
        })
    }
    .run();
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
        unsafe { ((*frame).vtable.free)(NonNull::new_unchecked(frame)) };
    }
}
