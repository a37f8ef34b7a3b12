//! The failure of several children, decided by the first that failed.

use core::cell::UnsafeCell;
use core::fmt;

use crate::sync::atomic::{AtomicU8, Ordering::Relaxed};
use crate::{Completion, Panic};

/// The failures of several children, taken on any thread: the first panic, or else the first error, or else a stop.
pub(crate) struct Verdict<E> {
    /// `PANICKED` is set by the first panic, whose thread then writes `panic`. `FAILED` is set by the first error,
    /// whose thread then writes `error`. `STOPPED` is set by any stop. Relaxed: all is read after the countdown of the
    /// children, whose release and acquire order the accesses.
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

    /// Takes an error, and keeps the first.
    pub(crate) fn error(&self, error: E) {
        if self.flags.fetch_or(FAILED, Relaxed) & FAILED == 0 {
            // SAFETY: the one thread that sets the flag writes the cell, and it is read only after every child has
            // completed.
            unsafe { *self.error.get() = Some(error) };
        }
    }

    /// Takes a panic, and keeps the first.
    pub(crate) fn panicked(&self, payload: Panic) {
        if self.flags.fetch_or(PANICKED, Relaxed) & PANICKED == 0 {
            // SAFETY: the one thread that sets the flag writes the cell, and it is read only after every child has
            // completed.
            unsafe { *self.panic.get() = Some(payload) };
        }
    }

    /// A stop.
    pub(crate) fn stopped(&self) {
        self.flags.fetch_or(STOPPED, Relaxed);
    }

    /// Returns the failure, once every child has completed; `None` where no child failed.
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
