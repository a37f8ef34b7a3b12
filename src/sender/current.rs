//! The task that the calling thread works for: the one notion of the current task.
//!
//! A thread works for the task whose frame it polls, and for none while it runs a job, a stop callback or a waker of
//! another party. All that belongs to a task (awaits, groups, scopes, deadlines, task-locals) takes it from here. The
//! layers beneath tasks only hide it: frames are unknown to them.

use core::cell::{Cell, UnsafeCell};
use core::mem;
use core::ptr;

use crate::Transfer;
use crate::sync::per_thread;

/// An entry on a thread's stack: a poll that is under way.
#[repr(align(8))]
pub(crate) struct Poll {
    /// The frame that is being polled, as an address for the layer of tasks.
    frame: Cell<*const ()>,
    /// The number of nested polls beneath this one on the stack.
    depth: Cell<u8>,
    /// The transfer that runs when the poll is over.
    later: UnsafeCell<Transfer>,
    /// Queues the frames that were set aside for the end of the poll, so that other threads can run them.
    publish: unsafe fn(*const ()) -> Transfer,
}

/// The state of a thread.
struct ThreadState {
    /// The frame that the thread works for, or null. Not null only inside of a poll without a mark.
    frame: Cell<*const ()>,
    /// One of:
    ///
    /// | value | the thread | a frame that is resumed here |
    /// |---|---|---|
    /// | null | polls nothing | is polled |
    /// | a poll | is inside that poll | is queued |
    /// | a poll, with [`ASIDE`] | runs code of another party inside that poll | is queued |
    /// | [`ASIDE`] alone | runs code that must not be delayed by a poll | is queued |
    ///
    /// "Queued" means with its scheduler. A frame whose scheduler has no queue runs at once, up to a depth, and beyond
    /// that when the poll is over.
    poll: Cell<*const Poll>,
    /// The innermost task-local values that synchronous code has bound, as an address for the layer of tasks.
    bound: Cell<*const ()>,
    /// The number of nested stops that are being passed on.
    stops: Cell<u8>,
}

per_thread! {
    static THREAD: ThreadState = ThreadState {
        frame: Cell::new(ptr::null()),
        poll: Cell::new(ptr::null()),
        bound: Cell::new(ptr::null()),
        stops: Cell::new(0),
    };
}

/// The mark in the lowest bit of an address.
const ASIDE: usize = 1;

/// The greatest number of nested stops that are passed on at once.
const NESTED_STOPS: u8 = 4;

fn untagged(current: *const Poll) -> *const Poll {
    current.map_addr(|address| address & !ASIDE)
}

impl Poll {
    #[inline]
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
        THREAD.with(|thread| {
            let (poll, frame) = (thread.poll.replace(self), thread.frame.replace(self.frame.get()));
            if !poll.is_null() {
                self.depth.set(depth_of(poll));
            }
            let result = body();
            thread.poll.set(poll);
            thread.frame.set(frame);
            result
        })
    }

    /// Does what [`enter`](Poll::enter) does, on a thread that [may poll](may_poll) and works for no frame.
    #[inline]
    pub(crate) fn enter_first<T>(&self, body: impl FnOnce() -> T) -> T {
        THREAD.with(|thread| {
            thread.poll.set(self);
            thread.frame.set(self.frame.get());
            let result = body();
            thread.poll.set(ptr::null());
            thread.frame.set(ptr::null());
            result
        })
    }

    /// Sets the frame that is polled now, inside the poll of another. The caller runs inside this poll.
    #[inline]
    pub(crate) fn change_frame(&self, frame: *const ()) {
        self.frame.set(frame);
        THREAD.with(|thread| thread.frame.set(frame));
    }

    /// Sets the frame that is polled next.
    #[inline]
    pub(crate) fn set_frame(&self, frame: *const ()) {
        self.frame.set(frame);
    }

    /// Returns whether a transfer runs when the poll is over.
    #[inline]
    pub(crate) fn has_later(&self) -> bool {
        // SAFETY: the cell belongs to the polling thread, and no reference into it is kept.
        !unsafe { &*self.later.get() }.is_none()
    }

    /// Takes the transfer of a poll that is over.
    #[inline]
    pub(crate) fn take_later(&self) -> Transfer {
        // SAFETY: the cell belongs to the polling thread, and no reference into it is kept.
        let later = unsafe { &mut *self.later.get() };
        if later.is_none() {
            return Transfer::none();
        }
        mem::take(later)
    }

    /// Returns the transfer of a poll that is over, and that no other follows.
    #[inline]
    pub(crate) fn into_later(self) -> Transfer {
        self.later.into_inner()
    }

    /// Adds a transfer that runs when the poll is over.
    #[inline]
    pub(crate) fn keep(&self, transfer: Transfer) {
        // SAFETY: the cell belongs to the polling thread, and no reference into it is kept: appending runs no user
        // code.
        unsafe { &mut *self.later.get() }.append(transfer);
    }
}

/// Returns the depth of a poll on top of this entry.
#[cold]
fn depth_of(current: *const Poll) -> u8 {
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    match unsafe { untagged(current).as_ref() } {
        Some(poll) => poll.depth.get().saturating_add(1),
        None => 0,
    }
}

/// Returns the depth that another poll would have on this thread.
pub(crate) fn depth() -> u8 {
    depth_of(THREAD.with(|thread| thread.poll.get()))
}

/// Returns the innermost poll of this thread.
///
/// # Safety
///
/// The thread works for a [`frame`], until the poll is no longer used.
#[inline]
pub(crate) unsafe fn poll<'a>() -> &'a Poll {
    let current = THREAD.with(|thread| thread.poll.get());
    debug_assert!(!current.is_null() && current.addr() & ASIDE == 0);
    // SAFETY: a thread that works for a frame is inside of a poll without a mark. Its entry is on the stack beneath the caller.
    unsafe { &*current }
}

/// Returns the frame that this thread works for, or null.
#[inline]
pub(crate) fn frame() -> *const () {
    THREAD.with(|thread| thread.frame.get())
}

/// Returns the frame of the innermost poll on this stack, or null, even where the thread works for none now.
#[inline]
pub(crate) fn frame_beneath() -> *const () {
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    match unsafe { untagged(THREAD.with(|thread| thread.poll.get())).as_ref() } {
        Some(poll) => poll.frame.get(),
        None => ptr::null(),
    }
}

/// Returns whether [`Hidden::from_poll`] has something to hide.
#[inline]
pub(crate) fn is_seen() -> bool {
    THREAD.with(|thread| !thread.frame.get().is_null() || !thread.bound.get().is_null())
}

/// Returns whether frames that are resumed here are polled.
#[inline]
pub(crate) fn may_poll() -> bool {
    THREAD.with(|thread| thread.poll.get().is_null())
}

/// Runs a transfer when the innermost poll of this thread is over. Returns the transfer where there is no poll.
pub(crate) fn run_later(transfer: Transfer) -> Transfer {
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    match unsafe { untagged(THREAD.with(|thread| thread.poll.get())).as_ref() } {
        Some(poll) => {
            poll.keep(transfer);
            Transfer::none()
        }
        None => transfer,
    }
}

/// Returns the innermost task-local values that synchronous code has bound on this thread, or null.
#[inline]
pub(crate) fn bound() -> *const () {
    THREAD.with(|thread| thread.bound.get())
}

/// Binds other values, and returns those that were bound before.
pub(crate) fn replace_bound(values: *const ()) -> *const () {
    THREAD.with(|thread| thread.bound.replace(values))
}

/// Passes a stop on, by `pass`, which does not unwind. Returns `None` where the nesting limit is reached, and this stop
/// has to wait for its turn.
pub(crate) fn pass_stop_on(pass: impl FnOnce() -> Transfer) -> Option<Transfer> {
    THREAD.with(|thread| {
        let stops = thread.stops.get();
        (stops < NESTED_STOPS).then(|| {
            thread.stops.set(stops + 1);
            let resumed = pass();
            thread.stops.set(stops);
            resumed
        })
    })
}

/// A guard that hides the calling thread's task until it is dropped.
#[must_use = "the task is hidden for as long as this lives"]
pub(crate) struct Hidden {
    poll: *const Poll,
    frame: *const (),
    bound: *const (),
}

impl Hidden {
    fn new(poll: impl FnOnce(*const Poll) -> *const Poll) -> Self {
        THREAD.with(|thread| {
            let before = thread.poll.get();
            thread.poll.set(poll(before));
            Hidden {
                poll: before,
                frame: thread.frame.replace(ptr::null()),
                bound: thread.bound.replace(ptr::null()),
            }
        })
    }

    /// Hides the task for a driver, which runs work of others and may poll frames.
    #[inline]
    pub(crate) fn driver() -> Self {
        Hidden::new(|_| ptr::null())
    }

    /// Hides the task for code of another party: frames that it resumes are queued.
    #[inline]
    pub(crate) fn aside() -> Self {
        Hidden::new(|poll| poll.map_addr(|address| address | ASIDE))
    }

    /// Does what [`aside`](Hidden::aside) does, inside a poll. Elsewhere it hides the values that synchronous code has
    /// bound.
    #[inline]
    pub(crate) fn from_poll() -> Option<Self> {
        THREAD.with(
            |thread| match (thread.frame.get().is_null(), thread.bound.get().is_null()) {
                (true, true) => None,
                (false, _) => Some(Hidden::aside()),
                (true, false) => Some(Hidden::new(|poll| poll)),
            },
        )
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        THREAD.with(|thread| {
            thread.poll.set(self.poll);
            thread.frame.set(self.frame);
            thread.bound.set(self.bound);
        });
    }
}

/// Publishes the work that only this stack could run, before the thread blocks. Frames are queued with their
/// schedulers, and work without a scheduler runs here.
#[inline]
pub(crate) fn publish() {
    if !may_poll() || Transfer::is_beneath() {
        publish_all();
    }
}

#[cold]
fn publish_all() {
    let mut runnable = Transfer::none();
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    if let Some(poll) = unsafe { untagged(THREAD.with(|thread| thread.poll.get())).as_ref() } {
        // SAFETY: the frame is being polled on this stack.
        runnable.append(unsafe { (poll.publish)(poll.frame.get()) }.and(poll.take_later()));
    }
    runnable.append(Transfer::take_beneath());
    if !runnable.is_none() {
        let _hidden = Hidden::new(|_| ptr::without_provenance(ASIDE));
        runnable.run();
    }
}
