//! Who was first among several children: the state of `when_any`.

use core::cell::UnsafeCell;
use core::fmt;

use super::verdict::Verdict;
use crate::Completion;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Takes in the completions of several children, on any threads, and keeps the first value; where there is none, the
/// first error or panic, else a stop.
pub(crate) struct Race<T, E> {
    /// Set by the first value, which then owns `winner`. It is read after the countdown of the children, which orders
    /// everything, so relaxed accesses do.
    won: AtomicBool,
    winner: UnsafeCell<Option<T>>,
    losers: Verdict<E>,
}

impl<T, E> Race<T, E> {
    pub(crate) fn new() -> Self {
        Race {
            won: AtomicBool::new(false),
            winner: UnsafeCell::new(None),
            losers: Verdict::new(),
        }
    }

    /// Takes a completion in. `true` when the others are to stop: there is a winner, or a panic.
    pub(crate) fn child_completed(&self, completion: Completion<T, E>) -> bool {
        match completion {
            Completion::Value(value) => {
                if !self.won.swap(true, Relaxed) {
                    // SAFETY: whoever sets the flag owns the cell, and it is read only after every child has completed.
                    unsafe { *self.winner.get() = Some(value) };
                }
                true
            }
            Completion::Error(error) => {
                self.losers.error(error);
                false
            }
            Completion::Stopped => {
                self.losers.stopped();
                false
            }
            Completion::Panicked(payload) => {
                self.losers.panicked(payload);
                true
            }
        }
    }

    /// What is reported, once every child has completed. A panic is never lost to a winner.
    pub(crate) fn take(&mut self) -> Completion<T, E> {
        match (self.winner.get_mut().take(), self.losers.take()) {
            (_, Some(Completion::Panicked(payload))) => Completion::Panicked(payload),
            (Some(value), _) => Completion::Value(value),
            (None, Some(failure)) => failure,
            (None, None) => Completion::Stopped,
        }
    }
}

impl<T, E> fmt::Debug for Race<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").field("won", &self.won).finish_non_exhaustive()
    }
}
