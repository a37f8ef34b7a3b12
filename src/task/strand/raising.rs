//! Raising a strand, and everything it waits for.
//!
//! A raise walks from a strand to its queued frames, which the [tracker](crate::task::frame::Tracker) lists, and to what the
//! strand waits for: groups, other strands, and escalation handlers. Each of these is a [`Link`] in the list of the strand.

use core::cell::Cell;
use core::mem;
use core::ptr::{self, NonNull};
use std::vec::Vec;

use super::{Context, Unit};
use crate::memory::{Links, links};
use crate::task::frame::{Header, Polling};
use crate::{Priority, Transfer};

impl Polling<'_> {
    /// Returns the level of the frame, if it was given one or raised.
    #[inline]
    pub(in crate::task) fn level(self) -> Option<Priority> {
        self.unit().level_in(self.context())
    }
}

impl Unit {
    /// Returns the level of work begun in this context, in a frame of this strand.
    #[inline]
    pub(in crate::task) fn level_in(&self, context: &Context) -> Option<Priority> {
        let given = context.priority;
        match self.target().and_then(|target| target.raised()) {
            None => given,
            Some(raised) => Some(given.unwrap_or_default().max(raised)),
        }
    }
}

/// Returns the level of the current task, or the default one.
pub(in crate::task) fn current_level() -> Priority {
    Polling::with(|polling| polling.and_then(Polling::level).unwrap_or_default())
}

/// A link to something that a strand waits for: raised with the strand, or counted with it. Listed until that has ended.
pub(in crate::task) struct Link {
    /// All fields except `unit` are protected by `unit`'s lock.
    links: Links<Link>,
    /// The unit in whose list the link is, or was. Null if the strand cannot be raised. Written once, before the link is
    /// listed.
    unit: Cell<*const Unit>,
    linked: Cell<bool>,
    /// The level that the link was told of.
    level: Cell<Option<Priority>>,
    kind: LinkKind,
}

#[derive(Clone, Copy)]
enum LinkKind {
    /// Adds a reference to what is to be raised, if anything. Called under the lock.
    Raised(Hold),
    /// Returns the number of running children. Called under the lock: a lock that it takes is never held while the unit's is
    /// taken.
    Counted(Running),
}

// SAFETY: all fields are protected by the strand's lock, or do not change once listed.
unsafe impl Send for Link {}
// SAFETY: as for `Send`.
unsafe impl Sync for Link {}

links!(Link, links);

type Hold = unsafe fn(NonNull<Link>) -> Option<ToRaise>;
type Running = unsafe fn(NonNull<Counted>) -> usize;

/// A reference to something that is to be raised.
pub(in crate::task) struct ToRaise {
    pub(in crate::task) what: NonNull<()>,
    /// Raises it, and releases the reference. Called once.
    pub(in crate::task) raise: unsafe fn(NonNull<()>, Priority, &mut Raising),
}

impl Link {
    pub(in crate::task) fn new(hold: Hold) -> Self {
        Link::of_kind(LinkKind::Raised(hold))
    }

    fn of_kind(kind: LinkKind) -> Self {
        Link {
            links: Links::new(),
            unit: Cell::new(ptr::null()),
            linked: Cell::new(false),
            level: Cell::new(None),
            kind,
        }
    }

    /// Lists the link with the strand of a frame. Later raises are told to it; the caller checks for earlier ones.
    ///
    /// # Safety
    ///
    /// The frame and the strand end after the link was [removed](Link::leave). The link is pinned, and was not listed before.
    pub(in crate::task) unsafe fn enter(this: NonNull<Link>, frame: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let (link, unit) = unsafe { (this.as_ref(), Header::unit(frame).as_ref()) };
        let Some(target) = unit.target() else { return };
        let _lock = target.lock();
        link.level.set(target.raised());
        // SAFETY: the lock is held, and the rest is the caller's promise.
        unsafe { Link::list(this, target) };
    }

    /// # Safety
    ///
    /// The unit is locked. The link is pinned, in no list, and was not listed before.
    unsafe fn list(this: NonNull<Link>, unit: &Unit) {
        // SAFETY: the caller's promise.
        unsafe {
            this.as_ref().unit.set(unit);
            this.as_ref().linked.set(true);
            unit.links().push_front(this);
        }
    }

    /// Removes the link. May be called again while the strand is alive.
    pub(in crate::task) fn leave(&self) {
        // SAFETY: a listed link is removed before its strand ends.
        let Some(unit) = (unsafe { self.unit.get().as_ref() }) else {
            return;
        };
        let _lock = unit.lock();
        if !self.linked.replace(false) {
            return;
        }
        // SAFETY: the lock is held, and the link is in the list.
        unsafe { unit.links().remove(NonNull::from(self)) };
    }

    /// Tells the link of a level, and returns a reference to raise if the level is new to it.
    ///
    /// # Safety
    ///
    /// The link is in the list, and the lock is held.
    unsafe fn tell(this: NonNull<Link>, level: Priority) -> Option<ToRaise> {
        // SAFETY: the caller's promise.
        let link = unsafe { this.as_ref() };
        let LinkKind::Raised(hold) = link.kind else { return None };
        if link.level.get() >= Some(level) {
            return None;
        }
        link.level.set(Some(level));
        // SAFETY: the link is listed and the lock held, as `hold` requires.
        unsafe { hold(this) }
    }

    /// Returns the number of running children that the link counts.
    ///
    /// # Safety
    ///
    /// The link is in the list, and the lock is held.
    pub(super) unsafe fn running(this: NonNull<Link>) -> usize {
        // SAFETY: the caller's promise. A link of this kind is that of a `Counted`.
        unsafe {
            match this.as_ref().kind {
                LinkKind::Raised(_) => 0,
                LinkKind::Counted(running) => running(this.cast()),
            }
        }
    }
}

/// A counter of running children in the list of a unit: that of a group. For [`dump`](crate::task::dump) only.
#[repr(transparent)]
pub(in crate::task) struct Counted(Link);

impl Counted {
    pub(in crate::task) fn new(running: Running) -> Self {
        Counted(Link::of_kind(LinkKind::Counted(running)))
    }

    /// Links the counter to a unit.
    ///
    /// # Safety
    ///
    /// Called once. The counter is pinned, and [unlinked](Counted::unlink) before it or the unit is destroyed.
    pub(in crate::task) unsafe fn link(this: NonNull<Counted>, unit: &Unit) {
        let _lock = unit.lock();
        // SAFETY: the lock is held, and the rest is the caller's promise. The link is the only field.
        unsafe { Link::list(this.cast(), unit) };
    }

    /// Unlinks the counter, if it is linked. May be called again while the unit is alive.
    pub(in crate::task) fn unlink(&self) {
        self.0.leave();
    }
}

/// The number of links that are visited and held per locking.
pub(in crate::task) const BATCH: usize = 16;

/// References collected under a lock, where nothing is allocated.
#[derive(Default)]
pub(in crate::task) struct Batch([Option<ToRaise>; BATCH]);

/// A raise in progress: a work list instead of recursion, since the depth is unbounded.
#[derive(Default)]
pub(in crate::task) struct Raising {
    found: Vec<(ToRaise, Priority)>,
    resumed: Transfer,
}

impl Raising {
    /// Raises the queued frames of a strand, and collects its links in the batch. Returns `false` if the batch is full;
    /// [`links`](Raising::links) continues.
    ///
    /// # Safety
    ///
    /// The frame is the first of a tracked strand, and alive with all that its context points at. Runs and allocates nothing, so it may be
    /// called under a lock that keeps the frame alive.
    pub(in crate::task) unsafe fn frames(
        &mut self,
        frame: NonNull<Header>,
        level: Priority,
        batch: &mut Batch,
    ) -> bool {
        // SAFETY: the caller's promise. The unit is in the frame's tail. The placement is the first field of the strand's context, which is
        // valid as long as the owner's lock keeps the frame.
        let (unit, lock) = unsafe {
            let unit = Header::unit(frame).as_ref();
            let first = (frame, &(*unit.context()).placement);
            (unit, unit.raise(first, level, &mut self.resumed))
        };
        let Some(lock) = lock else { return true };
        // SAFETY: the lock is held.
        if unsafe { unit.links() }.is_empty() {
            return true;
        }
        drop(lock);
        // SAFETY: the strand is alive, and the tracker has raised it.
        unsafe { Raising::links(unit, level, batch) }
    }

    /// Collects the links of a strand that were not told of the level, as far as the batch has room. Returns `false` if there
    /// may be more.
    ///
    /// # Safety
    ///
    /// The strand is alive, and has that level.
    pub(in crate::task) unsafe fn links(unit: &Unit, level: Priority, batch: &mut Batch) -> bool {
        let _lock = unit.lock();
        let mut places = batch.0.iter_mut().filter(|place| place.is_none());
        let mut place = places.next();
        // SAFETY: the lock is held. A listed link is alive.
        for link in unsafe { unit.links() }.iter() {
            let Some(empty) = &mut place else { return false };
            // SAFETY: the lock is held and the link listed.
            **empty = unsafe { Link::tell(link, level) };
            if empty.is_some() {
                place = places.next();
            }
        }
        true
    }

    /// Moves the batch to the work list.
    pub(in crate::task) fn keep(&mut self, batch: &mut Batch, level: Priority) {
        let found = batch.0.iter_mut().filter_map(Option::take);
        self.found.extend(found.map(|held| (held, level)));
    }

    /// Raises everything on the work list.
    pub(in crate::task) fn finish(mut self) {
        while let Some((held, level)) = self.found.pop() {
            // SAFETY: each reference is popped, and so consumed once.
            unsafe { (held.raise)(held.what, level, &mut self) };
        }
        mem::take(&mut self.resumed).run();
    }
}
