//! What the calling thread works for: the one notion of the current task.
//!
//! A thread works for the task whose frame it polls, and for none while it runs a job, a stop callback or a waker of another
//! party. Everything that belongs to a task (awaits, groups, scopes, deadlines, task-locals) takes it from here. The layers
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

/// What a thread is at.
struct Thread {
    /// The frame that the thread works for, or null.
    frame: Cell<*const ()>,
    /// One of:
    ///
    /// | value | the thread | a frame that is resumed here |
    /// |---|---|---|
    /// | null | polls nothing | is polled |
    /// | a poll | is in the middle of that poll | is queued |
    /// | a poll, with [`ASIDE`] | runs code of another party in the middle of that poll | is queued |
    /// | [`ASIDE`] alone | runs code that must not be delayed by a poll | is queued |
    ///
    /// "Queued" means with its scheduler. A frame whose scheduler has no queue runs at once, up to a depth, and from there on
    /// when the poll is over.
    poll: Cell<*const Poll>,
    /// The innermost task-local values that synchronous code has bound, as the layer of tasks knows them.
    bound: Cell<*const ()>,
    /// How many stops are being passed on, one inside the other.
    stops: Cell<u8>,
    /// What other parties have resumed in the middle of the poll. Handed over when the innermost [`Hidden`] is dropped, and
    /// before the thread blocks.
    gathered: Cell<Option<Gathered>>,
}

/// Frames that were resumed by another party in the middle of a poll, and are handed to their scheduler together.
#[derive(Clone, Copy)]
pub(crate) struct Gathered {
    /// The first of them, as the layer of tasks knows it. It knows the others.
    pub(crate) first: *const (),
    pub(crate) many: u8,
    /// Hands them over.
    pub(crate) hand_over: unsafe fn(*const ()) -> Transfer,
}

per_thread! {
    static THREAD: Thread = Thread {
        frame: Cell::new(ptr::null()),
        poll: Cell::new(ptr::null()),
        bound: Cell::new(ptr::null()),
        stops: Cell::new(0),
        gathered: Cell::new(None),
    };
}

/// The lowest bit of an address.
const ASIDE: usize = 1;

/// How many stops are passed on inside one another before the next waits for its turn.
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

    /// [`enter`](Poll::enter) where this thread [may poll](may_poll): it works for no frame.
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

    /// Says which frame is polled now, inside the poll of another. The caller is in the middle of this poll.
    #[inline]
    pub(crate) fn change_frame(&self, frame: *const ()) {
        self.frame.set(frame);
        THREAD.with(|thread| thread.frame.set(frame));
    }

    /// Says which frame is polled next.
    #[inline]
    pub(crate) fn set_frame(&self, frame: *const ()) {
        self.frame.set(frame);
    }

    /// Takes what is to be run now that the poll is over.
    #[inline]
    pub(crate) fn take_later(&self) -> Transfer {
        // SAFETY: the cell belongs to the thread that polls, and no reference into it is kept.
        let later = unsafe { &mut *self.later.get() };
        if later.is_none() {
            return Transfer::none();
        }
        mem::take(later)
    }

    /// What is to be run now that the poll is over, and no other follows.
    #[inline]
    pub(crate) fn into_later(self) -> Transfer {
        self.later.into_inner()
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
    depth_of(THREAD.with(|thread| thread.poll.get()))
}

/// The poll that this thread is in the middle of, if it works for that now.
#[inline]
pub(crate) fn poll<'a>() -> Option<&'a Poll> {
    let current = THREAD.with(|thread| thread.poll.get());
    if current.addr() & ASIDE != 0 {
        return None;
    }
    // SAFETY: an entry is on the stack beneath its user, until `Poll::enter` returns.
    unsafe { current.as_ref() }
}

/// The frame that this thread works for, or null.
#[inline]
pub(crate) fn frame() -> *const () {
    THREAD.with(|thread| thread.frame.get())
}

/// The frame whose poll is the innermost on this stack, whatever the thread works for now; or null.
#[inline]
pub(crate) fn frame_beneath() -> *const () {
    // SAFETY: as in `poll`.
    match unsafe { untagged(THREAD.with(|thread| thread.poll.get())).as_ref() } {
        Some(poll) => poll.frame.get(),
        None => ptr::null(),
    }
}

/// Whether there is something for [`Hidden::from_poll`] to hide.
#[inline]
pub(crate) fn is_seen() -> bool {
    THREAD.with(|thread| !thread.frame.get().is_null() || !thread.bound.get().is_null())
}

/// Whether frames that are resumed here are polled.
#[inline]
pub(crate) fn may_poll() -> bool {
    THREAD.with(|thread| thread.poll.get().is_null())
}

/// Runs something when the poll is over that this thread is in the middle of. Gives it back where there is none.
pub(crate) fn run_later(transfer: Transfer) -> Transfer {
    // SAFETY: as in `poll`.
    match unsafe { untagged(THREAD.with(|thread| thread.poll.get())).as_ref() } {
        Some(poll) => {
            poll.keep(transfer);
            Transfer::none()
        }
        None => transfer,
    }
}

/// Whether another party's code runs in the middle of a poll, so that what is [gathered](replace_gathered) is handed over soon.
pub(crate) fn may_gather() -> bool {
    let current = THREAD.with(|thread| thread.poll.get());
    current.addr() & ASIDE != 0 && !untagged(current).is_null()
}

/// Says what is gathered now, and returns what was. The caller has checked [`may_gather`].
pub(crate) fn replace_gathered(gathered: Option<Gathered>) -> Option<Gathered> {
    THREAD.with(|thread| thread.gathered.replace(gathered))
}

/// Hands over what was gathered. Code of the user is about to run, which may block.
#[inline]
pub(crate) fn hand_over() {
    if THREAD.with(|thread| thread.gathered.get().is_some()) {
        hand_over_gathered().run();
    }
}

/// Hands over what was gathered.
#[cold]
fn hand_over_gathered() -> Transfer {
    match replace_gathered(None) {
        // SAFETY: they were gathered on this thread, and are handed over this once.
        Some(gathered) => unsafe { (gathered.hand_over)(gathered.first) },
        None => Transfer::none(),
    }
}

/// The innermost task-local values that synchronous code has bound here, or null.
#[inline]
pub(crate) fn bound() -> *const () {
    THREAD.with(|thread| thread.bound.get())
}

/// Binds other values; returns those that were bound before.
pub(crate) fn replace_bound(values: *const ()) -> *const () {
    THREAD.with(|thread| thread.bound.replace(values))
}

/// Passes a stop on, by `pass`, which does not unwind. `None` where so many are being passed on, one inside the other, that
/// this one has to wait for its turn.
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

/// Hides what the calling thread works for, until it is dropped.
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

    /// For a driver, which runs work that is not the caller's and may poll frames.
    #[inline]
    pub(crate) fn driver() -> Self {
        Hidden::new(|_| ptr::null())
    }

    /// For code of another party in the middle of what this thread does: frames that it resumes are queued.
    #[inline]
    pub(crate) fn aside() -> Self {
        Hidden::new(|poll| poll.map_addr(|address| address | ASIDE))
    }

    /// [`aside`](Hidden::aside) in the middle of a poll. Elsewhere it hides what synchronous code has bound, if that has.
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
            if thread.gathered.get().is_some() {
                hand_over_gathered().run();
            }
        });
    }
}

/// Makes public what only this stack could run, before the thread blocks: frames are queued with their schedulers, and what
/// has no scheduler runs right here.
#[inline]
pub(crate) fn publish() {
    if !may_poll() || Transfer::is_beneath() {
        publish_all();
    }
}

#[cold]
fn publish_all() {
    let mut runnable = hand_over_gathered();
    // SAFETY: as in `poll`.
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
