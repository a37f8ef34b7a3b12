//! One piece of memory for what an operation holds in turn.

use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::pin::Pin;
use core::ptr::{self, NonNull};

use super::child::{ChildReceiver, Parent};
use super::{Operation, Sender, Transfer};

/// A sender, then the operation it is connected to, then perhaps what follows it: never two at once, in the storage of
/// the largest.
///
/// It always lives inside a pinned operation. Its functions move nothing in it once that was started: replacing what it
/// holds drops that in place.
///
/// An exclusive reference to a stage exists only while its operation does not run: before the start, and from the
/// completion on. A running operation uses the memory meanwhile. So that is a cell, beside which the rest of the parent
/// may be borrowed.
pub(crate) struct Stage<S, O, N = Infallible>(UnsafeCell<Held<S, O, N>>);

enum Held<S, O, N> {
    /// Not started: dropping it runs nothing.
    Sender(S),
    /// Started.
    Running(O),
    /// What came of it: a second operation, or a result.
    Next(N),
    /// Between two of the others, or over.
    Empty,
}

impl<S, O, N> Stage<S, O, N> {
    #[inline]
    pub(crate) const fn new(sender: S) -> Self {
        Stage(UnsafeCell::new(Held::Sender(sender)))
    }

    /// A stage that holds nothing.
    #[inline]
    pub(crate) const fn empty() -> Self {
        Stage(UnsafeCell::new(Held::Empty))
    }

    /// A stage that has come to its end before it began.
    #[inline]
    pub(crate) const fn ended(next: N) -> Self {
        Stage(UnsafeCell::new(Held::Next(next)))
    }

    /// Takes the sender out, where the stage holds one.
    #[inline]
    pub(crate) fn take_sender(&mut self) -> Option<S> {
        let held = self.0.get_mut();
        let Held::Sender(sender) = held else { return None };
        // SAFETY: it is moved out of what is overwritten, and not dropped, next. Only this much is moved: the stage has room
        // for an operation too.
        unsafe {
            let sender = ptr::read(sender);
            ptr::write(held, Held::Empty);
            Some(sender)
        }
    }

    /// Takes what came of it out. Only for a result, which is not pinned.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<N> {
        let held = self.0.get_mut();
        let Held::Next(next) = held else { return None };
        // SAFETY: as for the sender.
        unsafe {
            let next = ptr::read(next);
            ptr::write(held, Held::Empty);
            Some(next)
        }
    }

    /// Drops what the stage holds, in place, and holds `running` from here on.
    #[inline]
    pub(crate) fn set_running(&mut self, running: O) {
        *self.0.get_mut() = Held::Running(running);
    }

    /// What was put there by [`set_running`](Stage::set_running), without moving it.
    #[inline]
    pub(crate) fn running(&mut self) -> Option<&mut O> {
        match self.0.get_mut() {
            Held::Running(running) => Some(running),
            _ => None,
        }
    }

    /// Drops what the stage holds, in place, and leaves what comes of it, if anything does.
    #[inline]
    pub(crate) fn set_kept(&mut self, kept: Option<N>) {
        *self.0.get_mut() = kept.map_or(Held::Empty, Held::Next);
    }

    /// What came of it.
    ///
    /// # Safety
    ///
    /// The stage does not change while the result is used.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) unsafe fn next(&self) -> Option<&N> {
        // SAFETY: the stage does not change, by the caller's promise.
        match unsafe { &*self.0.get() } {
            Held::Next(next) => Some(next),
            _ => None,
        }
    }

    /// Drops what the stage holds, in place.
    #[inline]
    pub(crate) fn clear(&mut self) {
        *self.0.get_mut() = Held::Empty;
    }

    /// Puts a connected operation in, in place of what the stage holds, and starts it.
    ///
    /// # Safety
    ///
    /// The stage is pinned. It is neither changed nor dropped until the operation has completed.
    #[inline]
    pub(crate) unsafe fn start(this: NonNull<Self>, operation: O) -> Transfer
    where
        O: Operation,
    {
        // SAFETY: no operation runs there, so this has exclusive access until the start. The operation is pinned with the
        // stage, and started this once.
        unsafe {
            (*this.as_ptr()).set_running(operation);
            match (*this.as_ptr()).running() {
                Some(operation) => Pin::new_unchecked(operation).start(),
                None => Transfer::none(),
            }
        }
    }

    /// Puts what follows in, in place of what the stage holds, and starts it.
    ///
    /// # Safety
    ///
    /// The contract of [`start`](Stage::start).
    #[inline]
    pub(crate) unsafe fn start_next(this: NonNull<Self>, next: N) -> Transfer
    where
        N: Operation,
    {
        // SAFETY: as for `start`.
        unsafe {
            let held = (*this.as_ptr()).0.get_mut();
            *held = Held::Next(next);
            match held {
                Held::Next(next) => Pin::new_unchecked(next).start(),
                _ => Transfer::none(),
            }
        }
    }

    /// Connects the sender to a receiver that points back at `parent`, and starts it: once, where the stage still holds it.
    ///
    /// # Safety
    ///
    /// The stage is pinned in the parent, which stays alive until it completes, and expects one completion of this child.
    #[inline]
    pub(crate) unsafe fn start_child<P, const INDEX: usize>(this: NonNull<Self>, parent: NonNull<P>) -> Transfer
    where
        S: Sender<Operation<ChildReceiver<P, INDEX>> = O>,
        P: Parent<INDEX, Value = S::Value, Error = S::Error>,
        O: Operation,
    {
        // SAFETY: nothing runs in the stage yet. Then its operation does, and it is changed by the completion of that.
        unsafe {
            match (*this.as_ptr()).take_sender() {
                Some(sender) => Stage::start(this, sender.connect(ChildReceiver::new(parent))),
                None => Transfer::none(),
            }
        }
    }
}

/// The operation that embeds a field at this address.
macro_rules! container_of {
    ($pointer:expr, $container:ty, $field:ident) => {
        $pointer
            .byte_sub(core::mem::offset_of!($container, $field))
            .cast::<$container>()
    };
}
pub(crate) use container_of;
