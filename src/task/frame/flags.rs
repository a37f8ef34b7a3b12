//! The flags of a frame that only its polling thread accesses.

use core::cell::Cell;

/// A set of [`Flag`]s.
pub(super) struct Flags(Cell<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Flag {
    /// The frame was polled inside its parent, and waits for a child that it set aside. Its next turn does not poll it.
    Polled = 1,
    /// The future was dropped, and everything that it left in flight was asked to stop.
    Ending = 2,
    /// The frame is queued again after the poll: see [`Polling::requeue`](super::Polling::requeue).
    Requeued = 4,
    /// The frame has a result, and its parent is held: see [`Header::end_held`](super::Header::end_held).
    Ended = 16,
    /// The successor is an operation. Written before the frame is shared.
    Operation = 8,
    /// An await of this crate was polled since the flag was cleared, and waits: see [`Polling::waits`](super::Polling::waits).
    Waits = 32,
    /// A stop of the task wakes the frame, because it has waited for futures of other crates alone.
    Listens = 64,
    /// The polled code is inside of a cancellation handler's operation, with no scope between: see
    /// [`Polling::set_handled`](super::Polling::set_handled). A frame that is awaited there has it from its begin.
    Handled = 128,
}

impl Flags {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Flags(Cell::new(0))
    }

    #[inline]
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.0.get() & flag as u8 != 0
    }

    /// Sets or clears a flag. Returns whether it was set.
    #[inline]
    pub(super) fn replace(&self, flag: Flag, is_set: bool) -> bool {
        let before = self.0.get();
        let others = before & !(flag as u8);
        self.0.set(if is_set { others | flag as u8 } else { others });
        before & flag as u8 != 0
    }

    #[inline]
    pub(super) fn set(&self, flag: Flag, is_set: bool) {
        self.replace(flag, is_set);
    }
}
