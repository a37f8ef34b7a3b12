//! The part of a context that frames use.

use core::ptr::NonNull;

use super::{ContextScope, Header, Home};
use crate::Priority;

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
