//! A strand of work that runs by itself, which is what the papers call a task: what was connected to a receiver, spawned
//! into a group, or detached, with all the tasks that are awaited in it.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};
use std::borrow::Cow;
use std::vec::Vec;

use super::{Context, Facts, Link, Record, TaskRef};
use crate::Priority;
use crate::memory::{Links, List, links};
use crate::sync::SpinGuard;
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::Tracker;

/// What all frames of one strand share. It lives in the operation, or in the frame that was spawned, and is there until
/// that is done.
#[repr(C)]
pub(crate) struct Unit {
    /// First: frames point at it, and so at the whole. Its lock protects the lists.
    tracker: Tracker,
    /// The strand that waits for this one to end, or null.
    parent: *const Unit,
    /// What it was started with, and what it answers with. Set before anybody knows the strand, and there until its
    /// [end](Unit::end).
    context: Cell<*const Context>,
    /// What is kept for those who ask about this strand, which holds one count of it; null while nobody has asked.
    ///
    /// It is set, with release, by whoever asks first: something that runs in this strand or in one beneath it, or
    /// whoever starts it. All of these are over before the [end](Unit::end), which therefore sees it; others acquire. Only
    /// of a strand that has a handle it may be set later: its [end](Unit::end_with_handle) leaves `ENDED` in the place of
    /// null, and the handle puts the record of a strand that has ended there.
    record: AtomicPtr<Record>,
    /// It is a child of a group, or a single one, and counted with the parent.
    spawned: bool,
    /// What counts children of this strand, by its links. Protected by the lock.
    counted: UnsafeCell<List<Counted>>,
    /// What the strand waits for, to be raised with it. Protected by the lock.
    links: UnsafeCell<List<Link>>,
}

// SAFETY: the lists are touched under the lock alone.
unsafe impl Send for Unit {}
// SAFETY: as above.
unsafe impl Sync for Unit {}

impl Unit {
    /// A strand that was connected, or detached. It [gets its context](Unit::set_context) before it is started.
    #[inline]
    pub(in crate::task) fn new(parent: *const Unit) -> Self {
        Unit {
            tracker: Tracker::new(),
            parent,
            context: Cell::new(ptr::null()),
            record: AtomicPtr::new(ptr::null_mut()),
            spawned: false,
            counted: UnsafeCell::new(List::new()),
            links: UnsafeCell::new(List::new()),
        }
    }

    /// A child that is [counted](Counted) with the parent.
    #[inline]
    pub(in crate::task) fn spawned(parent: *const Unit) -> Self {
        let mut unit = Unit::new(parent);
        unit.spawned = true;
        unit
    }

    /// The strand that waits for this one to end, or null.
    pub(in crate::task) fn parent(&self) -> *const Unit {
        self.parent
    }

    /// Says what the strand answers with.
    ///
    /// # Safety
    ///
    /// Nobody else knows the strand yet. The context is there until its end; if there is a handle, until that is gone.
    #[inline]
    pub(in crate::task) unsafe fn set_context(&self, context: NonNull<Context>) {
        self.context.set(context.as_ptr());
    }

    /// What is known of the strand. The first time that somebody asks it costs an allocation.
    ///
    /// # Safety
    ///
    /// The strand has not ended, and does not before this returns.
    #[inline]
    pub(in crate::task) unsafe fn task(&self) -> TaskRef {
        match self.known() {
            Some(task) => task,
            // SAFETY: by the caller's promise.
            None => unsafe { self.begin_record(None) },
        }
    }

    /// Gives the strand a name.
    ///
    /// # Safety
    ///
    /// It has its context, was not started, and nobody has asked about it. The parent has not ended, and does not before
    /// this one has.
    pub(in crate::task) unsafe fn set_name(&self, name: Cow<'static, str>) {
        // SAFETY: by the caller's promise.
        drop(unsafe { self.begin_record(Some(name)) });
    }

    /// What is known of a strand that may have ended, for its handle.
    ///
    /// # Safety
    ///
    /// It has no parent, and ends by [`end_with_handle`](Unit::end_with_handle). The context is there.
    pub(in crate::task) unsafe fn task_of_handle(&self) -> TaskRef {
        loop {
            let seen = self.record.load(Acquire);
            if !seen.is_null() && seen != ENDED {
                // SAFETY: the strand has a count of it, for as long as it is there.
                return unsafe { TaskRef::of(NonNull::new_unchecked(seen)) };
            }
            let strand = NonNull::from(self);
            // SAFETY: by the caller's promise, what it was started with is there. If the strand has not ended, its end finds
            // this.
            let record = unsafe { Record::new(strand, self.facts(), seen.is_null(), None, None) };
            match self.record.compare_exchange(seen, record.as_ptr(), Release, Relaxed) {
                // SAFETY: the strand has the count.
                Ok(_) => return unsafe { TaskRef::of(record) },
                // SAFETY: it is ours.
                Err(_) => unsafe { TaskRef::release(record) },
            }
        }
    }

    fn known(&self) -> Option<TaskRef> {
        // SAFETY: the strand has a count of it, and has not ended, or whoever asks would not.
        NonNull::new(self.record.load(Acquire)).map(|record| unsafe { TaskRef::of(record) })
    }

    /// Makes the record, after those of the strands above, whatever their number.
    ///
    /// # Safety
    ///
    /// As for [`task`](Unit::task).
    #[cold]
    unsafe fn begin_record(&self, name: Option<Cow<'static, str>>) -> TaskRef {
        let mut unknown = Vec::new();
        let mut above = self.parent;
        let mut parent = loop {
            // SAFETY: a strand does not end before those that it waits for, so all that are above are there.
            match unsafe { above.as_ref() } {
                None => break None,
                Some(unit) => match unit.known() {
                    Some(task) => break Some(task),
                    None => {
                        unknown.push(unit);
                        above = unit.parent;
                    }
                },
            }
        };
        while let Some(unit) = unknown.pop() {
            // SAFETY: as above.
            parent = Some(unsafe { unit.publish(parent, None) });
        }
        // SAFETY: by the caller's promise.
        unsafe { self.publish(parent, name) }
    }

    /// # Safety
    ///
    /// As for [`task`](Unit::task).
    unsafe fn publish(&self, parent: Option<TaskRef>, name: Option<Cow<'static, str>>) -> TaskRef {
        // SAFETY: by the caller's promise. The end finds it, if it is the one.
        let record = unsafe { Record::new(NonNull::from(self), self.facts(), true, parent, name) };
        let made = self
            .record
            .compare_exchange(ptr::null_mut(), record.as_ptr(), Release, Acquire);
        // SAFETY: it is new, and counted by the strand, if that has it; or else it is dropped by us, and that which was
        // there is counted.
        unsafe {
            let task = TaskRef::of(match made {
                Ok(_) => record,
                Err(other) => NonNull::new_unchecked(other),
            });
            match made {
                Ok(_) => Record::link(record),
                Err(_) => TaskRef::release(record),
            }
            task
        }
    }

    /// Whether it is counted with the parent.
    pub(in crate::task) fn is_spawned(&self) -> bool {
        self.spawned
    }

    /// What is to be told of it now.
    ///
    /// # Safety
    ///
    /// The context is there until this returns: it has not ended, or there is a handle.
    pub(in crate::task) unsafe fn facts(&self) -> Facts {
        // SAFETY: the caller's promise.
        Facts::of(unsafe { &*self.context.get() }, self.raised())
    }

    /// How many strands beneath this one are children of groups, or single ones, and have not ended.
    pub(in crate::task) fn running(&self) -> usize {
        let _lock = self.lock();
        let mut running = 0;
        // SAFETY: the lock is held, and what is in the list is alive.
        unsafe {
            for node in (*self.counted.get()).iter() {
                running += (node.as_ref().running)(node);
            }
        }
        running
    }

    /// The strand is over, with all that is beneath it: nothing is told of it any more but what is known now. This comes
    /// before anything is dropped that the context points at, and before anybody is told of the completion. Where nobody
    /// has asked it is a look at a null pointer.
    ///
    /// # Safety
    ///
    /// It is called once, when the last frame of the strand is done, while the context and the parent are still there.
    #[inline]
    pub(in crate::task) unsafe fn end(&self) {
        if let Some(record) = NonNull::new(self.record.load(Acquire)) {
            // SAFETY: by the caller's promise.
            unsafe { Record::end(record, self.facts()) };
        }
    }

    /// The same for a strand that has a handle, which may ask at the same time.
    ///
    /// # Safety
    ///
    /// As above.
    #[inline]
    pub(in crate::task) unsafe fn end_with_handle(&self) {
        let asked = self.record.compare_exchange(ptr::null_mut(), ENDED, Release, Acquire);
        if let Some(record) = asked.err().and_then(NonNull::new) {
            // SAFETY: by the caller's promise.
            unsafe { Record::end(record, self.facts()) };
        }
    }

    pub(in crate::task) fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Locks the lists. The lock is held for a few instructions, and never while user code runs.
    pub(in crate::task) fn lock(&self) -> SpinGuard<'_, ()> {
        self.tracker.lock()
    }

    /// The level that the strand was raised to.
    #[inline]
    pub(in crate::task) fn raised(&self) -> Option<Priority> {
        self.tracker.raised()
    }

    /// Makes the strand one that can be raised.
    ///
    /// # Safety
    ///
    /// No frame of the strand has begun. The unit stays where it is, in the tail of the strand's first frame.
    #[inline]
    pub(in crate::task) unsafe fn track(&self) {
        // SAFETY: the caller's promise. The pointer is one to the whole unit.
        unsafe { self.tracker.set_target(ptr::from_ref(self).cast()) };
    }

    /// Makes the strand one that is raised with the strand that it runs in.
    ///
    /// # Safety
    ///
    /// No frame of the strand has begun. The outer strand ends after this one.
    #[inline]
    pub(in crate::task) unsafe fn follow(&self, outer: NonNull<Unit>) {
        // SAFETY: the caller's promise.
        unsafe { self.tracker.set_target(outer.as_ref().tracker.target_ptr()) };
    }

    /// The strand that is raised for this one, if there is one.
    #[inline]
    pub(in crate::task) fn target(&self) -> Option<&Unit> {
        // SAFETY: a target is the first field of a unit, set by `track`, and ends after this strand.
        unsafe { self.tracker.target_ptr().cast::<Unit>().as_ref() }
    }

    /// What the strand waits for, to be raised with it.
    ///
    /// # Safety
    ///
    /// The lock is held as long as the result is used, and the caller uses no other result of this.
    #[allow(clippy::mut_from_ref, reason = "the lock gives exclusive access")]
    pub(super) unsafe fn links(&self) -> &mut List<Link> {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.links.get() }
    }
}

/// Nobody has asked about a strand that has a handle, and it has ended.
const ENDED: *mut Record = ptr::without_provenance_mut(1);

impl Drop for Unit {
    #[inline]
    fn drop(&mut self) {
        // It has ended, or never began: nobody else looks.
        let record = self.record.load(Relaxed);
        if !record.is_null() && record != ENDED {
            // SAFETY: the strand has a count of it.
            unsafe { TaskRef::release(NonNull::new_unchecked(record)) };
        }
    }
}

/// A link to a unit that counts running children for it: that of a group, or of a single child. It only informs: see
/// [`dump`](crate::task::dump).
pub(in crate::task) struct Counted {
    /// Protected by the unit's lock, as is the flag.
    links: Links<Counted>,
    is_linked: Cell<bool>,
    /// How many children have not ended. Called under the unit's lock: it takes no lock but one under which that is not taken.
    running: unsafe fn(NonNull<Counted>) -> usize,
}

links!(Counted, links);

impl Counted {
    pub(in crate::task) fn new(running: unsafe fn(NonNull<Counted>) -> usize) -> Self {
        Counted {
            links: Links::new(),
            is_linked: Cell::new(false),
            running,
        }
    }

    /// Links it to a unit.
    ///
    /// # Safety
    ///
    /// It was not linked before, stays where it is, and is [unlinked](Counted::unlink) before it or the unit is gone.
    pub(in crate::task) unsafe fn link(this: NonNull<Counted>, unit: &Unit) {
        let _lock = unit.lock();
        // SAFETY: the lock is held. The node is in no list, and stays where it is until it is unlinked, by the caller's promise.
        unsafe {
            this.as_ref().is_linked.set(true);
            (*unit.counted.get()).push_front(this);
        }
    }

    /// Unlinks it. A second call does nothing.
    ///
    /// # Safety
    ///
    /// The unit is the one that it was linked to, and alive.
    pub(in crate::task) unsafe fn unlink(&self, unit: *const Unit) {
        // SAFETY: the caller's promise.
        let Some(unit) = (unsafe { unit.as_ref() }) else { return };
        let _lock = unit.lock();
        if !self.is_linked.replace(false) {
            return;
        }
        // SAFETY: the lock is held, and the node is in the list.
        unsafe { (*unit.counted.get()).remove(NonNull::from(self)) };
    }
}
