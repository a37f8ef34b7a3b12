//! The queued frames of a strand that can be raised.
//!
//! A strand that was spawned, detached, or bound to a variable is *tracked*: its priority can be raised while it runs. Its
//! tracker lists the frames that are queued, so that they move up in their queues. Other strands have a null pointer in the
//! place of a tracker, and pay one load of that.

use core::cell::Cell;
use core::ptr::{self, NonNull};

use super::{Header, Polling};
use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crate::sync::{SpinGuard, SpinLock};
use crate::{Priority, Transfer};

/// The level that a strand was raised to, and its queued frames.
///
/// The first field of a unit, so that a pointer to a tracker is a pointer to its unit as well. `queued` and `many` are
/// protected by the lock. So a frame in the list is not resumed while another thread raises it, and neither the frame nor its
/// scheduler is freed meanwhile.
///
/// ```text
///          queue: linked              resume: unlinked
/// polled ────────────────▶ coming ──pushed──▶ in a queue ──popped──▶ popped ────────────────▶ polled
///                             └─────── raised here, wherever it is ─────┘
/// ```
///
/// A frame that is coming already has a level. A thread that raises it raises that level, and then waits until the frame was
/// pushed: if the push read the level before, the frame is moved.
pub(in crate::task) struct Tracker {
    /// The tracker of the strand that is raised for this one: itself, or the strand that this one runs in. Null where the
    /// strand cannot be raised. Written before the first frame begins.
    target: Cell<*const Tracker>,
    /// The first of the queued frames, which are linked by [`Header::link`].
    queued: Cell<*mut Header>,
    /// The number of frames in the list.
    many: Cell<u8>,
    /// One more than the level that the strand was raised to, or zero. Stored with relaxed ordering under the lock, and loaded
    /// without it: a load that misses a raise is made by a thread that has linked something, which is told.
    raised: AtomicU8,
    lock: SpinLock<()>,
}

/// The number of frames of one strand that are tracked while they are queued. Frames beyond that keep the level that they were
/// queued with, since finding a frame in the list takes time.
const MOST: u8 = 16;

/// Returns the priority with this discriminant.
pub(in crate::task) fn by_number(number: u8) -> Priority {
    match number {
        0 => Priority::Background,
        1 => Priority::Utility,
        2 => Priority::Default,
        3 => Priority::UserInitiated,
        _ => Priority::UserInteractive,
    }
}

impl Tracker {
    #[inline]
    pub(in crate::task) fn new() -> Self {
        Tracker {
            target: Cell::new(ptr::null()),
            queued: Cell::new(ptr::null_mut()),
            many: Cell::new(0),
            raised: AtomicU8::new(0),
            lock: SpinLock::new(()),
        }
    }

    /// Sets the tracker of the strand that is raised for this one, or null.
    ///
    /// # Safety
    ///
    /// No frame of the strand has begun. The target is the first field of a unit, and valid until the strand ends.
    #[inline]
    pub(in crate::task) unsafe fn set_target(&self, target: *const Tracker) {
        self.target.set(target);
    }

    /// The tracker of the strand that is raised for this one, or null.
    #[inline]
    pub(in crate::task) fn target_ptr(&self) -> *const Tracker {
        self.target.get()
    }

    /// The tracker of the strand that is raised for this one, if it can be raised.
    #[inline]
    pub(in crate::task) fn target(&self) -> Option<&Tracker> {
        // SAFETY: valid until the strand ends, by the contract of `set_target`.
        unsafe { self.target.get().as_ref() }
    }

    /// The level that the strand was raised to.
    #[inline]
    pub(in crate::task) fn raised(&self) -> Option<Priority> {
        match self.raised.load(Relaxed) {
            0 => None,
            raised => Some(by_number(raised - 1)),
        }
    }

    pub(in crate::task) fn lock(&self) -> SpinGuard<'_, ()> {
        self.lock.lock()
    }

    /// The tracker of a frame's strand.
    ///
    /// # Safety
    ///
    /// The frame has started, and is not done before the result is unused.
    #[inline]
    unsafe fn of<'a>(frame: NonNull<Header>) -> &'a Tracker {
        // SAFETY: the caller's promise. A strand outlives its frames.
        unsafe { Header::tracker(frame).as_ref() }
    }

    /// Gives a frame that is about to be queued its level, and lists it if its strand is tracked.
    ///
    /// # Safety
    ///
    /// The frame is busy and in no queue, and the caller queues it next.
    #[inline]
    pub(super) unsafe fn queue(frame: NonNull<Header>, given: Option<Priority>) {
        // SAFETY: the caller's promise: a busy frame is not done.
        let (header, own) = unsafe { (frame.as_ref(), Tracker::of(frame)) };
        match own.target() {
            None => {
                if let Some(level) = given {
                    header.entry().set_level(level);
                }
            }
            Some(_) if header.entry().is_tracked() => {}
            Some(tracker) => {
                let _lock = tracker.lock();
                // SAFETY: the lock is held. The rest is the caller's promise.
                unsafe { tracker.list(frame, given) };
            }
        }
    }

    /// Gives the first frame of a tracked strand its level, and lists it, before the frame is queued.
    ///
    /// # Safety
    ///
    /// The frame has begun and is in no queue. No other thread knows the strand.
    #[inline]
    pub(in crate::task) unsafe fn queue_first(frame: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe {
            let given = Header::placement(frame).as_ref().priority;
            Tracker::of(frame).list(frame, given);
        }
    }

    /// # Safety
    ///
    /// The lock is held, or no other thread knows the strand. The frame is one of the strand, busy, and in no queue.
    unsafe fn list(&self, frame: NonNull<Header>, given: Option<Priority>) {
        // SAFETY: the caller's promise.
        let header = unsafe { frame.as_ref() };
        let entry = header.entry();
        entry.set_level(given.unwrap_or_default());
        if let Some(raised) = self.raised() {
            entry.raise(raised);
        }
        if self.many.get() < MOST {
            self.many.set(self.many.get() + 1);
            entry.set_coming();
            entry.set_tracked(true);
            header.link().set(self.queued.replace(frame.as_ptr()));
        }
    }

    /// Raises a strand before its first frame is queued.
    ///
    /// # Safety
    ///
    /// The frame is the first of a tracked strand and in no queue. No other thread can raise it meanwhile.
    pub(in crate::task) unsafe fn begin_at(frame: NonNull<Header>, level: Priority) {
        // SAFETY: the caller's promise.
        let (header, own) = unsafe { (frame.as_ref(), Tracker::of(frame)) };
        own.raised.store(level as u8 + 1, Relaxed);
        header.entry().raise(level);
    }

    /// Unlists a tracked frame that has left its queue. Blocks while another thread raises it.
    ///
    /// # Safety
    ///
    /// The frame is busy, and about to be polled.
    #[inline(never)]
    pub(super) unsafe fn dequeue(frame: NonNull<Header>) {
        // SAFETY: the caller's promise: a busy frame is not done.
        let (header, own) = unsafe { (frame.as_ref(), Tracker::of(frame)) };
        header.entry().set_tracked(false);
        let Some(tracker) = own.target() else { return };
        let _lock = tracker.lock();
        tracker.many.set(tracker.many.get() - 1);
        let mut link = &tracker.queued;
        while let Some(other) = NonNull::new(link.get()) {
            if other == frame {
                break;
            }
            // SAFETY: a listed frame was not resumed, so it is alive.
            link = unsafe { other.as_ref() }.link();
        }
        link.set(header.link().replace(ptr::null_mut()));
    }

    /// Raises the strand and its queued frames. Returns the lock, or `None` if the strand has that level already.
    pub(in crate::task) fn raise(&self, level: Priority, resumed: &mut Transfer) -> Option<SpinGuard<'_, ()>> {
        if self.raised() >= Some(level) {
            return None;
        }
        let lock = self.lock();
        if self.raised() >= Some(level) {
            return None;
        }
        self.raised.store(level as u8 + 1, Relaxed);
        let mut at = self.queued.get();
        while let Some(frame) = NonNull::new(at) {
            // SAFETY: a listed frame is not resumed before the lock is released. So it is alive, with its context and its
            // scheduler, and it is queued there or about to be.
            unsafe {
                at = frame.as_ref().link().get();
                let home = Header::placement(frame).as_ref().home;
                resumed.append(home.raise(frame.cast(), level));
            }
        }
        Some(lock)
    }
}

impl Polling<'_> {
    /// Whether the frame has the default level, and was not raised.
    pub(super) fn is_default(self) -> bool {
        // SAFETY: the frame is polled, so its strand has not ended.
        let own = unsafe { Tracker::of(self.frame()) };
        self.placement().priority.unwrap_or_default() == Priority::Default
            && own.target().is_none_or(|tracker| tracker.raised().is_none())
    }
}
