//! The queued frames of a strand that can be raised.
//!
//! A strand that was spawned, detached, or bound to a variable is *tracked*: its priority can be raised while it runs. Its
//! tracker lists its queued frames, so that they move up in their queues. Any other strand is raised with the one it runs in, if that
//! is tracked.

use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use super::moved::MovedWakers;
use super::{Activity, Header, Placement, Site};
use crate::scheduler::thread_pool::Entry;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use crate::sync::{SpinGuard, SpinLock};
use crate::{Priority, Transfer};

/// The level that a strand was raised to, and its queued frames.
///
/// The first field of a unit, so a pointer to a tracker is a pointer to its unit. The list and `many` are lock-protected.
/// So while a thread raises the listed frames, none of them is resumed or freed, nor its scheduler.
///
/// ```text
///          queue: linked              resume: unlinked
/// polled ────────────────▶ coming ──pushed──▶ in a queue ──popped──▶ popped ────────────────▶ polled
///                             └─────── raised here, wherever it is ─────┘
/// ```
///
/// A coming frame has a level already. A raising thread raises that level, and then waits for the push. If the push had
/// read the level before, the frame is moved.
///
/// The first frame of a spawned child is not linked while its owner queues it in a pool: for its first poll, and after a stop of the
/// group. The owner raises it, under the lock that keeps it alive, and its place tells where it is. So these polls do not take this lock.
pub(in crate::task) struct Tracker {
    /// The first of the queued frames, linked by [`Header::link`]. If the strand is not tracked, the tracker that is raised for
    /// it: that of the strand it runs in, or null. The latter is written before the first frame begins.
    word: Cell<*mut Header>,
    /// The wakers of awaits that [moved](super::moved).
    moved: UnsafeCell<MovedWakers>,
    /// Protects the list of queued frames, and the wakers.
    lock: SpinLock<()>,
    /// Whether the strand is tracked. Written before the first frame begins.
    is_tracked: Cell<bool>,
    /// The number of frames in the list.
    many: Cell<u8>,
    /// One more than the level that the strand was raised to, or zero. Stored with relaxed ordering under the lock, and
    /// also loaded without it. A thread whose load misses a raise has linked itself before, so the raising thread finds it.
    raised: AtomicU8,
    /// Whether the strand is a child of a group or a single child, and counted with the parent. Written before it is shared.
    pub(in crate::task) spawned: Cell<bool>,
    /// A byte of the owner of the strand.
    pub(in crate::task) beside: Cell<u8>,
    /// Whether the owner of the strand wakes the first frame when that is stopped, if the frame asks for it. Written before the strand
    /// is shared.
    is_reached: Cell<bool>,
    /// Whether the first frame has asked for that. Set with relaxed ordering by the polling thread, which then takes the lock of the stop
    /// source. The owner reads it after a stop of that source, which orders the two.
    listens: AtomicBool,
    /// What the strand does.
    pub(in crate::task) activity: Activity,
}

/// The lock of a strand, held. It gives access to the wakers.
pub(in crate::task) struct TrackerGuard<'a> {
    tracker: &'a Tracker,
    _lock: SpinGuard<'a, ()>,
}

impl Deref for TrackerGuard<'_> {
    type Target = MovedWakers;

    #[inline]
    fn deref(&self) -> &MovedWakers {
        // SAFETY: the guard holds the lock, and the reference borrows the guard.
        unsafe { &*self.tracker.moved.get() }
    }
}

impl DerefMut for TrackerGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut MovedWakers {
        // SAFETY: the guard holds the lock, so this thread has exclusive access.
        unsafe { &mut *self.tracker.moved.get() }
    }
}

/// The number of queued frames that a strand tracks, since a search of the list takes time. Frames beyond it keep the level
/// that they were queued with.
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
    pub(in crate::task) fn new(begun_at: Site) -> Self {
        Tracker {
            word: Cell::new(ptr::null_mut()),
            moved: UnsafeCell::new(None),
            lock: SpinLock::new(()),
            is_tracked: Cell::new(false),
            many: Cell::new(0),
            raised: AtomicU8::new(0),
            spawned: Cell::new(false),
            beside: Cell::new(0),
            is_reached: Cell::new(false),
            listens: AtomicBool::new(false),
            activity: Activity::new(begun_at),
        }
    }

    /// Returns whether the tracker has nothing to drop.
    #[inline]
    pub(in crate::task) fn is_bare(&mut self) -> bool {
        self.moved.get_mut().is_none()
    }

    /// Makes the strand tracked. No frame of it has begun.
    #[inline]
    pub(in crate::task) fn track(&self) {
        self.is_tracked.set(true);
    }

    /// Notes that the owner of the strand reaches it when its token stops. No frame of it has begun.
    #[inline]
    pub(in crate::task) fn set_reached(&self) {
        self.is_reached.set(true);
    }

    /// Sets the tracker that is raised for a strand that is not tracked, or null.
    ///
    /// # Safety
    ///
    /// No frame of the strand has begun, and it is never tracked. The target is valid until the strand ends.
    #[inline]
    pub(in crate::task) unsafe fn set_target(&self, target: *const Tracker) {
        self.word.set(target.cast_mut().cast());
    }

    /// Asks the owner to wake the first frame after a stop. Returns `false` if the owner does not.
    #[inline]
    pub(super) fn begin_to_listen(&self) -> bool {
        if self.is_reached.get() {
            self.listens.store(true, Relaxed);
        }
        self.is_reached.get()
    }

    /// Returns whether the first frame is to be woken after a stop.
    #[inline]
    pub(super) fn has_listener(&self) -> bool {
        self.listens.load(Relaxed)
    }

    #[inline]
    pub(in crate::task) fn is_tracked(&self) -> bool {
        self.is_tracked.get()
    }

    /// Returns what [`set_target`](Tracker::set_target) has set. The strand is not tracked.
    #[inline]
    pub(in crate::task) fn outer_target(&self) -> *const Tracker {
        self.word.get().cast_const().cast()
    }

    /// Returns the tracker that is raised for this strand, if it can be raised.
    #[inline]
    pub(in crate::task) fn target(&self) -> Option<&Tracker> {
        if self.is_tracked() {
            return Some(self);
        }
        // SAFETY: by the contract of `set_target` it is valid until the strand ends.
        unsafe { self.outer_target().as_ref() }
    }

    /// Returns the level that the strand was raised to.
    #[inline]
    pub(in crate::task) fn raised(&self) -> Option<Priority> {
        match self.raised.load(Relaxed) {
            0 => None,
            raised => Some(by_number(raised - 1)),
        }
    }

    pub(in crate::task) fn lock(&self) -> TrackerGuard<'_> {
        TrackerGuard {
            tracker: self,
            _lock: self.lock.lock(),
        }
    }

    /// Sets the level of a frame, and lists the frame if its strand is tracked.
    ///
    /// # Safety
    ///
    /// The frame is busy and in no queue, and the caller queues it next.
    #[inline]
    pub(super) unsafe fn queue(frame: NonNull<Header>, given: Option<Priority>) {
        // SAFETY: a busy frame is not done.
        let (header, own) = unsafe { (frame.as_ref(), Header::tracker(frame).as_ref()) };
        match own.target() {
            None => {
                if let Some(level) = given {
                    header.entry.set_level(level);
                }
            }
            Some(_) if header.entry.is_tracked() => {}
            // SAFETY: the caller promises a busy frame in no queue.
            Some(tracker) => unsafe { tracker.lock_and_list(frame, given) },
        }
    }

    /// # Safety
    ///
    /// The frame is one of the strand, busy, and in no queue.
    #[inline(never)]
    unsafe fn lock_and_list(&self, frame: NonNull<Header>, given: Option<Priority>) {
        let _lock = self.lock();
        // SAFETY: the lock is held. The rest is the caller's promise.
        unsafe { self.list(frame, given) };
    }

    /// Sets the level of the first frame of a tracked strand, and marks it as about to be queued. Lists the frame, unless the owner
    /// raises it.
    ///
    /// # Safety
    ///
    /// The frame has begun and is in no queue. No other thread knows the strand. The caller queues the frame next: until then it runs no
    /// code of a user, and takes no lock whose holder may raise the frame.
    #[inline]
    pub(in crate::task) unsafe fn queue_first(frame: NonNull<Header>) {
        // SAFETY: the frame has begun, and no other thread knows the strand.
        unsafe {
            let placement = Header::placement(frame).as_ref();
            if Self::is_raised_by_owner(frame, placement) {
                let entry = &frame.as_ref().entry;
                entry.set_level(placement.priority.unwrap_or_default());
                entry.begin_coming();
            } else {
                Header::tracker(frame).as_ref().list(frame, placement.priority);
            }
        }
    }

    /// Does what [`queue_first`](Tracker::queue_first) does for a frame that other threads may raise.
    ///
    /// # Safety
    ///
    /// The frame is the first of a tracked strand, busy, and in no queue. The caller holds the lock under which the owner raises it, and
    /// queues the frame once that is released.
    #[inline]
    pub(in crate::task) unsafe fn queue_by_owner(frame: NonNull<Header>) {
        // SAFETY: the caller's promise: a busy frame is not done.
        unsafe {
            let (placement, own) = (Header::placement(frame).as_ref(), Header::tracker(frame).as_ref());
            if Self::is_raised_by_owner(frame, placement) {
                let entry = &frame.as_ref().entry;
                own.set_level(entry, placement.priority);
                entry.set_coming();
            } else {
                own.lock_and_list(frame, placement.priority);
            }
        }
    }

    /// Sets the level of an entry to the given one, or the one that the strand was raised to.
    #[inline]
    fn set_level(&self, entry: &Entry, given: Option<Priority>) {
        entry.set_level(given.unwrap_or_default());
        if let Some(raised) = self.raised() {
            entry.raise(raised);
        }
    }

    /// Returns whether the first frame of a strand, with this placement, is raised by the owner without being listed. The place
    /// of an entry in a pool tells whether it is queued; other queues have to be told of queued frames alone.
    ///
    /// # Safety
    ///
    /// The frame is alive.
    #[inline]
    unsafe fn is_raised_by_owner(frame: NonNull<Header>, placement: &Placement) -> bool {
        // SAFETY: the caller's promise. A frame with a context of its own may have another home.
        placement.home.is_pool() && unsafe { frame.as_ref() }.vtable.adopt.is_none()
    }

    /// Sets the level of a frame, and links the frame unless the list is full.
    ///
    /// # Safety
    ///
    /// The lock is held, or no other thread knows the strand. The frame is one of the strand, busy, and in no queue.
    unsafe fn list(&self, frame: NonNull<Header>, given: Option<Priority>) {
        // SAFETY: a busy frame is alive.
        let header = unsafe { frame.as_ref() };
        let entry = &header.entry;
        self.set_level(entry, given);
        if self.many.get() < MOST {
            self.many.set(self.many.get() + 1);
            entry.set_coming();
            entry.set_tracked(true);
            header.link().set(self.word.replace(frame.as_ptr()));
        }
    }

    /// Raises a strand before its first frame is queued.
    ///
    /// # Safety
    ///
    /// The frame is the first of a tracked strand and in no queue. No other thread raises it meanwhile.
    pub(in crate::task) unsafe fn begin_at(frame: NonNull<Header>, level: Priority) {
        // SAFETY: the first frame of a strand is alive until it was queued and polled.
        let (header, own) = unsafe { (frame.as_ref(), Header::tracker(frame).as_ref()) };
        own.raised.store(level as u8 + 1, Relaxed);
        header.entry.raise(level);
    }

    /// Unlinks a tracked frame that has left its queue. Blocks while another thread raises the strand.
    ///
    /// # Safety
    ///
    /// The frame is busy, and about to be polled.
    #[inline(never)]
    pub(super) unsafe fn dequeue(frame: NonNull<Header>) {
        // SAFETY: a busy frame is not done.
        let (header, own) = unsafe { (frame.as_ref(), Header::tracker(frame).as_ref()) };
        header.entry.set_tracked(false);
        let Some(tracker) = own.target() else { return };
        let _lock = tracker.lock();
        tracker.many.set(tracker.many.get() - 1);
        let mut link = &tracker.word;
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
    ///
    /// # Safety
    ///
    /// The strand is tracked, and this is its tracker. `first` is its first frame, which has begun with this placement. Both are alive until
    /// this returns, and so is what the placement points at.
    pub(in crate::task) unsafe fn raise(
        &self,
        (first, placement): (NonNull<Header>, &Placement),
        level: Priority,
        resumed: &mut Transfer,
    ) -> Option<TrackerGuard<'_>> {
        if self.raised() >= Some(level) {
            return None;
        }
        let lock = self.lock();
        if self.raised() >= Some(level) {
            return None;
        }
        self.raised.store(level as u8 + 1, Relaxed);
        let mut at = self.word.get();
        while let Some(frame) = NonNull::new(at) {
            // SAFETY: a listed frame is not resumed before the lock is released. So it, its context and its home are alive.
            unsafe {
                at = frame.as_ref().link().get();
                let home = Header::placement(frame).as_ref().home;
                resumed.append(home.raise(frame.cast(), level));
            }
        }
        // SAFETY: the caller's promise. A frame that is not queued, or was raised above, is left as it is.
        unsafe {
            if Self::is_raised_by_owner(first, placement) {
                resumed.append(placement.home.raise(first.cast(), level));
            }
        }
        Some(lock)
    }
}
