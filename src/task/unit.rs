//! A strand of work that runs by itself, which is what the papers call a task: what was connected to a receiver, spawned
//! into a group, or detached, with all the tasks that are awaited in it.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};
use std::borrow::Cow;
use std::vec::Vec;

use super::context::{Around, Context, Scope};
use super::current::{Facts, Record, TaskRef};
use super::frame::Header;
use super::priority::Escalation;
use crate::Transfer;
use crate::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::{SpinGuard, SpinLock, spin};

/// What all frames of one strand share. It lives in the operation, or in the frame that was spawned, and is there until
/// that is done.
#[repr(C)]
pub(crate) struct Unit {
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
    /// It is a child of something that is attached to the parent, and counted there.
    spawned: bool,
    /// What is attached, by its links. Touched under the lock.
    attached: UnsafeCell<*mut Attached>,
    /// What raises it.
    pub(super) escalation: Escalation,
    /// Protects the lists. Held for a few instructions, and never while anything of the user's runs.
    lock: SpinLock<()>,
}

// SAFETY: the lists are touched under the lock alone.
unsafe impl Send for Unit {}
// SAFETY: as above.
unsafe impl Sync for Unit {}

impl Unit {
    /// A strand that was connected, or detached. It [gets its context](Unit::set_context) before it is started.
    #[inline]
    pub(super) fn new(parent: *const Unit) -> Self {
        Unit {
            parent,
            context: Cell::new(ptr::null()),
            record: AtomicPtr::new(ptr::null_mut()),
            spawned: false,
            attached: UnsafeCell::new(ptr::null_mut()),
            escalation: Escalation::new(),
            lock: SpinLock::new(()),
        }
    }

    /// A child of something that is attached to the parent and [counts](AttachedVtable::running) it.
    #[inline]
    pub(super) fn spawned(parent: *const Unit) -> Self {
        let mut unit = Unit::new(parent);
        unit.spawned = true;
        unit
    }

    /// Says what the strand answers with.
    ///
    /// # Safety
    ///
    /// Nobody else knows the strand yet. The context is there until its end; if there is a handle, until that is gone.
    #[inline]
    pub(super) unsafe fn set_context(&self, context: NonNull<Context>) {
        self.context.set(context.as_ptr());
    }

    /// The frame that awaits the operation of this strand, or that it is a child of, if that is known.
    ///
    /// # Safety
    ///
    /// It has not ended.
    pub(super) unsafe fn around(&self) -> Option<Around> {
        // SAFETY: the caller's promise. It does not change once the strand was started.
        unsafe { (*self.context.get()).around }
    }

    /// What is known of the strand. The first time that somebody asks it costs an allocation.
    ///
    /// # Safety
    ///
    /// The strand has not ended, and does not before this returns.
    #[inline]
    pub(super) unsafe fn task(&self) -> TaskRef {
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
    pub(super) unsafe fn set_name(&self, name: Cow<'static, str>) {
        // SAFETY: by the caller's promise.
        drop(unsafe { self.begin_record(Some(name)) });
    }

    /// What is known of a strand that may have ended, for its handle.
    ///
    /// # Safety
    ///
    /// It has no parent, and ends by [`end_with_handle`](Unit::end_with_handle). The context is there.
    pub(super) unsafe fn task_of_handle(&self) -> TaskRef {
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

    /// Whether it is counted by something that is attached to the parent.
    pub(super) fn is_spawned(&self) -> bool {
        self.spawned
    }

    /// What is to be told of it now.
    ///
    /// # Safety
    ///
    /// The context is there until this returns: it has not ended, or there is a handle.
    pub(super) unsafe fn facts(&self) -> Facts {
        // SAFETY: the caller's promise.
        Facts::of(unsafe { &*self.context.get() }, self.escalation.raised())
    }

    /// How many strands beneath this one are counted by what is attached to it, and have not ended.
    pub(super) fn running(&self) -> usize {
        self.lock().running()
    }

    /// The strand is over, with all that is beneath it: nothing is told of it any more but what is known now. This comes
    /// before anything is dropped that the context points at, and before anybody is told of the completion. Where nobody
    /// has asked it is a look at a null pointer.
    ///
    /// # Safety
    ///
    /// It is called once, when the last frame of the strand is done, while the context and the parent are still there.
    #[inline]
    pub(super) unsafe fn end(&self) {
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
    pub(super) unsafe fn end_with_handle(&self) {
        let asked = self.record.compare_exchange(ptr::null_mut(), ENDED, Release, Acquire);
        if let Some(record) = asked.err().and_then(NonNull::new) {
            // SAFETY: by the caller's promise.
            unsafe { Record::end(record, self.facts()) };
        }
    }

    pub(super) fn lock(&self) -> UnitLock<'_> {
        UnitLock(self, self.lock.lock())
    }

    /// Ends what is attached on behalf of a frame whose future is gone; or, with a scope, what began in that. What began last
    /// ends first.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, which is one of this strand. The scope is one inside of it.
    #[cold]
    pub(super) unsafe fn detach_all(&self, frame: NonNull<Header>, scope: Option<&Scope>) {
        let mut rounds = 0;
        loop {
            let found = self.lock().take(frame, scope);
            match found {
                Found::Nothing => return,
                // Somebody else ends it, and has not yet taken it out.
                Found::Ending => spin(&mut rounds),
                // SAFETY: it was in the list, so it is there; and it stays until it has left.
                Found::Taken(node) => unsafe {
                    let leave = (*node.as_ptr()).vtable.leave;
                    let resumed = leave(node);
                    Header::resume_later(frame, resumed);
                },
            }
        }
    }
}

/// What there is in the list of a unit.
enum Found {
    Nothing,
    Ending,
    Taken(NonNull<Attached>),
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

/// The list of a unit.
pub(super) struct UnitLock<'a>(&'a Unit, #[allow(dead_code, reason = "it is held")] SpinGuard<'a, ()>);

impl UnitLock<'_> {
    /// Takes out the last one that is attached on behalf of this frame, and began in the scope.
    fn take(&self, frame: NonNull<Header>, scope: Option<&Scope>) -> Found {
        let mut found = Found::Nothing;
        // SAFETY: we hold the lock, and what is in the list is there.
        unsafe {
            let mut at = *self.0.attached.get();
            while let Some(node) = NonNull::new(at) {
                let attached = node.as_ref();
                at = *attached.next.get();
                if attached.frame.get() != frame.as_ptr()
                    || scope.is_some_and(|scope| !scope.encloses(attached.scope.get()))
                {
                    continue;
                }
                if attached
                    .state
                    .compare_exchange(ATTACHED, LEAVING, Relaxed, Relaxed)
                    .is_ok()
                {
                    self.unlink(node);
                    return Found::Taken(node);
                }
                found = Found::Ending;
            }
        }
        found
    }

    fn running(&self) -> usize {
        let mut running = 0;
        // SAFETY: we hold the lock, and what is in the list is there.
        unsafe {
            let mut at = *self.0.attached.get();
            while let Some(node) = NonNull::new(at) {
                if let Some(count) = node.as_ref().vtable.running {
                    running += count(node);
                }
                at = *node.as_ref().next.get();
            }
        }
        running
    }

    /// # Safety
    ///
    /// The node is in no list, and stays where it is until it is taken out.
    unsafe fn link(&self, node: NonNull<Attached>) {
        // SAFETY: we hold the lock; the neighbours are there while they are in the list.
        unsafe {
            let head = self.0.attached.get();
            node.as_ref().next.get().write(*head);
            node.as_ref().previous.get().write(ptr::null_mut());
            if let Some(first) = (*head).as_ref() {
                first.previous.get().write(node.as_ptr());
            }
            *head = node.as_ptr();
        }
    }

    /// # Safety
    ///
    /// The node is in the list.
    unsafe fn unlink(&self, node: NonNull<Attached>) {
        // SAFETY: as above.
        unsafe {
            let (next, previous) = (*node.as_ref().next.get(), *node.as_ref().previous.get());
            match previous.as_ref() {
                Some(previous) => previous.next.get().write(next),
                None => *self.0.attached.get() = next,
            }
            if let Some(next) = next.as_ref() {
                next.previous.get().write(previous);
            }
        }
    }
}

/// Something that began in a frame and must outlive neither it, nor the scope in it that it began in: a group, a handler, a
/// scope.
///
/// ```text
/// DETACHED ──attach──▶ ATTACHED ──the frame's future, or the scope, is gone──▶ LEAVING ──left──▶ DETACHED
///                          └──detach──▶ ENDING ────────────────────────────────────────────────▲
/// ```
///
/// Until it is detached it is a user of the scope, which waits for it. The frame waits for what is `ENDING`, and asks what
/// leaves to have it wait, where that takes longer.
#[repr(C)]
pub(super) struct Attached {
    /// The links belong to the unit's lock.
    next: UnsafeCell<*mut Attached>,
    previous: UnsafeCell<*mut Attached>,
    /// Written when it is attached, and read by whoever detaches it, who is ordered after that. They are there until then.
    unit: Cell<*const Unit>,
    frame: Cell<*mut Header>,
    scope: Cell<Option<NonNull<Scope>>>,
    /// `ATTACHED` is left for `LEAVING` by the frame, under the unit's lock, and for `ENDING` by whoever detaches it, of which
    /// there is one: so one of them ends it. In both it is there, and so is the unit. `DETACHED` is set with release, after
    /// which whoever did touches nothing of this; whoever waits for it acquires.
    state: AtomicU8,
    vtable: &'static AttachedVtable,
}

/// What is known of something that is attached.
pub(super) struct AttachedVtable {
    /// Called by the frame that it was attached to, once, when its future is gone, or the scope is left, and
    /// outside of the lock. It calls [`Attached::left`] when it needs the node no more.
    pub(super) leave: unsafe fn(NonNull<Attached>) -> Transfer,
    /// How many children it has that were made by [`Unit::spawned`] and have not ended; none where it never has any. Called
    /// under the unit's lock: it takes no lock but one under which nobody takes that.
    pub(super) running: Option<unsafe fn(NonNull<Attached>) -> usize>,
}

const DETACHED: u8 = 0;
const ATTACHED: u8 = 1;
const LEAVING: u8 = 2;
const ENDING: u8 = 3;

impl Attached {
    pub(super) fn new(vtable: &'static AttachedVtable) -> Self {
        Attached {
            next: UnsafeCell::new(ptr::null_mut()),
            previous: UnsafeCell::new(ptr::null_mut()),
            unit: Cell::new(ptr::null()),
            frame: Cell::new(ptr::null_mut()),
            scope: Cell::new(None),
            state: AtomicU8::new(DETACHED),
            vtable,
        }
    }

    /// Attaches it to the frame that this thread polls, and to the innermost scope that the poll is in.
    ///
    /// # Safety
    ///
    /// The caller is what the frame's poll is running. This is pinned, was not attached before, and is
    /// [detached](Attached::detach) before it goes.
    pub(super) unsafe fn attach(this: NonNull<Attached>, frame: NonNull<Header>) {
        // SAFETY: by the caller's promise.
        unsafe {
            let (unit, context) = (Header::unit(frame), Header::context(frame).as_ref());
            let node = this.as_ref();
            node.unit.set(unit.as_ptr());
            node.frame.set(frame.as_ptr());
            context.enter();
            node.scope.set(context.scope());
            node.state.store(ATTACHED, Relaxed);
            Header::set_attached(frame);
            unit.as_ref().lock().link(this);
        }
    }

    /// Whether it is attached to this frame. Where it is not, a frame may be at the same address.
    ///
    /// Called by whoever may detach it.
    pub(super) fn is_attached_to(&self, frame: NonNull<Header>) -> bool {
        self.state.load(Acquire) == ATTACHED && self.frame.get() == frame.as_ptr()
    }

    /// Takes it out of the list, if it was attached. Where the frame has just come to end it, that is waited for. `true`
    /// where the frame did not.
    pub(super) fn detach(&self) -> bool {
        self.detach_with(|| {})
    }

    /// The same, and calls `end` before, unless the frame has ended it: the frame, and the scope, are there meanwhile.
    pub(super) fn detach_with(&self, end: impl FnOnce()) -> bool {
        let mut rounds = 0;
        loop {
            match self.state.compare_exchange(ATTACHED, ENDING, Acquire, Acquire) {
                Ok(_) => break,
                Err(DETACHED) => return false,
                Err(_) => spin(&mut rounds),
            }
        }
        /// Also when it unwinds.
        struct TakeOut<'a>(&'a Attached);
        impl Drop for TakeOut<'_> {
            fn drop(&mut self) {
                let Attached { unit, scope, state, .. } = self.0;
                let scope = scope.get();
                // SAFETY: the frame waits for what is ending, so it is not done, and its unit is there.
                let lock = unsafe { &*unit.get() }.lock();
                // SAFETY: it is in the list.
                unsafe { lock.unlink(NonNull::from(self.0)) };
                state.store(DETACHED, Release);
                drop(lock);
                exit(scope);
            }
        }
        let _take_out = TakeOut(self);
        end();
        true
    }

    /// The frame, and the scope, need this no more.
    pub(super) fn left(&self) {
        let scope = self.scope.get();
        self.state.store(DETACHED, Release);
        exit(scope);
    }
}

/// The scope, if there is one, need not wait any more.
fn exit(scope: Option<NonNull<Scope>>) {
    if let Some(scope) = scope {
        // SAFETY: it waits for what is attached in it, and this is called once for each.
        unsafe { scope.as_ref() }.exit();
    }
}
