//! A strand of work that runs by itself, which is what the papers call a task: what was connected to a receiver, spawned
//! into a group, or detached, with all the tasks that are awaited in it.

use core::cell::{Cell, UnsafeCell};
use core::ptr::{self, NonNull};

use super::frame::Header;
use super::priority::Escalation;
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
    /// What raises it.
    pub(super) escalation: Escalation,
    /// Held for a few instructions, and never while anything of the user's runs. Taken with acquire, given back with
    /// release.
    locked: AtomicBool,
}

// SAFETY: the lists are touched under the lock alone.
unsafe impl Send for Unit {}
// SAFETY: as above.
unsafe impl Sync for Unit {}

impl Unit {
    #[inline]
    pub(super) fn new(parent: *const Unit) -> Self {
        Unit {
            parent,
            attached: UnsafeCell::new(ptr::null_mut()),
            escalation: Escalation::new(),
            locked: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> UnitLock<'_> {
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

    /// Ends what is attached on behalf of a frame whose future is gone.
    ///
    /// # Safety
    ///
    /// The caller polls the frame, which is one of this strand.
    #[cold]
    pub(super) unsafe fn detach_all(&self, frame: NonNull<Header>) {
        loop {
            let Some(node) = self.lock().take(frame) else { return };
            // SAFETY: it was in the list, so it is there; and it stays until it has left.
            unsafe {
                let leave = (*node.as_ptr()).leave;
                let resumed = leave(node);
                Header::resume_later(frame, resumed);
            }
        }
    }
}

/// The list of a unit.
pub(super) struct UnitLock<'a>(&'a Unit);

impl Drop for UnitLock<'_> {
    fn drop(&mut self) {
        self.0.locked.store(false, Release);
    }
}

impl UnitLock<'_> {
    /// Takes out one that is attached on behalf of this frame.
    fn take(&self, frame: NonNull<Header>) -> Option<NonNull<Attached>> {
        // SAFETY: we hold the lock, and what is in the list is there.
        unsafe {
            let mut at = *self.0.attached.get();
            while let Some(node) = NonNull::new(at) {
                if node.as_ref().frame.get() == frame.as_ptr() {
                    self.unlink(node);
                    node.as_ref().state.store(LEAVING, Relaxed);
                    return Some(node);
                }
                at = *node.as_ref().next.get();
            }
        }
        None
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

/// Something that began in a frame and must not outlive it: a group, a handler, a scope.
///
/// ```text
/// DETACHED ──attach──▶ ATTACHED ──the frame's future is gone──▶ LEAVING ──left──▶ DETACHED
///                          └──────────────detach───────────────────────────────────▲
/// ```
#[repr(C)]
pub(super) struct Attached {
    /// The links belong to the unit's lock.
    next: UnsafeCell<*mut Attached>,
    previous: UnsafeCell<*mut Attached>,
    /// Written when it is attached, and read by whoever detaches it, who is ordered after that.
    unit: Cell<*const Unit>,
    frame: Cell<*mut Header>,
    /// `ATTACHED` and `LEAVING` are set, and `ATTACHED` is left, under the unit's lock. `LEAVING` is left by the frame, with
    /// release, which touches nothing of this afterwards; whoever waits for it acquires.
    state: AtomicU8,
    /// Called by the frame that this was attached to, once, when its future is gone, and outside of the lock.
    /// It calls [`Attached::left`] when it needs this no more.
    leave: unsafe fn(NonNull<Attached>) -> Transfer,
}

const DETACHED: u8 = 0;
const ATTACHED: u8 = 1;
const LEAVING: u8 = 2;

impl Attached {
    pub(super) fn new(leave: unsafe fn(NonNull<Attached>) -> Transfer) -> Self {
        Attached {
            next: UnsafeCell::new(ptr::null_mut()),
            previous: UnsafeCell::new(ptr::null_mut()),
            unit: Cell::new(ptr::null()),
            frame: Cell::new(ptr::null_mut()),
            state: AtomicU8::new(DETACHED),
            leave,
        }
    }

    /// Attaches it to the frame that this thread polls.
    ///
    /// # Safety
    ///
    /// The caller is what the frame's poll is running. This is pinned, was not attached before, and is
    /// [detached](Attached::detach) before it goes.
    pub(super) unsafe fn attach(this: NonNull<Attached>, frame: NonNull<Header>) {
        // SAFETY: by the caller's promise.
        unsafe {
            let unit = Header::unit(frame);
            let node = this.as_ref();
            node.unit.set(unit.as_ptr());
            node.frame.set(frame.as_ptr());
            node.state.store(ATTACHED, Relaxed);
            Header::set_attached(frame);
            unit.as_ref().lock().link(this);
        }
    }

    /// Takes it out of the list, if it was attached. Where the frame has just come to end it, that is waited for. `true`
    /// where the frame did not.
    pub(super) fn detach(&self) -> bool {
        // Where it is attached, the frame is not done, and so the unit is there.
        let mut rounds = 0;
        loop {
            match self.state.load(Acquire) {
                ATTACHED => {}
                DETACHED => return false,
                _ => {
                    spin(&mut rounds);
                    continue;
                }
            }
            // SAFETY: see above. It may be that the frame has ended it since: but it is not done before this has left.
            let lock = unsafe { &*self.unit.get() }.lock();
            if self.state.load(Relaxed) == ATTACHED {
                // SAFETY: it is in the list.
                unsafe { lock.unlink(NonNull::from(self)) };
                self.state.store(DETACHED, Relaxed);
                return true;
            }
        }
    }

    /// The frame needs this no more.
    pub(super) fn left(&self) {
        self.state.store(DETACHED, Release);
    }
}
