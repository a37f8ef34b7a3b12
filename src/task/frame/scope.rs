//! The placement of a frame, and scopes: parts of a frame that see another context, with the count of their users.

use core::cell::Cell;
use core::ptr::NonNull;

use super::{Header, Home, NotedDeadline};
use crate::Priority;
use crate::stop::ErasedStopToken;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Where frames are queued, how urgent they are, and the scope that they are in.
///
/// The first field of a context, so a pointer to it is a pointer to the context. The frame layer reads nothing else of
/// that.
#[derive(Clone, Copy)]
pub(in crate::task) struct Placement {
    pub(in crate::task) home: Home,
    /// The priority that the environment asks for, if any.
    pub(in crate::task) priority: Option<Priority>,
    /// The innermost scope of the frame. Valid as long as the context is.
    pub(in crate::task) scope: Option<NonNull<ContextScope>>,
    /// The earliest deadline of the scopes of the strand, shields or not.
    pub(in crate::task) deadline_around: NotedDeadline,
}

impl Placement {
    /// Returns whether the calling thread runs the work of the scheduler.
    #[inline]
    pub(in crate::task) fn is_here(&self) -> bool {
        self.home.is_here()
    }

    /// Adds a user of the context, which calls [`exit`](Placement::exit) when it ends.
    #[inline]
    pub(in crate::task) fn enter(&self) {
        if let Some(scope) = self.scope {
            // SAFETY: the scope is valid as long as the context.
            unsafe { scope.as_ref() }.enter();
        }
    }

    /// Removes a user. The context may be freed when this returns.
    #[inline]
    pub(in crate::task) fn exit(&self) {
        if let Some(scope) = self.scope {
            // SAFETY: the caller is a user, so the scope is valid.
            unsafe { scope.as_ref() }.exit();
        }
    }

    /// Returns the innermost scope, if it belongs to this frame.
    pub(super) fn scope_in(&self, frame: NonNull<Header>) -> Option<&ContextScope> {
        // SAFETY: the scope is valid as long as the context.
        self.scope
            .map(|scope| unsafe { scope.as_ref() })
            .filter(|scope| scope.frame == frame)
    }
}

/// How a stop outside of a scope reaches the inside.
#[derive(Clone, Copy)]
pub(in crate::task) enum Stops {
    /// The inside sees the same token.
    Same,
    /// The scope has a source of its own, to which the stop of this token is passed on.
    PassedOn(ErasedStopToken),
    /// It does not.
    Never,
}

/// A part of a task with another context: a shield, a deadline, or a task-local value. It lives in a block of its frame,
/// beside the context, until the last user leaves.
pub(in crate::task) struct ContextScope {
    /// One for the future inside, and one for each frame, await, group and scope that began inside and has not ended. Users
    /// add with relaxed ordering, and subtract with acquire-release. The subtraction to zero pairs with all others, and
    /// ends the scope. The load in [`waits_elsewhere`](ContextScope::waits_elsewhere) acquires.
    users: AtomicUsize,
    /// The users for which the future inside does not wait: groups and single children. Added before, and subtracted before, the
    /// same in `users`, with relaxed ordering. So on the polling thread the difference is never too small: see
    /// [`waits_elsewhere`](ContextScope::waits_elsewhere).
    passive: AtomicUsize,
    /// The frame whose memory this is in.
    pub(in crate::task) frame: NonNull<Header>,
    /// The scope around this one, which is a user of it. If that is a scope of another frame, this scope holds a reference
    /// to that frame. The frame may be done before a future that was sent away leaves this scope.
    pub(in crate::task) outer: Option<NonNull<ContextScope>>,
    /// Whether something awaited inside has stopped. Accessed by the thread that polls the frame.
    pub(in crate::task) stopped: Cell<bool>,
    /// Whether the last poll has found an await waiting that began outside: it hears no stop of this scope. Accessed like `stopped`.
    pub(in crate::task) waits_outside: Cell<bool>,
    /// Written before the scope has other users.
    pub(in crate::task) stops: Cell<Stops>,
    /// The token whose stop a handler around the scope answers, if any. Written before the scope has other users.
    pub(in crate::task) handled: Cell<Option<ErasedStopToken>>,
    /// Destroys the contents of the block, and frees it. Returns the scope around this one, which the caller leaves.
    /// Returns `None` if there is none, or if something in flight does all of this later.
    end: unsafe fn(NonNull<ContextScope>) -> Option<NonNull<ContextScope>>,
}

/// The address of a scope, or of none, in the space beside the tag of an enum. Nothing but its address is asked, so the scope may have
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) struct ScopeMark([u8; ScopeMark::SIZE]);

impl ScopeMark {
    const SIZE: usize = if size_of::<usize>() < 8 { size_of::<usize>() } else { 7 };

    #[inline]
    pub(in crate::task) fn new(scope: Option<NonNull<ContextScope>>) -> Self {
        let address = scope.map_or(0, |scope| scope.addr().get());
        // The lowest bits are zero, so the highest byte is as well.
        let bytes = (address / align_of::<ContextScope>()).to_le_bytes();
        ScopeMark(*bytes.first_chunk().unwrap_or(&[0; ScopeMark::SIZE]))
    }
}

impl ContextScope {
    /// Creates a scope with one user: its future.
    ///
    /// # Safety
    ///
    /// The scope does not move until `end` is called with its address. The caller enters the scope around it.
    pub(in crate::task) unsafe fn new(
        frame: NonNull<Header>,
        outer: Option<NonNull<ContextScope>>,
        end: unsafe fn(NonNull<ContextScope>) -> Option<NonNull<ContextScope>>,
    ) -> Self {
        ContextScope {
            users: AtomicUsize::new(1),
            passive: AtomicUsize::new(0),
            frame,
            outer,
            stopped: Cell::new(false),
            waits_outside: Cell::new(false),
            stops: Cell::new(Stops::Same),
            handled: Cell::new(None),
            end,
        }
    }

    /// Returns the scope around this one, if it belongs to this frame.
    pub(in crate::task) fn outer_in(&self, frame: NonNull<Header>) -> Option<&ContextScope> {
        // SAFETY: this scope is a user of the outer one, and so keeps it alive.
        self.outer
            .map(|outer| unsafe { outer.as_ref() })
            .filter(|outer| outer.frame == frame)
    }

    /// Adds a user. The caller is a user, or polled inside.
    pub(in crate::task) fn enter(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Adds a user for which the future inside does not wait.
    pub(in crate::task) fn enter_passively(&self) {
        self.passive.fetch_add(1, Relaxed);
        self.enter();
    }

    /// Removes a user that [entered passively](ContextScope::enter_passively).
    pub(in crate::task) fn exit_passively(&self) {
        self.passive.fetch_sub(1, Relaxed);
        self.exit();
    }

    /// Returns whether nothing that began inside is awaited, so that a pending future waits for something of another crate.
    ///
    /// Called by the polling thread, after a poll. A user that leaves later wakes the frame. One that has left before has
    /// [announced](Header::announce) the end of its await, if that was polled by another executor.
    pub(in crate::task) fn waits_elsewhere(&self) -> bool {
        let passive = self.passive.load(Relaxed);
        self.users.load(Acquire) <= passive + 1
    }

    /// Adds a user, unless the last one has left. The caller keeps the memory alive.
    pub(in crate::task) fn try_enter(&self) -> bool {
        self.users
            .fetch_update(Relaxed, Relaxed, |users| (users != 0).then_some(users + 1))
            .is_ok()
    }

    /// Enters the scope around this one, once, until this one ends.
    pub(in crate::task) fn enter_outer(&self) {
        if let Some(outer) = self.outer {
            // SAFETY: the caller polls its frame in the outer scope, whose frame waits for this one.
            unsafe {
                outer.as_ref().enter();
                if outer.as_ref().frame != self.frame {
                    Header::count(outer.as_ref().frame);
                }
            }
        }
    }

    /// Removes a user. This scope, and those around it, may be freed when this returns.
    pub(in crate::task) fn exit(&self) {
        // SAFETY: the caller was a user, so the scope is alive. No reference is due, since the frame is its own.
        unsafe { ContextScope::exit_from(self.frame, Some(NonNull::from(self))) };
    }

    /// Removes a user that was in the frame `inner`. Releases its reference to the scope's frame, if that is another one.
    ///
    /// # Safety
    ///
    /// The caller is that user, and holds that reference.
    pub(in crate::task) unsafe fn exit_from(mut inner: NonNull<Header>, mut at: Option<NonNull<ContextScope>>) {
        // The reference to an outer frame, released after the last of its scopes that end here.
        let mut held = None;
        while let Some(scope) = at {
            // SAFETY: the user keeps the scope alive, and its reference the frame. Each scope is a user of the next.
            unsafe {
                let frame = scope.as_ref().frame;
                if frame != inner {
                    if let Some(left) = held.replace(frame) {
                        Header::unhold(left);
                    }
                    inner = frame;
                }
                at = match scope.as_ref().users.fetch_sub(1, AcqRel) {
                    1 => (scope.as_ref().end)(scope),
                    _ => None,
                };
            }
        }
        if let Some(frame) = held {
            // SAFETY: the reference of the user in the frame inside; no scope of this frame is used any more.
            unsafe { Header::unhold(frame) };
        }
    }
}
