//! One piece of storage for a sender, its operation, and its result, in turn.

use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::child::{ChildReceiver, Parent};
use super::{Operation, Sender, Transfer};

/// A sender, then its operation, then perhaps a successor: never two at once, in the storage of the largest.
///
/// A stage lives inside a pinned operation. Its functions move nothing in it once that operation was started: replacing
/// the content drops it in place.
///
/// An exclusive reference to a stage exists only while its operation does not run: before the start, and from the
/// completion on. A running operation uses the memory meanwhile. So the memory is a cell, beside which the other fields
/// of the parent may be borrowed.
pub(crate) struct Stage<S, O, N = Infallible>(UnsafeCell<Held<S, O, N>>);

enum Held<S, O, N> {
    /// Not started: dropping it runs nothing.
    Sender(S),
    /// Started.
    Running(O),
    /// The successor: a second operation, or a result.
    Next(N),
    /// Nothing, between two of the others or at the end.
    Empty,
}

impl<S, O, N> Held<S, O, N> {
    /// Drops the content in place, and stores another. Mostly there is none to drop, which is not left to a call.
    #[inline]
    fn replace(&mut self, next: Self) {
        match self {
            // SAFETY: the overwritten value needs no drop.
            Held::Empty => unsafe { ptr::write(self, next) },
            _ => *self = next,
        }
    }
}

impl<S, O, N> Stage<S, O, N> {
    #[inline]
    pub(crate) const fn new(sender: S) -> Self {
        Stage(UnsafeCell::new(Held::Sender(sender)))
    }

    /// Makes a stage that holds nothing.
    #[inline]
    pub(crate) const fn empty() -> Self {
        Stage(UnsafeCell::new(Held::Empty))
    }

    /// Takes the sender out, if the stage holds one.
    #[inline]
    pub(crate) fn take_sender(&mut self) -> Option<S> {
        let held = self.0.get_mut();
        let Held::Sender(sender) = held else { return None };
        // SAFETY: the sender is moved out of a content that is overwritten next, and not dropped. Only the sender is
        // moved, not the whole storage.
        unsafe {
            let sender = ptr::read(sender);
            ptr::write(held, Held::Empty);
            Some(sender)
        }
    }

    /// Takes the result out. Only for a successor that is not pinned.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<N> {
        let held = self.0.get_mut();
        let Held::Next(next) = held else { return None };
        // SAFETY: the result is moved out of a content that is overwritten next, and not dropped.
        unsafe {
            let next = ptr::read(next);
            ptr::write(held, Held::Empty);
            Some(next)
        }
    }

    /// Drops the content in place, and stores a running operation.
    #[inline]
    pub(crate) fn set_running(&mut self, running: O) {
        self.0.get_mut().replace(Held::Running(running));
    }

    /// Returns the operation of [`set_running`](Stage::set_running), in place.
    #[inline]
    pub(crate) fn running(&mut self) -> Option<&mut O> {
        match self.0.get_mut() {
            Held::Running(running) => Some(running),
            _ => None,
        }
    }

    /// Drops the content in place, and stores a result, if there is one.
    #[inline]
    pub(crate) fn set_kept(&mut self, kept: Option<N>) {
        // No `map_or`, whose default value would be dropped.
        self.0.get_mut().replace(match kept {
            Some(kept) => Held::Next(kept),
            None => Held::Empty,
        });
    }

    /// Returns the result.
    ///
    /// # Safety
    ///
    /// The stage does not change while the result is used.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) unsafe fn next(&self) -> Option<&N> {
        // SAFETY: the stage does not change, by the contract.
        match unsafe { &*self.0.get() } {
            Held::Next(next) => Some(next),
            _ => None,
        }
    }

    /// Drops the content in place.
    #[inline]
    pub(crate) fn clear(&mut self) {
        *self.0.get_mut() = Held::Empty;
    }

    /// Replaces the content with a connected operation, and starts it.
    ///
    /// # Safety
    ///
    /// The stage is pinned. It is neither changed nor dropped until the operation has completed.
    #[inline]
    pub(crate) unsafe fn start(this: NonNull<Self>, operation: O) -> Transfer
    where
        O: Operation,
    {
        // SAFETY: no operation runs there, so this thread has exclusive access until the start. The operation is pinned
        // with the stage, and started once.
        unsafe {
            (*this.as_ptr()).set_running(operation);
            match (*this.as_ptr()).running() {
                Some(operation) => Pin::new_unchecked(operation).start(),
                None => Transfer::none(),
            }
        }
    }

    /// Replaces the content with the successor, and starts it.
    ///
    /// # Safety
    ///
    /// The contract of [`start`](Stage::start).
    #[inline]
    pub(crate) unsafe fn start_next(this: NonNull<Self>, next: N) -> Transfer
    where
        N: Operation,
    {
        // SAFETY: see `start`.
        unsafe {
            let held = (*this.as_ptr()).0.get_mut();
            held.replace(Held::Next(next));
            match held {
                Held::Next(next) => Pin::new_unchecked(next).start(),
                _ => Transfer::none(),
            }
        }
    }

    /// Connects the sender to a receiver that points back at `parent`, and starts it, if the stage still holds it.
    ///
    /// # Safety
    ///
    /// The stage is pinned in the parent, which is alive until it completes, and expects one completion of this child.
    #[inline]
    pub(crate) unsafe fn start_child<P, const INDEX: usize>(this: NonNull<Self>, parent: NonNull<P>) -> Transfer
    where
        S: Sender<Operation<ChildReceiver<P, INDEX>> = O>,
        P: Parent<INDEX, Value = S::Value, Error = S::Error>,
        O: Operation,
    {
        // SAFETY: nothing runs in the stage yet. From the start on it is changed by the completion of its operation
        // alone.
        unsafe {
            match (*this.as_ptr()).take_sender() {
                Some(sender) => Stage::start(this, sender.connect(ChildReceiver::new(parent))),
                None => Transfer::none(),
            }
        }
    }
}

/// Computes the address of the struct that has a field at this address.
macro_rules! container_of {
    ($pointer:expr, $container:ty, $field:ident) => {
        $pointer
            .byte_sub(core::mem::offset_of!($container, $field))
            .cast::<$container>()
    };
}
pub(crate) use container_of;
