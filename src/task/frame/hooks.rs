//! Functions around each poll of a frame, for an instrument. Only with the feature `inspect`.

use core::ptr::NonNull;
use std::sync::OnceLock;

use super::Tracker;

/// The functions that are called for the strand of a frame, which does not end before they return. They do not unwind.
pub(in crate::task) struct PollHooks {
    /// A poll begins on this thread.
    pub(in crate::task) polled: unsafe fn(NonNull<Tracker>),
    /// That poll has returned.
    pub(in crate::task) suspended: unsafe fn(NonNull<Tracker>),
    /// The frame is about to be queued.
    pub(in crate::task) resumed: unsafe fn(NonNull<Tracker>),
}

static HOOKS: OnceLock<PollHooks> = OnceLock::new();

impl PollHooks {
    /// Sets the functions, once.
    pub(in crate::task) fn set(self) {
        _ = HOOKS.set(self);
    }

    #[inline]
    pub(super) fn get() -> Option<&'static PollHooks> {
        HOOKS.get()
    }
}
