//! What the calling thread works for: the one notion of the current task.
//!
//! A thread works for the task whose frame it polls, and for none while it runs a job, a stop callback or a waker of somebody
//! else's. Everything that belongs to a task (awaits, groups, scopes, deadlines, task-locals) takes it from here. The layers
//! beneath tasks only hide it; they do not know what a frame is.

use core::cell::{Cell, UnsafeCell};
use core::mem;
use core::ptr;

use crate::Transfer;
use crate::sync::per_thread;

/// An entry on a thread's stack: a poll that is under way.
#[repr(align(8))]
pub(crate) struct Poll {
    /// The frame that is polled right now, as the layer of tasks knows it.
    frame: Cell<*const ()>,
    /// How many polls are beneath it on this stack, one in the middle of the other.
    depth: Cell<u8>,
    /// What the poll has started, and is run when the poll is over.
    later: UnsafeCell<Transfer>,
    /// Hands over the frames that were set aside for the end of the poll, so that others can run them.
    publish: unsafe fn(*const ()) -> Transfer,
}

per_thread! {
    /// One of:
    ///
    /// | value | the thread | a frame that is resumed here |
    /// |---|---|---|
    /// | null | polls nothing | is polled |
    /// | a poll | is in the middle of that poll | is queued |
    /// | a poll, with [`ASIDE`] | runs somebody else's code in the middle of that poll | is queued |
    /// | [`ASIDE`] alone | runs code that must not be delayed by a poll | is queued |
    ///
    /// "Queued" means with its scheduler. The inline scheduler has no queue: its frames run at once, up to a depth, and from there
    /// on when the poll is over.
    static CURRENT: Cell<*const Poll> = Cell::new(ptr::null());
}

per_thread! {
    /// The innermost task-local values that synchronous code of this thread has bound, as the layer of tasks knows them.
    static BOUND: Cell<*const ()> = Cell::new(ptr::null());
}

/// The lowest bit of an address.
const ASIDE: usize = 1;

fn untagged(current: *const Poll) -> *const Poll {
    current.map_addr(|address| address & !ASIDE)
}

impl Poll {
    pub(crate) fn new(frame: *const (), publish: unsafe fn(*const ()) -> Transfer) -> Self {
        Poll {
            frame: Cell::new(frame),
            depth: Cell::new(0),
            later: UnsafeCell::new(Transfer::none()),
            publish,
        }
    }

    /// Runs `body`, which polls the frame and does not unwind.
    #[inline]
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        let outer = CURRENT.with(|current| current.replace(self));
        if !outer.is_null() {
            self.depth.set(depth_of(outer));
        }
        let bound = BOUND.with(|bound| bound.replace(ptr::null()));
        let result = body();
        CURRENT.with(|current| current.set(outer));
        BOUND.with(|place| place.set(bound));
        result
    }

    /// Says which frame is polled now, inside the poll of another.
    #[inline]
    pub(crate) fn set_frame(&self, frame: *const ()) {
        self.frame.set(frame);
    }

    /// Takes what is to be run now that the poll is over.
    #[inline]
    pub(crate) fn take_later(&self) -> Transfer {
        // SAFETY: the cell belongs to the thread that polls, and no reference into it is kept.
        mem::take(unsafe { &mut *self.later.get() })
    }

    /// Keeps something to be run when the poll is over.
    #[inline]
    pub(crate) fn keep(&self, transfer: Transfer) {
        // SAFETY: as in `take_later`. Appending runs nothing.
        unsafe { &mut *self.later.get() }.append(transfer);
    }
}

/// How deep a poll is on top of this entry.
#[cold]
fn depth_of(current: *const Poll) -> u8 {
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    match unsafe { untagged(current).as_ref() } {
        Some(poll) => poll.depth.get().saturating_add(1),
        None => 0,
    }
}

/// How deep another poll would be, on top of those that this thread is in the middle of.
pub(crate) fn depth() -> u8 {
    depth_of(CURRENT.with(Cell::get))
}

/// The poll that this thread is in the middle of, if it works for that now.
#[inline]
pub(crate) fn poll<'a>() -> Option<&'a Poll> {
    let current = CURRENT.with(Cell::get);
    if current.addr() & ASIDE != 0 {
        return None;
    }
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    unsafe { current.as_ref() }
}

/// The frame that this thread works for, or null.
#[inline]
pub(crate) fn frame() -> *const () {
    poll().map_or(ptr::null(), |poll| poll.frame.get())
}

/// The frame whose poll is the innermost on this stack, whatever the thread works for now; or null.
#[inline]
pub(crate) fn frame_beneath() -> *const () {
    // SAFETY: as in `poll`.
    match unsafe { untagged(CURRENT.with(Cell::get)).as_ref() } {
        Some(poll) => poll.frame.get(),
        None => ptr::null(),
    }
}

/// Whether frames that are resumed here are polled.
#[inline]
pub(crate) fn may_poll() -> bool {
    CURRENT.with(Cell::get).is_null()
}

/// Runs something when the poll is over that this thread is in the middle of. Gives it back where there is none.
pub(crate) fn run_later(transfer: Transfer) -> Transfer {
    // SAFETY: as in `poll`.
    match unsafe { untagged(CURRENT.with(Cell::get)).as_ref() } {
        Some(poll) => {
            poll.keep(transfer);
            Transfer::none()
        }
        None => transfer,
    }
}

/// The innermost task-local values that synchronous code has bound here, or null.
#[inline]
pub(crate) fn bound() -> *const () {
    BOUND.with(Cell::get)
}

/// Binds other values; returns those that were bound before.
pub(crate) fn replace_bound(values: *const ()) -> *const () {
    BOUND.with(|bound| bound.replace(values))
}

/// Hides what the calling thread works for, until it is dropped.
#[must_use = "the task is hidden for as long as this lives"]
pub(crate) struct Hidden {
    current: *const Poll,
    bound: *const (),
}

impl Hidden {
    fn new(current: *const Poll) -> Self {
        Hidden {
            current: CURRENT.with(|place| place.replace(current)),
            bound: BOUND.with(|place| place.replace(ptr::null())),
        }
    }

    /// For a driver, which runs work that is not the caller's and may poll frames.
    #[inline]
    pub(crate) fn driver() -> Self {
        Hidden::new(ptr::null())
    }

    /// For code of somebody else's in the middle of what this thread does: frames that it resumes are queued.
    #[inline]
    pub(crate) fn aside() -> Self {
        Hidden::new(CURRENT.with(Cell::get).map_addr(|address| address | ASIDE))
    }

    /// [`aside`](Hidden::aside) in the middle of a poll, and nothing elsewhere.
    #[inline]
    pub(crate) fn from_poll() -> Option<Self> {
        poll().is_some().then(Hidden::aside)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.current));
        BOUND.with(|bound| bound.set(self.bound));
    }
}

/// Makes public what only this stack could run, before the thread blocks: frames are queued with their schedulers, and what
/// has no scheduler runs right here.
#[cold]
pub(crate) fn publish() {
    let mut runnable = Transfer::none();
    // SAFETY: as in `poll`.
    if let Some(poll) = unsafe { untagged(CURRENT.with(Cell::get)).as_ref() } {
        // SAFETY: the frame is being polled on this stack.
        runnable = unsafe { (poll.publish)(poll.frame.get()) }.and(poll.take_later());
    }
    runnable.append(Transfer::take_beneath());
    if !runnable.is_none() {
        let _hidden = Hidden::new(ptr::without_provenance(ASIDE));
        runnable.run();
    }
}
