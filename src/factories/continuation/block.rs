//! The block that the operation of a continuation and its handle share: which of the two completes the operation.

use core::cell::UnsafeCell;
use core::panic::Location;
use core::ptr::NonNull;
use std::boxed::Box;

use crate::report::{Report, report};
use crate::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::{Completion, Panic, Transfer};

/// The way in which a continuation ends.
pub(super) enum Resumption<T, E> {
    Value(T),
    Error(E),
    Stopped,
    /// The continuation was dropped, which is still to be reported.
    Dropped,
}

impl<T, E> Resumption<T, E> {
    /// Converts to the completion of the operation, and reports a drop.
    pub(super) fn conclude(self, location: &'static Location<'static>) -> Completion<T, E> {
        match self {
            Resumption::Value(value) => Completion::Value(value),
            Resumption::Error(error) => Completion::Error(error),
            Resumption::Stopped => Completion::Stopped,
            Resumption::Dropped => {
                report(Report::ContinuationDropped { location });
                Completion::Stopped
            }
        }
    }
}

/// The side that completes the operation after a resume.
pub(super) enum Resumed<T, E> {
    /// `start`, which is still running, with the resumption in the block.
    ByStart,
    /// The caller of `resume`.
    Here(Resumption<T, E>, Completer<T, E>),
}

/// The operation that waits, with its type erased, and the function that completes it.
pub(super) struct Completer<T, E> {
    pub(super) operation: NonNull<()>,
    /// Called with `operation`, by the one thread that has the right to complete it.
    pub(super) complete: unsafe fn(NonNull<()>, Completion<T, E>) -> Transfer,
}

impl<T, E> Clone for Completer<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, E> Copy for Completer<T, E> {}

pub(super) type Handler = Box<dyn FnOnce() + Send>;

/// Calls a handler. Its panic goes to the panic hook, and no further.
pub(super) fn call(handler: Option<Handler>) {
    if let Some(handler) = handler {
        drop(Panic::catch(handler));
    }
}

/// Drops a value of the user's, and catches the panic of its destructor: the operation is completed in any case.
pub(super) fn discard<D>(value: D) {
    drop(Panic::catch(move || drop(value)));
}

/// The reference-counted memory that an operation and its continuation share.
pub(super) struct ContinuationBlock<T, E> {
    /// The side that completes the operation:
    ///
    /// | value | means |
    /// |---|---|
    /// | `STARTING` | `start` has the operation to itself, and the continuation has not ended |
    /// | `WAITING` | the operation waits, with its slot registered with the stop token |
    /// | `RESUMED` | the continuation has ended |
    /// | `ABANDONED` | the operation completes without the continuation, whose resumption is refused |
    ///
    /// | from | by | to | then |
    /// |---|---|---|---|
    /// | `STARTING` | `start`, once it listens | `WAITING` | `start` accesses nothing any more |
    /// | `STARTING` | the end of the continuation, which left its resumption in `early` | `RESUMED` | it accesses nothing any more; `start` completes |
    /// | `STARTING` | the stop callback, once the slot is registered | `ABANDONED` | it releases the slot; `start` completes |
    /// | `STARTING` | `start`, where the stop came first, or the function has panicked | `ABANDONED` | `start` completes |
    /// | `RESUMED` | `start`, where the function has panicked | `ABANDONED` | `start` drops the resumption, and completes |
    /// | `WAITING` | the end of the continuation | `RESUMED` | it leaves the slot, and completes |
    /// | `WAITING` | the stop callback | `ABANDONED` | it releases the slot, and completes |
    ///
    /// Every change acquires and releases. So the thread that completes sees the operation as `start` left it, and `start` sees
    /// the resumption.
    state: AtomicU8,
    /// Written by the end of the continuation while `STARTING`, and taken back where its change to `RESUMED` fails. Once
    /// `RESUMED`, accessed by `start` alone.
    early: UnsafeCell<Option<Resumption<T, E>>>,
    /// The handler of [`on_stop`](super::Continuation::on_stop), protected by the lock.
    ///
    /// The side that completes changes the state first, and takes the handler then. So a handler that is set is taken, or
    /// `on_stop` sees under the lock that it came too late.
    handler: Mutex<Option<Handler>>,
    completer: Completer<T, E>,
    location: &'static Location<'static>,
}

const STARTING: u8 = 0;
const WAITING: u8 = 1;
const RESUMED: u8 = 2;
const ABANDONED: u8 = 3;

// SAFETY: values and errors are `Send`, and the state gives the cell to one thread at a time. The operation behind the
// completer is used by the one thread that completes it.
unsafe impl<T: Send, E: Send> Send for ContinuationBlock<T, E> {}
// SAFETY: see `Send`; the handler is behind a lock.
unsafe impl<T: Send, E: Send> Sync for ContinuationBlock<T, E> {}

impl<T, E> ContinuationBlock<T, E> {
    pub(super) fn new(completer: Completer<T, E>, location: &'static Location<'static>) -> Self {
        ContinuationBlock {
            state: AtomicU8::new(STARTING),
            early: UnsafeCell::new(None),
            handler: Mutex::new(None),
            completer,
            location,
        }
    }

    pub(super) fn location(&self) -> &'static Location<'static> {
        self.location
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.state.load(Acquire) == ABANDONED
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Ends the continuation. Returns the resumption if the continuation is abandoned.
    pub(super) fn resume(&self, mut resumption: Resumption<T, E>) -> Result<Resumed<T, E>, Resumption<T, E>> {
        if self.state.load(Relaxed) == STARTING {
            // SAFETY: a block has one continuation, which ends once. `start` accesses the cell only after `RESUMED`.
            let early = unsafe { &mut *self.early.get() };
            *early = Some(resumption);
            if self.change(STARTING, RESUMED) {
                return Ok(Resumed::ByStart);
            }
            match early.take() {
                Some(taken_back) => resumption = taken_back,
                None => return Ok(Resumed::ByStart),
            }
        }
        match self.change(WAITING, RESUMED) {
            true => Ok(Resumed::Here(resumption, self.completer)),
            false => Err(resumption),
        }
    }

    /// Makes the operation wait, for `start`. Returns `false` where the continuation has ended or a stop has come.
    pub(super) fn wait(&self) -> bool {
        self.change(STARTING, WAITING)
    }

    /// Abandons a continuation that `start` does not wait for, unless it has ended.
    pub(super) fn abandon_starting(&self) {
        self.change(STARTING, ABANDONED);
    }

    /// Abandons the continuation, for a stop. Returns `true` where the caller completes the operation.
    pub(super) fn stop(&self) -> bool {
        // While `STARTING`, `start` sees the change and completes.
        !self.change(STARTING, ABANDONED) && self.change(WAITING, ABANDONED)
    }

    /// Returns whether the function has returned with the continuation neither ended nor abandoned.
    pub(super) fn is_starting(&self) -> bool {
        self.state.load(Acquire) == STARTING
    }

    /// Abandons the continuation of a function that panicked, with the resumption and the handler that were left.
    ///
    /// # Safety
    ///
    /// The caller is `start`, and has not waited.
    pub(super) unsafe fn abandon(&self) {
        if self.state.swap(ABANDONED, AcqRel) == RESUMED {
            // SAFETY: the caller is `start`, and the state was `RESUMED`.
            discard(unsafe { self.take_early() });
        }
        discard(self.take_handler());
    }

    /// Returns the completion of an operation that does not wait.
    ///
    /// # Safety
    ///
    /// The caller is `start`, and has seen that the operation does not wait.
    pub(super) unsafe fn conclude(&self) -> Option<Completion<T, E>> {
        if self.state.load(Acquire) == RESUMED {
            discard(self.take_handler());
            // SAFETY: the caller is `start`, and the state is `RESUMED`.
            return unsafe { self.take_early() }.map(|resumption| resumption.conclude(self.location));
        }
        call(self.take_handler());
        Some(Completion::Stopped)
    }

    /// Takes the resumption that was left for `start`.
    ///
    /// # Safety
    ///
    /// The caller is `start`, and has seen `RESUMED` with acquire, which pairs with the release of `resume`.
    unsafe fn take_early(&self) -> Option<Resumption<T, E>> {
        // SAFETY: the continuation has ended, so `start` alone accesses the cell.
        unsafe { (*self.early.get()).take() }
    }

    pub(super) fn take_handler(&self) -> Option<Handler> {
        self.lock_handler().take()
    }

    pub(super) fn lock_handler(&self) -> MutexGuard<'_, Option<Handler>> {
        lock(&self.handler)
    }
}
