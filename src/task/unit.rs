//! A strand of work that runs by itself, which is what the papers call a task: what was connected to a receiver, spawned
//! into a group, or detached, with all the tasks that are awaited in it.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};

use super::context::Scope;
use super::frame::Header;
use crate::Transfer;
use crate::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::spin;

/// What all frames of one strand share. It lives in the operation, or in the frame that was spawned, and is there until
/// that is done.
#[repr(C)]
pub(crate) struct Unit {
    /// The strand that waits for this one to end, or null.
    parent: *const Unit,
    /// What is attached, by its links. Touched under the lock.
    attached: UnsafeCell<*mut Attached>,
    /// Held for a few instructions, and never while anything of the user's runs. Taken with acquire, given back with
    /// release.
    locked: AtomicBool,
}

// SAFETY: the list is touched under the lock alone.
unsafe impl Send for Unit {}
// SAFETY: as above.
unsafe impl Sync for Unit {}

impl Unit {
    #[inline]
    pub(super) fn new(parent: *const Unit) -> Self {
        Unit {
            parent,
            attached: UnsafeCell::new(ptr::null_mut()),
            locked: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> UnitLock<'_> {
        let mut rounds = 0;
        while self
            .locked
            .compare_exchange_weak(false, true, Acquire, Relaxed)
            .is_err()
        {
            spin(&mut rounds);
        }
        UnitLock(self)
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
                    let leave = (*node.as_ptr()).leave;
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

/// The list of a unit.
struct UnitLock<'a>(&'a Unit);

impl Drop for UnitLock<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Release);
    }
}

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
    /// Called by the frame that this was attached to, once, when its future is gone, or the scope is left, and outside of the
    /// lock. It calls [`Attached::left`] when it needs this no more.
    leave: unsafe fn(NonNull<Attached>) -> Transfer,
}

const DETACHED: u8 = 0;
const ATTACHED: u8 = 1;
const LEAVING: u8 = 2;
const ENDING: u8 = 3;

impl Attached {
    pub(super) fn new(leave: unsafe fn(NonNull<Attached>) -> Transfer) -> Self {
        Attached {
            next: UnsafeCell::new(ptr::null_mut()),
            previous: UnsafeCell::new(ptr::null_mut()),
            unit: Cell::new(ptr::null()),
            frame: Cell::new(ptr::null_mut()),
            scope: Cell::new(None),
            state: AtomicU8::new(DETACHED),
            leave,
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
