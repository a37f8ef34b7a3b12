//! A strand, which the papers call a task: a coroutine that was connected, spawned or detached, with all tasks awaited in it.

use core::cell::{Cell, UnsafeCell};
use core::mem;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use std::borrow::Cow;
use std::vec::Vec;

use super::{Context, Facts, Link, Record, TaskRef};
use crate::memory::List;
use crate::sync::Arc;
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::task::frame::{Header, Site, Tracker};

/// The state that all frames of a strand share. It lives in the operation, or in the frame of a spawned child, until that is
/// done.
#[repr(C)]
pub(in crate::task) struct Unit {
    /// First: frames point at it, and so at the whole. Its lock protects the lists, for a few instructions at a time, and is not held
    /// while user code runs.
    tracker: Tracker,
    /// The context of the start, which answers queries. Set before the strand is shared, and valid until its [end](Unit::end).
    context: Cell<*const Context>,
    /// The record of the strand, which owns one reference to it; null until the first query.
    ///
    /// Set with release by the first query: from inside the strand or one below it, or by its starter. All of these happen
    /// before the [end](Unit::end), which therefore sees it; other loads acquire. Only a strand with a handle can get its
    /// record later: its [end](Unit::end_with_handle) replaces null by `ENDED`, and the handle stores the record of an ended
    /// strand.
    record: AtomicPtr<Record>,
    /// The links that are raised with the strand, and the counters of its children. Protected by the lock.
    links: UnsafeCell<List<Link>>,
}

// SAFETY: the lists are lock-protected; the cells are written before the strand is shared; the rest is atomic.
unsafe impl Send for Unit {}
// SAFETY: as for `Send`.
unsafe impl Sync for Unit {}

impl Deref for Unit {
    type Target = Tracker;

    #[inline]
    fn deref(&self) -> &Tracker {
        &self.tracker
    }
}

impl Unit {
    /// Creates a strand that is connected or detached. It [gets its context](Unit::set_context) before it is started.
    #[inline]
    pub(in crate::task) fn new(begun_at: Site) -> Self {
        Unit {
            tracker: Tracker::new(begun_at),
            context: Cell::new(ptr::null()),
            record: AtomicPtr::new(ptr::null_mut()),
            links: UnsafeCell::new(List::new()),
        }
    }

    /// Creates a child that is [counted](Counted) with the parent.
    #[inline]
    pub(in crate::task) fn spawned(begun_at: Site) -> Self {
        let unit = Unit::new(begun_at);
        unit.spawned.set(true);
        unit
    }

    /// Sets the context that answers queries.
    ///
    /// # Safety
    ///
    /// The strand is not shared yet. The context is valid until its end; with a handle, until the handle is dropped.
    #[inline]
    pub(in crate::task) unsafe fn set_context(&self, context: NonNull<Context>) {
        self.context.set(context.as_ptr());
    }

    /// Returns the context that answers queries, or null.
    #[inline]
    pub(in crate::task) fn context(&self) -> *const Context {
        self.context.get()
    }

    /// Returns the strand that waits for this one to end, or null.
    ///
    /// # Safety
    ///
    /// The strand has its context, and does not end before the result is used.
    unsafe fn parent(&self) -> *const Unit {
        // SAFETY: the caller's promise: the context is valid, and the frame that waits for the strand is not done.
        unsafe {
            let around = (*self.context.get()).around;
            around.map_or(ptr::null(), |around| Header::unit(around.frame).as_ptr())
        }
    }

    /// Returns a reference to the task. The first call allocates its record.
    ///
    /// # Safety
    ///
    /// The strand does not end before this returns.
    #[inline]
    pub(in crate::task) unsafe fn task(&self) -> TaskRef {
        match self.known() {
            Some(task) => task,
            // SAFETY: the caller's promise.
            None => unsafe { self.begin_record(None) },
        }
    }

    /// Gives the strand a name.
    ///
    /// # Safety
    ///
    /// The strand has its context, was not started, and has no record. Its parent ends after it.
    pub(in crate::task) unsafe fn set_name(&self, name: Cow<'static, str>) {
        // SAFETY: the strand has not started, so it does not end before this returns.
        drop(unsafe { self.begin_record(Some(name)) });
    }

    /// Makes the strand known to those who look at all tasks, and to the instrument if it [is observed](Header::is_observed).
    ///
    /// # Safety
    ///
    /// As for [`set_name`](Unit::set_name), but the strand may have a record.
    #[inline(always)]
    pub(in crate::task) unsafe fn begin_inspection(&self, observed: bool) {
        #[cfg(feature = "inspect")]
        {
            crate::coarse_clock::start();
            // SAFETY: the strand has not started, so it does not end before this returns.
            let task = unsafe { self.task() };
            if observed {
                super::instrument::spawned(&task);
            }
        }
        #[cfg(not(feature = "inspect"))]
        let _ = observed;
    }

    /// Returns a reference to a task that may have ended, for its handle.
    ///
    /// # Safety
    ///
    /// The strand has no parent, and ends by [`end_with_handle`](Unit::end_with_handle). The context is valid.
    pub(in crate::task) unsafe fn task_of_handle(&self) -> TaskRef {
        loop {
            let seen = self.record.load(Acquire);
            if !seen.is_null() && seen != ENDED {
                // SAFETY: the strand owns a reference to its record, as long as the unit is alive.
                return unsafe { TaskRef::of(seen) };
            }
            // SAFETY: the caller's promise: the context is valid. If the strand has not ended, its end finds this record.
            let record = unsafe { Record::new(self, self.facts(), seen.is_null(), None, None) };
            if let Ok(task) = self.publish(seen, record) {
                return task;
            }
        }
    }

    /// Publishes a record in the place of `seen`. Returns the other value that was there.
    fn publish(&self, seen: *mut Record, record: Record) -> Result<TaskRef, *mut Record> {
        let task = TaskRef(Arc::new(record));
        // The reference of the strand.
        let own = task.clone();
        let place = Arc::as_ptr(&own.0).cast_mut();
        self.record.compare_exchange(seen, place, Release, Acquire)?;
        mem::forget(own);
        Ok(task)
    }

    fn known(&self) -> Option<TaskRef> {
        // SAFETY: the strand owns a reference to its record, and does not end during the call.
        NonNull::new(self.record.load(Acquire)).map(|record| unsafe { TaskRef::of(record.as_ptr()) })
    }

    /// Creates the record after those of all strands above, iteratively.
    ///
    /// # Safety
    ///
    /// As for [`task`](Unit::task).
    #[cold]
    unsafe fn begin_record(&self, name: Option<Cow<'static, str>>) -> TaskRef {
        let mut unknown = Vec::new();
        // SAFETY: the caller's promise.
        let mut above = unsafe { self.parent() };
        let mut parent = loop {
            // SAFETY: a strand ends after those that it waits for, so all strands above are alive.
            match unsafe { above.as_ref() } {
                None => break None,
                Some(unit) => match unit.known() {
                    Some(task) => break Some(task),
                    None => {
                        unknown.push(unit);
                        // SAFETY: as above: the strand has begun, and has not ended.
                        above = unsafe { unit.parent() };
                    }
                },
            }
        };
        while let Some(unit) = unknown.pop() {
            // SAFETY: the strand above does not end before this returns.
            parent = Some(unsafe { unit.make_record(parent, None) });
        }
        // SAFETY: the caller's promise.
        unsafe { self.make_record(parent, name) }
    }

    /// # Safety
    ///
    /// As for [`task`](Unit::task).
    unsafe fn make_record(&self, parent: Option<TaskRef>, name: Option<Cow<'static, str>>) -> TaskRef {
        // SAFETY: the caller's promise. A published record is linked once, and the strand's end finds it. If another thread was
        // first, the strand owns a reference to the record of that thread.
        unsafe {
            match self.publish(ptr::null_mut(), Record::new(self, self.facts(), true, parent, name)) {
                Ok(task) => {
                    task.record().link();
                    task
                }
                Err(other) => TaskRef::of(other),
            }
        }
    }

    /// Returns the current facts.
    ///
    /// # Safety
    ///
    /// The context is valid until this returns: the strand has not ended, or has a handle.
    pub(in crate::task) unsafe fn facts(&self) -> Facts {
        // SAFETY: the caller's promise.
        Facts::of(unsafe { &*self.context.get() }, self.raised())
    }

    /// Returns the number of running strands below this one that are children of groups or single children.
    pub(in crate::task) fn running(&self) -> usize {
        let _lock = self.lock();
        let mut running = 0;
        // SAFETY: the lock is held, and a listed link is alive.
        unsafe {
            for link in self.links().iter() {
                running += Link::running(link);
            }
        }
        running
    }

    /// Ends the strand and everything below it: the record keeps the last facts. Called before the data of the context is
    /// dropped and before the completion. Without a record this is one load.
    ///
    /// # Safety
    ///
    /// Called once, when the last frame of the strand is done, while the context and the parent are valid.
    #[inline]
    pub(in crate::task) unsafe fn end(&self) {
        // SAFETY: the caller's promise. The strand owns a reference to its record.
        unsafe {
            if let Some(record) = NonNull::new(self.record.load(Acquire)) {
                self.end_record(record);
            }
        }
    }

    /// Stores the last facts in the record.
    ///
    /// # Safety
    ///
    /// As for [`end`](Unit::end). The record is that of the strand.
    #[cold]
    unsafe fn end_record(&self, record: NonNull<Record>) {
        // SAFETY: the caller's promise. The strand owns a reference to its record.
        unsafe {
            record.as_ref().end(self.facts());
            #[cfg(feature = "inspect")]
            super::instrument::ended(|| TaskRef::of(record.as_ptr()));
        }
    }

    /// Ends a strand that has a handle, which may query concurrently.
    ///
    /// # Safety
    ///
    /// As for [`end`](Unit::end).
    #[inline]
    pub(in crate::task) unsafe fn end_with_handle(&self) {
        if let Err(record) = self.record.compare_exchange(ptr::null_mut(), ENDED, Release, Acquire) {
            // SAFETY: the caller's promise. A record that is not null is the strand's.
            unsafe { self.end_record(NonNull::new_unchecked(record)) };
        }
    }

    /// Returns whether the strand has nothing to drop.
    #[inline]
    pub(in crate::task) fn is_bare(&mut self) -> bool {
        self.record.load(Relaxed).is_null() && self.tracker.is_bare()
    }

    /// Makes the strand raisable.
    ///
    /// # Safety
    ///
    /// No frame of the strand has begun. The unit is pinned in the tail of the strand's first frame.
    #[inline]
    pub(in crate::task) unsafe fn track(&self) {
        self.tracker.track();
    }

    /// Raises the strand with the one that it runs in.
    ///
    /// # Safety
    ///
    /// No frame of the strand has begun. The outer strand ends after this one.
    #[inline]
    pub(in crate::task) unsafe fn follow(&self, outer: NonNull<Unit>) {
        // SAFETY: the caller's promise. The target of the outer strand ends after that.
        unsafe {
            let tracker = &outer.as_ref().tracker;
            self.tracker.set_target(match tracker.is_tracked() {
                true => outer.as_ptr().cast(),
                false => tracker.outer_target(),
            });
        }
    }

    /// Returns the strand that is raised for this one, if any.
    #[inline]
    pub(in crate::task) fn target(&self) -> Option<&Unit> {
        if self.tracker.is_tracked() {
            return Some(self);
        }
        // SAFETY: a target is the first field of a unit, set by `follow`, and ends after this strand.
        unsafe { self.tracker.outer_target().cast::<Unit>().as_ref() }
    }

    /// Returns the links that are raised with the strand.
    ///
    /// # Safety
    ///
    /// The lock is held while the result is used, and the caller uses no other result of this.
    #[allow(clippy::mut_from_ref, reason = "the lock gives exclusive access")]
    pub(super) unsafe fn links(&self) -> &mut List<Link> {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.links.get() }
    }
}

/// The record of an ended strand that has a handle and was never queried.
const ENDED: *mut Record = ptr::without_provenance_mut(1);

impl Drop for Unit {
    #[inline]
    fn drop(&mut self) {
        /// Not inlined, so that the drop of a strand without a record is.
        #[cold]
        fn drop_record(record: *mut Record) {
            // SAFETY: the strand owns a reference to the record.
            drop(unsafe { Arc::from_raw(record) });
        }
        // The strand has ended or never began, so no other thread accesses it.
        let record = self.record.load(Relaxed);
        if !record.is_null() && record != ENDED {
            drop_record(record);
        }
    }
}
