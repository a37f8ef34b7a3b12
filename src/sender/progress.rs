//! The state of a type-erased operation.
//!
//! The owner of a place for a sender and its operation does not know their types. Connecting, starting and destroying
//! run user code, which may panic at any point. The progress is changed *before* such code runs. So nothing unwritten
//! is dropped, nothing is dropped twice, and a receiver that is dropped at another time is told from one that
//! completes.
//!
//! Boxes, the state that `split` shares and the heap operation of `submit` have one in an
//! [`InPlace`](super::in_place::InPlace). So do the operations of an erased scheduler.

use core::cell::Cell;

/// The state of a place.
///
/// | state | the place holds | left by | to |
/// |---|---|---|---|
/// | `Sender` | a sender | `connect` | `Connecting` |
/// | | | `clear` | `Empty` |
/// | `Connecting` | nothing | `connect`, which has an operation | `Connected` |
/// | | | `connect`, which has unwound | `Empty` |
/// | | | `completes`: the receiver was dropped inside `connect` | `Dropped` |
/// | `Dropped` | nothing | `connect`, with or without an operation | `Empty` |
/// | `Connected` | an operation that was not started | `start` | `Running` |
/// | | | `clear`, before the operation drops its receiver | `Empty` |
/// | `Running` | a started operation | `completes` | `Completed` |
/// | `Completed` | an operation that accesses nothing of itself any more | `clear` | `Empty` |
/// | `Empty` | nothing | | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sender,
    Connecting,
    Dropped,
    Connected,
    Running,
    Completed,
    Empty,
}

/// The content of a place, and so the permitted operations.
///
/// It needs no atomics. The thread that connects and starts has exclusive access until the operation is started. Then
/// its completion has, which happens after the start, by the contract of [`Sender`].
#[derive(Debug)]
pub(crate) struct Progress(Cell<State>);

/// The content that is destroyed when a place is cleared.
pub(crate) enum Holds {
    Sender,
    Operation,
    Nothing,
}

impl Progress {
    /// Makes the progress of a place that holds a sender.
    pub(crate) const fn new() -> Self {
        Progress(Cell::new(State::Sender))
    }

    /// Begins to connect, if the place holds a sender, which the caller takes out.
    #[inline]
    pub(crate) fn begins_to_connect(&self) -> bool {
        let holds = self.0.get() == State::Sender;
        if holds {
            self.0.set(State::Connecting);
        }
        holds
    }

    /// Notes that `connect` has returned an operation. Returns whether it is put in the place. It is not where its
    /// receiver was dropped: the caller then destroys it.
    #[inline]
    pub(crate) fn has_connected(&self) -> bool {
        let usable = self.0.get() == State::Connecting;
        self.0.set(if usable { State::Connected } else { State::Empty });
        usable
    }

    /// Notes that `connect` has unwound.
    #[cold]
    pub(crate) fn has_unwound(&self) {
        self.0.set(State::Empty);
    }

    /// Returns whether the place holds an operation that the caller now starts.
    #[inline]
    pub(crate) fn starts(&self) -> bool {
        let starts = self.0.get() == State::Connected;
        if starts {
            self.0.set(State::Running);
        }
        starts
    }

    /// Notes that the receiver of the operation was completed or dropped.
    ///
    /// Returns whether that is the operation's completion. It is not inside `connect`, nor where an unstarted operation
    /// is destroyed: the owner of the place then ignores it.
    #[inline]
    pub(crate) fn completes(&self) -> bool {
        match self.0.get() {
            State::Running => {
                self.0.set(State::Completed);
                true
            }
            State::Connecting => {
                self.0.set(State::Dropped);
                false
            }
            _ => false,
        }
    }

    /// Returns the content that the caller destroys now, and marks the place as empty. A running operation is left
    /// alone.
    #[inline]
    pub(crate) fn clears(&self) -> Holds {
        debug_assert_ne!(self.0.get(), State::Running, "an operation is destroyed while it runs");
        let content = match self.0.get() {
            State::Sender => Holds::Sender,
            State::Connected | State::Completed => Holds::Operation,
            State::Connecting | State::Dropped | State::Running | State::Empty => return Holds::Nothing,
        };
        self.0.set(State::Empty);
        content
    }

    /// Returns whether the place holds a sender.
    #[cfg(feature = "alloc")]
    pub(super) fn is_sender(&self) -> bool {
        self.0.get() == State::Sender
    }
}
