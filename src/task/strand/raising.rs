//! Raising a strand, and with it all that it waits for.
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
    /// The level of the frame, if anything asked for one.
    #[inline]
    pub(in crate::task) fn level(self) -> Option<Priority> {
        self.unit().level_in(self.context())
    }

    /// Whether the strand of the frame can be raised.
    pub(in crate::task) fn can_be_raised(self) -> bool {
        self.unit().target().is_some()
    }
}

impl Unit {
    /// The level of what began in this context, in a frame of this strand.
    #[inline]
    pub(in crate::task) fn level_in(&self, context: &Context) -> Option<Priority> {
        let given = context.priority();
        match self.target().and_then(Unit::raised) {
            None => given,
            Some(raised) => Some(given.unwrap_or_default().max(raised)),
        }
    }
}

/// The level of the current task, or the default one.
pub(in crate::task) fn current_level() -> Priority {
    Polling::with(|polling| polling.and_then(Polling::level).unwrap_or_default())
}

/// Makes a strand at least as urgent as `level`, for good, and with it all that it waits for.
///
/// # Safety
///
/// The frame is the first of a strand that is tracked. The caller keeps it, by a count or as its owner.
pub(in crate::task) unsafe fn raise(frame: NonNull<Header>, level: Priority) {
    let mut raising = Raising::default();
    // SAFETY: the caller's promise.
    unsafe { raising.strand(frame, level) };
    raising.finish();
}

/// Something that a strand waits for, and that is raised with the strand. Linked until it has ended.
pub(in crate::task) struct Link {
    /// All fields except `unit` are protected by `unit`'s lock.
    links: Links<Link>,
    /// The unit whose list the link is in, or was. Null where the strand cannot be raised. Written once, before the link is
    /// listed.
    unit: Cell<*const Unit>,
    linked: Cell<bool>,
    /// The level that the link knows of.
    level: Cell<Option<Priority>>,
    /// Keeps what is to be raised, if there is something. Called under the lock.
    hold: Hold,
}

// SAFETY: all of it belongs to the lock of the strand, or does not change once it is known there.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

links!(Link, links);

type Hold = unsafe fn(NonNull<Link>) -> Option<ToRaise>;

/// Something that is kept until it was raised.
pub(in crate::task) struct ToRaise {
    pub(in crate::task) what: NonNull<()>,
    /// Raises it, and lets go of it. Called once.
    pub(in crate::task) raise: unsafe fn(NonNull<()>, Priority, &mut Raising),
}

impl ToRaise {
    /// A strand, by its first frame.
    ///
    /// # Safety
    ///
    /// Somebody else than who runs it has a count, and keeps that meanwhile: a frame that nobody knows but who runs it ends
    /// without looking whether that has changed.
    pub(in crate::task) unsafe fn strand(frame: NonNull<Header>) -> ToRaise {
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
        ToRaise {
            what: frame.cast(),
            raise,
        }
    }
}

impl Link {
    pub(in crate::task) fn new(hold: Hold) -> Self {
        Link {
            links: Links::new(),
            unit: Cell::new(ptr::null()),
            linked: Cell::new(false),
            level: Cell::new(None),
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
    pub(in crate::task) unsafe fn enter(this: NonNull<Link>, frame: NonNull<Header>) {
        // SAFETY: the caller's promise.
        let (link, unit) = unsafe { (this.as_ref(), Header::unit(frame).as_ref()) };
        let Some(target) = unit.target() else { return };
        link.unit.set(target);
        let _lock = target.lock();
        link.level.set(target.raised());
        link.linked.set(true);
        // SAFETY: the lock is held. The link is pinned and in no list, by the caller's promise.
        unsafe { target.links().push_front(this) };
    }

    /// It is over. May be said again, as long as the strand is there.
    pub(in crate::task) fn leave(&self) {
        // SAFETY: where it has entered, it leaves before the strand is over.
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

    /// Keeps this, if it does not know of the level.
    ///
    /// # Safety
    ///
    /// It is in the list, and the lock is held.
    unsafe fn tell(this: NonNull<Link>, level: Priority) -> Option<ToRaise> {
        // SAFETY: the caller's promise.
        let link = unsafe { this.as_ref() };
        if link.level.get() >= Some(level) {
            return None;
        }
        link.level.set(Some(level));
        // SAFETY: as above.
        unsafe { (link.hold)(this) }
    }
}

/// How many are looked at, and kept, at a time, under a lock.
pub(in crate::task) const BATCH: usize = 16;

/// What is kept under a lock, where nothing is allocated.
#[derive(Default)]
pub(in crate::task) struct Batch([Option<ToRaise>; BATCH]);

/// What is raised, and what is still to be: a list, since there is no telling how deep it goes.
#[derive(Default)]
pub(in crate::task) struct Raising {
    found: Vec<(ToRaise, Priority)>,
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
    pub(in crate::task) unsafe fn frames(
        &mut self,
        frame: NonNull<Header>,
        level: Priority,
        batch: &mut Batch,
    ) -> bool {
        // SAFETY: the caller's promise. The unit is in the frame's tail.
        let unit = unsafe { Header::unit(frame).as_ref() };
        let Some(lock) = unit.tracker().raise(level, &mut self.resumed) else {
            return true;
        };
        // SAFETY: the lock is held.
        if unsafe { unit.links() }.is_empty() {
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
    pub(in crate::task) unsafe fn links(unit: &Unit, level: Priority, batch: &mut Batch) -> bool {
        let _lock = unit.lock();
        let mut places = batch.0.iter_mut().filter(|place| place.is_none());
        let mut place = places.next();
        // SAFETY: the lock is held. A listed link is alive.
        for link in unsafe { unit.links() }.iter() {
            let Some(empty) = &mut place else { return false };
            // SAFETY: as above.
            **empty = unsafe { Link::tell(link, level) };
            if empty.is_some() {
                place = places.next();
            }
        }
        true
    }

    /// What is in the batch is raised later.
    pub(in crate::task) fn keep(&mut self, batch: &mut Batch, level: Priority) {
        let found = batch.0.iter_mut().filter_map(Option::take);
        self.found.extend(found.map(|held| (held, level)));
    }

    /// Raises all that is left.
    pub(in crate::task) fn finish(mut self) {
        while let Some((held, level)) = self.found.pop() {
            // SAFETY: it is raised this once.
            unsafe { (held.raise)(held.what, level, &mut self) };
        }
        mem::take(&mut self.resumed).run();
    }
}
