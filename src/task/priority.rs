//! How urgent tasks are, and how that grows while somebody more urgent waits for them.
//!
//! A strand that was spawned, detached, or bound to a variable is *tracked*: it can be raised. It knows its frames that are
//! queued, and those of the tasks that run inside of it; and what it waits for: groups, other strands, and handlers that
//! want to know. Nobody else can be raised, and costs a look at a pointer that is null.

use core::cell::Cell;
use core::mem;
use core::ptr::{self, NonNull};
use std::vec::Vec;

use super::frame::{Header, Polling};
use super::strand::context::Context;
use super::strand::unit::Unit;
use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crate::{Priority, Transfer};

/// How urgent the current task is right now: as it was made, or as it was raised to since. [`Priority::Default`] where there
/// is no task, or nothing was said.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::task::{self, Task};
///
/// let task = Task::new(async { (task::priority(), task::base_priority()) });
/// let levels = sync_wait(task.write_env(With(Priority::Utility))).unwrap();
/// assert_eq!(levels, (Priority::Utility, Priority::Utility));
/// assert_eq!(task::priority(), Priority::Default);
/// ```
///
/// Children inherit it. A task that is awaited by a more urgent one is raised to the level of that, for good, with all that
/// it waits for itself: its children, and the tasks that it awaits, whether they are queued, suspended or running.
pub fn priority() -> Priority {
    Polling::with(|polling| polling.and_then(level).unwrap_or_default())
}

/// [`priority`], by the name that the papers have for it.
#[inline]
pub fn current_priority() -> Priority {
    priority()
}

/// How urgent the current task was made, whatever it was raised to since: see [`priority`]. [`Priority::Default`] where there
/// is no task, or nothing was said.
pub fn base_priority() -> Priority {
    Polling::with(|polling| {
        polling
            .and_then(|polling| polling.context().priority)
            .unwrap_or_default()
    })
}

/// How urgent a frame is, where anything is known of that.
#[inline]
pub(super) fn level(polling: Polling<'_>) -> Option<Priority> {
    level_in(polling.unit(), polling.context())
}

/// How urgent what began in this context is, in a frame of this strand.
#[inline]
pub(super) fn level_in(unit: &Unit, context: &Context) -> Option<Priority> {
    let given = context.priority;
    match unit.tracker().and_then(|tracker| tracker.escalation.raised()) {
        None => given,
        Some(raised) => Some(given.unwrap_or_default().max(raised)),
    }
}

/// Whether a frame is of the default level, and was not raised.
pub(super) fn is_default(polling: Polling<'_>) -> bool {
    polling.context().priority.unwrap_or_default() == Priority::Default
        && (polling.unit().tracker()).is_none_or(|tracker| tracker.escalation.raised().is_none())
}

/// Whether the strand of a frame can be raised.
pub(super) fn can_be_raised(polling: Polling<'_>) -> bool {
    polling.unit().tracker().is_some()
}

/// Makes a strand at least as urgent as `level`, for good, and with it all that it waits for.
///
/// # Safety
///
/// The frame is the first of a strand that is tracked. The caller keeps it, by a count or as its owner.
pub(super) unsafe fn raise(frame: NonNull<Header>, level: Priority) {
    let mut raising = Raising::default();
    // SAFETY: the caller's promise.
    unsafe { raising.strand(frame, level) };
    raising.finish();
}

/// The part of a [`Unit`] that raises it.
///
/// All but the tracker belongs to the lock of the unit. So a frame that is in the list is not resumed while somebody raises
/// it, and neither it nor its scheduler goes away meanwhile.
///
/// ```text
///          queue: linked              resume: unlinked
/// polled ────────────────▶ coming ──pushed──▶ in a queue ──popped──▶ popped ────────────────▶ polled
///                             └─────── raised here, wherever it is ─────┘
/// ```
///
/// One that is coming has a level already, which whoever raises it raises, and then waits until it was pushed: where that
/// looked at the level before, it is moved.
pub(super) struct Escalation {
    /// The strand that is raised for this one: itself, or that which it runs inside of. Null where nobody can. Written before
    /// the first frame begins.
    tracker: Cell<*const Unit>,
    /// The frames that are queued, by their links.
    queued: Cell<*mut Header>,
    /// What it waits for, by its links.
    links: Cell<*mut Link>,
    /// One more than the level that it was raised to, or zero. Written under the lock, and read by anybody: who comes too
    /// early has linked something, and is told.
    raised: AtomicU8,
    /// How many frames are in the list.
    many: Cell<u8>,
}

/// So many frames of one strand are tracked while they are queued. What is beyond that has its turn at the level that held
/// when it was queued: to find one in the list takes time.
const MOST: u8 = 16;

impl Escalation {
    #[inline]
    pub(super) fn new() -> Self {
        Escalation {
            tracker: Cell::new(ptr::null()),
            queued: Cell::new(ptr::null_mut()),
            links: Cell::new(ptr::null_mut()),
            raised: AtomicU8::new(0),
            many: Cell::new(0),
        }
    }

    #[inline]
    pub(super) fn raised(&self) -> Option<Priority> {
        match self.raised.load(Relaxed) {
            0 => None,
            raised => Some(by_number(raised - 1)),
        }
    }
}

/// The level of a number.
pub(super) fn by_number(number: u8) -> Priority {
    match number {
        0 => Priority::Background,
        1 => Priority::Utility,
        2 => Priority::Default,
        3 => Priority::UserInitiated,
        _ => Priority::UserInteractive,
    }
}

impl Unit {
    /// Has it tracked: it can be raised from now on.
    ///
    /// # Safety
    ///
    /// No frame of it has begun. It stays where it is, in the tail of its first frame.
    #[inline]
    pub(super) unsafe fn track(&self) {
        self.escalation.tracker.set(self);
    }

    /// Has it raised with the strand that it runs inside of.
    ///
    /// # Safety
    ///
    /// No frame of it has begun. The other one is there until it is over.
    #[inline]
    pub(super) unsafe fn follow(&self, outer: NonNull<Unit>) {
        // SAFETY: the caller's promise.
        self.escalation
            .tracker
            .set(unsafe { outer.as_ref() }.escalation.tracker.get());
    }

    /// What is raised for this strand, if anybody can.
    #[inline]
    fn tracker(&self) -> Option<&Unit> {
        // SAFETY: it is the strand itself, or one that is there as long as this is.
        unsafe { self.escalation.tracker.get().as_ref() }
    }

    /// Puts a frame into the list of those that are queued.
    ///
    /// # Safety
    ///
    /// The lock is held, or nobody else knows the strand. The frame is one of it, busy, and in no queue.
    unsafe fn link_frame(&self, frame: NonNull<Header>, given: Option<Priority>) {
        // SAFETY: the caller's promise.
        let header = unsafe { frame.as_ref() };
        let (this, entry) = (&self.escalation, header.entry());
        entry.set_level(given.unwrap_or_default());
        if let Some(raised) = this.raised() {
            entry.raise(raised);
        }
        if this.many.get() < MOST {
            this.many.set(this.many.get() + 1);
            entry.set_coming();
            entry.set_tracked(true);
            header.link().set(this.queued.replace(frame.as_ptr()));
        }
    }
}

/// A frame is about to be queued: gives it its level, and has it raised while it waits.
///
/// # Safety
///
/// It is busy, in no queue, and does so next.
#[inline]
pub(super) unsafe fn queue(frame: NonNull<Header>, given: Option<Priority>) {
    // SAFETY: by the caller's promise, it is not done, so its unit is there.
    let (header, unit) = unsafe { (frame.as_ref(), Header::unit(frame).as_ref()) };
    match unit.tracker() {
        None => {
            if let Some(level) = given {
                header.entry().set_level(level);
            }
        }
        Some(_) if header.entry().is_tracked() => {}
        Some(tracker) => {
            let _lock = tracker.lock();
            // SAFETY: the lock is held; the rest is the caller's promise.
            unsafe { tracker.link_frame(frame, given) };
        }
    }
}

/// The same for the first frame of a strand that nobody knows yet, some time before it is queued.
///
/// # Safety
///
/// As above. The strand is tracked.
#[inline]
pub(super) unsafe fn queue_first(frame: NonNull<Header>) {
    // SAFETY: the caller's promise. It has begun.
    unsafe {
        let given = Header::context(frame).as_ref().priority;
        Header::unit(frame).as_ref().link_frame(frame, given);
    }
}

/// What was begun in a group takes over what that was raised to.
///
/// # Safety
///
/// The frame is the first of a strand, was not queued yet, and nobody else can raise it meanwhile.
pub(super) unsafe fn begin_at(frame: NonNull<Header>, level: Priority) {
    // SAFETY: the caller's promise.
    let (header, unit) = unsafe { (frame.as_ref(), Header::unit(frame).as_ref()) };
    unit.escalation.raised.store(level as u8 + 1, Relaxed);
    header.entry().raise(level);
}

/// A frame that was tracked has left its queue. Where somebody raises it, this waits.
///
/// # Safety
///
/// It is busy, and about to be polled.
#[inline(never)]
pub(super) unsafe fn dequeue(frame: NonNull<Header>) {
    // SAFETY: by the caller's promise, it is not done, so its unit is there.
    let (header, unit) = unsafe { (frame.as_ref(), Header::unit(frame).as_ref()) };
    header.entry().set_tracked(false);
    let Some(tracker) = unit.tracker() else { return };
    let _lock = tracker.lock();
    let list = &tracker.escalation;
    list.many.set(list.many.get() - 1);
    let mut link = &list.queued;
    while let Some(other) = NonNull::new(link.get()) {
        if other == frame {
            break;
        }
        // SAFETY: what is in the list was not resumed, and is there.
        link = unsafe { other.as_ref() }.link();
    }
    link.set(header.link().replace(ptr::null_mut()));
}

/// Something that a strand waits for, and that is raised with it: it is in the list of that until it is over.
pub(super) struct Link {
    /// All but the unit belongs to the lock of that.
    next: Cell<*mut Link>,
    previous: Cell<*mut Link>,
    /// Whose list it is in, or was. Null where nobody can be raised. Written once, before it is known.
    unit: Cell<*const Unit>,
    linked: Cell<bool>,
    /// One more than the level that it knows of.
    level: Cell<u8>,
    /// Keeps what is to be raised, if there is something. Called under the lock.
    hold: Hold,
}

// SAFETY: all of it belongs to the lock of the strand, or does not change once it is known there.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

type Hold = unsafe fn(NonNull<Link>) -> Option<Held>;

/// Something that is kept until it was raised.
pub(super) struct Held {
    pub(super) what: NonNull<()>,
    /// Raises it, and lets go of it. Called once.
    pub(super) raise: unsafe fn(NonNull<()>, Priority, &mut Raising),
}

impl Held {
    /// A strand, by its first frame.
    ///
    /// # Safety
    ///
    /// Somebody else than who runs it has a count, and keeps that meanwhile: a frame that nobody knows but who runs it ends
    /// without looking whether that has changed.
    pub(super) unsafe fn strand(frame: NonNull<Header>) -> Held {
        /// # Safety
        ///
        /// The frame is counted, and this gives that back.
        unsafe fn raise(what: NonNull<()>, level: Priority, raising: &mut Raising) {
            // SAFETY: the caller's promise.
            unsafe {
                raising.strand(what.cast(), level);
                Header::release(what.cast());
            }
        }

        // SAFETY: the caller's promise.
        unsafe { Header::count(frame) };
        Held {
            what: frame.cast(),
            raise,
        }
    }
}

impl Link {
    pub(super) fn new(hold: Hold) -> Self {
        Link {
            next: Cell::new(ptr::null_mut()),
            previous: Cell::new(ptr::null_mut()),
            unit: Cell::new(ptr::null()),
            linked: Cell::new(false),
            level: Cell::new(0),
            hold,
        }
    }

    /// The strand of this frame begins to wait for it. What it is raised to from now on is told; what it was raised to before
    /// is for the caller to see.
    ///
    /// # Safety
    ///
    /// The frame is not done before it was [taken out](Link::leave), and neither is the strand. This is pinned, and did not
    /// enter before.
    pub(super) unsafe fn enter(this: NonNull<Link>, frame: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let (link, unit) = unsafe { (this.as_ref(), Header::unit(frame).as_ref()) };
        let Some(tracker) = unit.tracker() else { return };
        link.unit.set(tracker);
        let _lock = tracker.lock();
        let list = &tracker.escalation;
        link.level.set(list.raised.load(Relaxed));
        link.linked.set(true);
        let first = list.links.replace(this.as_ptr());
        link.next.set(first);
        // SAFETY: what is in the list is there.
        if let Some(first) = unsafe { first.as_ref() } {
            first.previous.set(this.as_ptr());
        }
    }

    /// It is over. May be said again, as long as the strand is there.
    pub(super) fn leave(&self) {
        // SAFETY: where it has entered, it leaves before the strand is over.
        let Some(unit) = (unsafe { self.unit.get().as_ref() }) else {
            return;
        };
        let _lock = unit.lock();
        if !self.linked.replace(false) {
            return;
        }
        let (next, previous) = (self.next.get(), self.previous.replace(ptr::null_mut()));
        // SAFETY: what is in the list is there.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.set(next),
                None => unit.escalation.links.set(next),
            }
            if let Some(next) = next.as_ref() {
                next.previous.set(previous);
            }
        }
    }

    /// Keeps this, if it does not know of the level.
    ///
    /// # Safety
    ///
    /// It is in the list, and the lock is held.
    unsafe fn tell(this: NonNull<Link>, level: Priority) -> Option<Held> {
        // SAFETY: the caller's promise.
        let link = unsafe { this.as_ref() };
        if link.level.get() > level as u8 {
            return None;
        }
        link.level.set(level as u8 + 1);
        // SAFETY: as above.
        unsafe { (link.hold)(this) }
    }
}

/// How many are looked at, and kept, at a time, under a lock.
pub(super) const BATCH: usize = 16;

/// What is kept under a lock, where nothing is allocated.
#[derive(Default)]
pub(super) struct Batch([Option<Held>; BATCH]);

/// What is raised, and what is still to be: a list, since there is no telling how deep it goes.
#[derive(Default)]
pub(super) struct Raising {
    found: Vec<(Held, Priority)>,
    resumed: Transfer,
}

impl Raising {
    /// Raises one strand. What it waits for is kept for later.
    ///
    /// # Safety
    ///
    /// As for [`raise`].
    unsafe fn strand(&mut self, frame: NonNull<Header>, level: Priority) {
        let mut batch = Batch::default();
        // SAFETY: the caller's promise.
        let mut all = unsafe { self.frames(frame, level, &mut batch) };
        loop {
            self.keep(&mut batch, level);
            if all {
                return;
            }
            // SAFETY: the caller's promise.
            all = unsafe { Raising::links(Header::unit(frame).as_ref(), level, &mut batch) };
        }
    }

    /// Raises the frames of a strand that are queued, and puts what it waits for into the batch. `false` where there is more of
    /// that: [`links`](Raising::links) gets at it.
    ///
    /// # Safety
    ///
    /// As for [`raise`]. Nothing is run, nor allocated: it may be under a lock that keeps the frame.
    pub(super) unsafe fn frames(&mut self, frame: NonNull<Header>, level: Priority, batch: &mut Batch) -> bool {
        // SAFETY: the caller's promise. The unit is in the frame's tail.
        let unit = unsafe { Header::unit(frame).as_ref() };
        let this = &unit.escalation;
        if this.raised.load(Relaxed) > level as u8 {
            return true;
        }
        let lock = unit.lock();
        if this.raised.load(Relaxed) > level as u8 {
            return true;
        }
        this.raised.store(level as u8 + 1, Relaxed);
        let mut at = this.queued.get();
        while let Some(frame) = NonNull::new(at) {
            // SAFETY: what is in the list is not resumed before we give the lock back, so it is there, with its context.
            unsafe {
                at = frame.as_ref().link().get();
                self.resumed.append(Context::raise(frame, level));
            }
        }
        if this.links.get().is_null() {
            return true;
        }
        drop(lock);
        // SAFETY: as above.
        unsafe { Raising::links(unit, level, batch) }
    }

    /// Puts what a strand waits for, and what does not know of the level, into the batch, as far as there is room. `false`
    /// where there may be more.
    ///
    /// # Safety
    ///
    /// The strand is there, and has that level.
    pub(super) unsafe fn links(unit: &Unit, level: Priority, batch: &mut Batch) -> bool {
        let _lock = unit.lock();
        let mut places = batch.0.iter_mut().filter(|place| place.is_none());
        let mut place = places.next();
        let mut at = unit.escalation.links.get();
        while let Some(link) = NonNull::new(at) {
            let Some(empty) = &mut place else { return false };
            // SAFETY: what is in the list is there.
            unsafe {
                at = link.as_ref().next.get();
                **empty = Link::tell(link, level);
            }
            if empty.is_some() {
                place = places.next();
            }
        }
        true
    }

    /// What is in the batch is raised later.
    pub(super) fn keep(&mut self, batch: &mut Batch, level: Priority) {
        let found = batch.0.iter_mut().filter_map(Option::take);
        self.found.extend(found.map(|held| (held, level)));
    }

    /// Raises all that is left.
    pub(super) fn finish(mut self) {
        while let Some((held, level)) = self.found.pop() {
            // SAFETY: it is raised this once.
            unsafe { (held.raise)(held.what, level, &mut self) };
        }
        mem::take(&mut self.resumed).run();
    }
}
