//! A sender, then the operation that it becomes, in one place whose owner does not know their types.
//!
//! This is what type-erased boundaries keep inside: a box, the state that `split` shares, the heap operation of `submit`.
//! [`InPlace`] is the memory, [`Progress`] says what is in it. Connecting, starting and destroying run user code, which
//! may panic at any point; the progress is changed *before* such code runs, so that nothing unwritten is ever dropped,
//! nothing is dropped twice, and a receiver that goes at an unexpected time is told from one that completes.

use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomPinned;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;

use super::dismantle::DropList;
use super::{Completion, Operation, Panic, Sender, Transfer, start};

/// The state of an [`InPlace`].
///
/// | state | the place holds | left by | to |
/// |---|---|---|---|
/// | `Sender` | a sender | `connect` | `Connecting` |
/// | | | `clear` | `Empty` |
/// | `Connecting` | nothing | `connect`, which has an operation | `Connected` |
/// | | | `connect`, which has unwound | `Empty` |
/// | | | `completes`: the receiver was dropped inside `connect` | `Dropped` |
/// | `Dropped` | nothing | `connect`, whatever it has | `Empty` |
/// | `Connected` | an operation that was not started | `start` | `Running` |
/// | | | `clear`, before the operation drops its receiver | `Empty` |
/// | `Running` | a started operation | `completes` | `Completed` |
/// | `Completed` | an operation that touches nothing of itself any more | `clear` | `Empty` |
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

/// What is in a place, and so what may be done with it.
///
/// It needs no atomics. The thread that connects and starts has exclusive access until the operation is started; then its
/// completion has, which happens after the start by the promise of [`Sender`].
#[derive(Debug)]
pub(crate) struct Progress(Cell<State>);

impl Progress {
    /// Notes that the receiver of the operation has gone: by a completion, or dropped without one.
    ///
    /// Returns whether that is the operation's completion. It is not where the receiver went inside `connect`, nor where
    /// an operation is destroyed that was never started: then the owner of the place ignores it.
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

    /// Returns whether the place holds a sender.
    fn is_sender(&self) -> bool {
        self.0.get() == State::Sender
    }
}

/// The part of an [`InPlace`] that does not depend on its types: what its owner needs there, and the progress.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Prefix<H> {
    pub(crate) header: H,
    pub(crate) progress: Progress,
}

/// Memory for a sender `S`, and then for the operation `O` that it becomes. `H` is its owner's.
#[repr(C)]
pub(crate) struct InPlace<S, O, H = ()> {
    /// First, so that its address is the place's.
    pub(crate) prefix: Prefix<H>,
    content: UnsafeCell<Content<S, O>>,
    _pinned: PhantomPinned,
}

union Content<S, O> {
    sender: ManuallyDrop<S>,
    operation: ManuallyDrop<O>,
}

impl<S, O, H> InPlace<S, O, H> {
    pub(crate) const fn new(header: H, sender: S) -> Self {
        InPlace {
            prefix: Prefix {
                header,
                progress: Progress(Cell::new(State::Sender)),
            },
            content: UnsafeCell::new(Content {
                sender: ManuallyDrop::new(sender),
            }),
            _pinned: PhantomPinned,
        }
    }

    /// Connects the sender, in place. A panic of `connect`, or a receiver that it drops, is the completion that is
    /// returned; where the place holds no sender, that is a stop.
    ///
    /// # Safety
    ///
    /// The place is pinned, and the caller has exclusive access to it.
    #[inline]
    pub(crate) unsafe fn connect<T, E>(
        this: NonNull<Self>,
        connect: impl FnOnce(S) -> O,
    ) -> Result<(), Completion<T, E>> {
        // SAFETY: the place is alive, and nothing in the prefix is written but cells.
        let (progress, content) = unsafe { (&this.as_ref().prefix.progress, this.as_ref().content.get()) };
        if progress.0.get() != State::Sender {
            return Err(Completion::Stopped);
        }
        progress.0.set(State::Connecting);
        // SAFETY: the place held a sender, which is moved out: from now on the place counts as empty.
        let sender = unsafe { ManuallyDrop::take(&mut (*content).sender) };
        match Panic::catch(|| connect(sender)) {
            Ok(operation) if progress.0.get() == State::Connecting => {
                // SAFETY: the caller has exclusive access, and the place is empty.
                unsafe { (*content).operation = ManuallyDrop::new(operation) };
                progress.0.set(State::Connected);
                Ok(())
            }
            Ok(operation) => {
                progress.0.set(State::Empty);
                drop(operation);
                Err(Completion::Stopped)
            }
            Err(payload) => {
                progress.0.set(State::Empty);
                Err(Completion::Panicked(payload))
            }
        }
    }

    /// Starts the operation, where the place holds one that was not started.
    ///
    /// # Safety
    ///
    /// The place is pinned, and the caller has exclusive access to it until the operation completes. The place stays
    /// alive until then.
    #[inline]
    pub(crate) unsafe fn start(this: NonNull<Self>) -> Transfer
    where
        O: Operation,
    {
        // SAFETY: the place is alive. The references end here: the operation may complete, and free it, in its start.
        let content = unsafe {
            let this = this.as_ref();
            if this.prefix.progress.0.get() != State::Connected {
                return Transfer::none();
            }
            this.prefix.progress.0.set(State::Running);
            this.content.get()
        };
        // SAFETY: the place holds an operation, by the progress. It is pinned with the place, and started this once. It is
        // neither moved nor dropped before it has completed, also by the progress.
        unsafe { start(Pin::new_unchecked(&mut *(*content).operation)) }
    }

    /// Destroys what the place holds, unless it runs.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to the place, unless an operation runs there.
    #[inline]
    pub(crate) unsafe fn clear(this: NonNull<Self>) {
        // SAFETY: the place is alive.
        let (progress, content) = unsafe { (&this.as_ref().prefix.progress, this.as_ref().content.get()) };
        let state = progress.0.get();
        debug_assert_ne!(state, State::Running, "an operation is destroyed while it runs");
        match state {
            State::Sender => {
                progress.0.set(State::Empty);
                // SAFETY: the place held a sender, by the progress, which now says that it is empty.
                unsafe { ManuallyDrop::drop(&mut (*content).sender) };
            }
            State::Connected | State::Completed => {
                progress.0.set(State::Empty);
                // SAFETY: the place held an operation that does not run, by the progress, which now says that it is empty.
                unsafe { ManuallyDrop::drop(&mut (*content).operation) };
            }
            State::Connecting | State::Dropped | State::Running | State::Empty => {}
        }
    }

    /// Moves the boxes that the sender owns to `list`, where the place holds a sender.
    pub(crate) fn dismantle(&mut self, list: &mut DropList<'_>)
    where
        S: Sender,
    {
        if self.prefix.progress.is_sender() {
            // SAFETY: the place holds a sender, by the progress.
            let sender = unsafe { &mut *self.content.get_mut().sender };
            list.collect(sender);
        }
    }
}

impl<S, O, H> Drop for InPlace<S, O, H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a value that is dropped is not shared. Where an operation runs, it is left alone.
        unsafe { InPlace::clear(NonNull::from(self)) };
    }
}
