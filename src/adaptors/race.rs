//! The first of several children: the state of `when_any`.

use core::cell::UnsafeCell;
use core::fmt;

use super::verdict::Verdict;
use crate::Completion;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The completions of several children, taken on any thread: the first value, or else the first error or panic, or else
/// a stop.
pub(crate) struct Race<T, E> {
    /// Set by the first value, whose thread then writes `winner`. Relaxed: `winner` is read after the countdown of the
    /// children, whose release and acquire order the accesses.
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

    /// Takes a completion. Returns `true` when the others are to stop: after a value or a panic.
    pub(crate) fn child_completed(&self, completion: Completion<T, E>) -> bool {
        match completion {
            Completion::Value(value) => {
                if !self.won.swap(true, Relaxed) {
                    // SAFETY: the one thread that sets the flag writes the cell, and it is read only after every child
                    // has completed.
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

    /// Returns the completion, once every child has completed. A panic precedes a value.
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
