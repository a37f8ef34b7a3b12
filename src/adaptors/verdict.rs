//! What went wrong among several children, decided by the first that failed.

use core::cell::UnsafeCell;
use core::fmt;

use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crate::{Completion, Panic};

/// Takes in the errors, stops and panics of several children, on any threads, and keeps the one that is reported: the
/// first panic, else the first error, else a stop.
pub(crate) struct Verdict<E> {
    /// `PANICKED` is set by the first panic, which then owns `panic`; `FAILED` by the first error, which then owns
    /// `error`; `STOPPED` by any stop. All is read after the countdown of the children, which orders everything, so
    /// relaxed accesses do.
    flags: AtomicU8,
    panic: UnsafeCell<Option<Panic>>,
    error: UnsafeCell<Option<E>>,
}

const PANICKED: u8 = 0b001;
const FAILED: u8 = 0b010;
const STOPPED: u8 = 0b100;

impl<E> Verdict<E> {
    pub(crate) fn new() -> Self {
        Verdict {
            flags: AtomicU8::new(0),
            panic: UnsafeCell::new(None),
            error: UnsafeCell::new(None),
        }
    }

    /// An error. The first is kept.
    pub(crate) fn error(&self, error: E) {
        if self.flags.fetch_or(FAILED, Relaxed) & FAILED == 0 {
            // SAFETY: whoever sets the flag owns the cell, and it is read only after every child has completed.
            unsafe { *self.error.get() = Some(error) };
        }
    }

    /// A panic. The first is kept.
    pub(crate) fn panicked(&self, payload: Panic) {
        if self.flags.fetch_or(PANICKED, Relaxed) & PANICKED == 0 {
            // SAFETY: as for an error.
            unsafe { *self.panic.get() = Some(payload) };
        }
    }

    /// A stop.
    pub(crate) fn stopped(&self) {
        self.flags.fetch_or(STOPPED, Relaxed);
    }

    /// What is reported, once every child has completed; `None` when nothing went wrong.
    pub(crate) fn take<T>(&mut self) -> Option<Completion<T, E>> {
        if let Some(payload) = self.panic.get_mut().take() {
            return Some(Completion::Panicked(payload));
        }
        if let Some(error) = self.error.get_mut().take() {
            return Some(Completion::Error(error));
        }
        (self.flags.load(Relaxed) & STOPPED != 0).then_some(Completion::Stopped)
    }
}

impl<E> fmt::Debug for Verdict<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}
