//! Scopes: parts of a frame that see another context, and the count of their users.

use core::cell::Cell;
use core::ptr::NonNull;

use super::Header;
use crate::stop::ErasedStopToken;
use crate::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};

/// How a stop outside of a scope reaches what is inside.
#[derive(Clone, Copy)]
pub(in crate::task) enum Stops {
    /// The token is the same.
    Same,
    /// The scope has a source of its own, which passes on the stop of this token.
    PassedOn(ErasedStopToken),
    /// Not at all.
    Never,
}

/// A part of a task that sees another context: a shield, a deadline, or a task-local value. It lives in the memory of its frame,
/// beside the context, for as long as anything uses that.
pub(in crate::task) struct ContextScope {
    /// One for the future that is polled in here, and one for each frame, await, group and scope that began in here and is not
    /// over. Added with relaxed ordering by a user; subtracted with release, and the last acquires, and ends the scope.
    users: AtomicUsize,
    /// The frame that this is in.
    frame: NonNull<Header>,
    /// The scope around it, of which this is a user. It may be that of another frame: then this has a reference of that frame,
    /// which may be done before a future that was sent away leaves this scope.
    outer: Option<NonNull<ContextScope>>,
    /// Something that was awaited inside has stopped. Belongs to the thread that polls the frame.
    stopped: Cell<bool>,
    /// How a stop outside reaches the inside. Written before the scope has other users.
    stops: Cell<Stops>,
    /// Destroys what is beside it, and frees the memory. Returns the scope around it, whose use the caller ends. None where there
    /// is none, and where something is in flight that does all of that when it is over.
    end: unsafe fn(NonNull<ContextScope>) -> Option<NonNull<ContextScope>>,
}

impl ContextScope {
    /// # Safety
    ///
    /// It stays where it is until `end` is called with its address. It is a user of the scope around it, which the caller enters.
    pub(in crate::task) unsafe fn new(
        frame: NonNull<Header>,
        outer: Option<NonNull<ContextScope>>,
        end: unsafe fn(NonNull<ContextScope>) -> Option<NonNull<ContextScope>>,
    ) -> Self {
        ContextScope {
            users: AtomicUsize::new(1),
            frame,
            outer,
            stopped: Cell::new(false),
            stops: Cell::new(Stops::Same),
            end,
        }
    }

    /// Says that the token inside is another than that outside. The caller makes the scope.
    pub(in crate::task) fn set_stops(&self, stops: Stops) {
        self.stops.set(stops);
    }

    pub(in crate::task) fn stops(&self) -> Stops {
        self.stops.get()
    }

    pub(in crate::task) fn stop(&self) {
        self.stopped.set(true);
    }

    pub(in crate::task) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// The scope around this one, if it is one inside of this frame.
    pub(in crate::task) fn outer_in(&self, frame: NonNull<Header>) -> Option<&ContextScope> {
        // SAFETY: this one is a user of it.
        self.outer
            .map(|outer| unsafe { outer.as_ref() })
            .filter(|outer| outer.frame == frame)
    }

    /// The frame that the scope is in.
    pub(in crate::task) fn frame(&self) -> NonNull<Header> {
        self.frame
    }

    /// Adds a user. The caller is one, or is polled in here.
    pub(in crate::task) fn enter(&self) {
        self.users.fetch_add(1, Relaxed);
    }

    /// Adds a user, unless the scope has none any more. Its memory is alive.
    pub(in crate::task) fn try_enter(&self) -> bool {
        self.users
            .fetch_update(Relaxed, Relaxed, |users| (users != 0).then_some(users + 1))
            .is_ok()
    }

    /// Enters the scope around it, once, for as long as this one has users.
    pub(in crate::task) fn enter_outer(&self) {
        if let Some(outer) = self.outer {
            // SAFETY: the caller polls the frame in the scope around it, whose frame waits for the one that this is in.
            unsafe {
                outer.as_ref().enter();
                if outer.as_ref().frame != self.frame {
                    Header::count(outer.as_ref().frame);
                }
            }
        }
    }

    /// The scope around it.
    pub(in crate::task) fn outer(&self) -> Option<NonNull<ContextScope>> {
        self.outer
    }

    /// Ends a use. The scope may be gone when this returns, and those around it.
    pub(in crate::task) fn exit(&self) {
        // SAFETY: the caller was a user, so this is alive.
        unsafe { ContextScope::exit_from(self.frame, Some(NonNull::from(self))) };
    }

    /// Ends the use of a scope by what was in this frame. Where that is another frame than the scope's, gives up the reference
    /// that the user had.
    ///
    /// # Safety
    ///
    /// There is such a use, and such a reference.
    pub(in crate::task) unsafe fn exit_from(mut inner: NonNull<Header>, mut at: Option<NonNull<ContextScope>>) {
        while let Some(scope) = at {
            // SAFETY: the use keeps it alive, and the reference its frame. Each is a user of the one around it.
            unsafe {
                let frame = scope.as_ref().frame;
                at = match scope.as_ref().users.fetch_sub(1, AcqRel) {
                    1 => (scope.as_ref().end)(scope),
                    _ => None,
                };
                if frame != inner {
                    Header::unhold(frame);
                }
                inner = frame;
            }
        }
    }
}
