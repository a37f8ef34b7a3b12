//! The events of tasks, for tools that observe them. Only with the feature `inspect`.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::OnceLock;

use super::{TaskRef, Unit};
use crate::Panic;
use crate::stop::Reason;
use crate::task::frame::{PollHooks, Tracker};

/// An observer of all tasks, set with [`set_instrument`]. Each function does nothing unless it is implemented.
///
/// ```text
/// spawned ─▶ resumed ─▶ polled ─▶ suspended ─▶ … ─▶ ended
///               ▲───────────woken──────┘
/// ```
///
/// The functions are called on the thread where the event happens, during the event: they should be short. Some are called in
/// wakers, so they must not wait for a lock that is held while a waker is called. Events that happen during a call on the same
/// thread, because the function starts tasks or runs them, are not observed. A panic is caught, after the panic hook has
/// reported it.
pub trait Instrument: Send + Sync + 'static {
    /// A task begins: it was spawned or detached, or a sender that contains it was started.
    fn spawned(&self, task: &TaskRef) {
        _ = task;
    }

    /// The task is ready to run, and put into the queue of its scheduler. A task that continues on the thread that woke it is
    /// polled without this.
    fn resumed(&self, task: &TaskRef) {
        _ = task;
    }

    /// This thread begins to poll the task. A task that awaits other tasks may be polled several times in a row.
    fn polled(&self, task: &TaskRef) {
        _ = task;
    }

    /// The poll on this thread has returned: the task waits, is to be polled again, or is about to end. Follows each
    /// [`polled`](Instrument::polled), on the same thread.
    fn suspended(&self, task: &TaskRef) {
        _ = task;
    }

    /// The task was asked to stop. Called once, when the task is polled next or ends.
    ///
    /// A task that stays in a [`shield`](crate::task::shield) is not polled, so this comes only when it is polled again. A tree of tasks, such
    /// as that of [`dump_all`](crate::task::dump_all), shows the cancellation at once.
    fn cancelled(&self, task: &TaskRef, reason: Reason) {
        _ = (task, reason);
    }

    /// The task has ended, with everything below it.
    fn ended(&self, task: &TaskRef) {
        _ = task;
    }
}

static INSTRUMENT: OnceLock<Box<dyn Instrument>> = OnceLock::new();

/// Sets the observer of all tasks, once for the process. Tasks that run already are observed from their next event on.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use bowline::task::{self, Instrument, TaskRef};
///
/// static ENDED: AtomicUsize = AtomicUsize::new(0);
///
/// struct Count;
///
/// impl Instrument for Count {
///     fn ended(&self, _: &TaskRef) {
///         ENDED.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// task::set_instrument(Count).unwrap();
/// task::block_on(task::detach(async {})).unwrap();
/// // The detached task, and the one that `block_on` runs.
/// assert_eq!(ENDED.load(Ordering::Relaxed), 2);
/// ```
///
/// # Errors
///
/// An instrument was set before.
pub fn set_instrument(instrument: impl Instrument) -> Result<(), SetInstrumentError> {
    INSTRUMENT.set(Box::new(instrument)).map_err(|_| SetInstrumentError)?;
    let hooks = PollHooks {
        // SAFETY: the strand does not end before the hook returns, and its tracker is the first field of a unit.
        polled: |tracker| unsafe {
            let task = task_of(tracker);
            cancelled(&task);
            tell(|instrument| instrument.polled(&task));
        },
        // SAFETY: as above.
        suspended: |tracker| unsafe {
            let task = task_of(tracker);
            tell(|instrument| instrument.suspended(&task));
        },
        // SAFETY: as above.
        resumed: |tracker| unsafe {
            let task = task_of(tracker);
            tell(|instrument| instrument.resumed(&task));
        },
    };
    hooks.set();
    Ok(())
}

/// An [instrument](set_instrument) was set before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInstrumentError;

impl fmt::Display for SetInstrumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an instrument was set before: a process has one")
    }
}

impl core::error::Error for SetInstrumentError {}

/// # Safety
///
/// The tracker is the first field of a unit, whose strand does not end before this returns.
unsafe fn task_of(tracker: NonNull<Tracker>) -> TaskRef {
    // SAFETY: the caller's promise.
    unsafe { tracker.cast::<Unit>().as_ref().task() }
}

/// Tells the instrument that a task has begun.
#[inline]
pub(super) fn spawned(task: &TaskRef) {
    if INSTRUMENT.get().is_some() {
        tell(|instrument| instrument.spawned(task));
    }
}

/// Tells the instrument that a task has ended.
#[inline]
pub(super) fn ended(task: impl FnOnce() -> TaskRef) {
    if INSTRUMENT.get().is_some() {
        let task = task();
        cancelled(&task);
        tell(|instrument| instrument.ended(&task));
    }
}

/// Tells the instrument that a task is cancelled, if it is, once.
fn cancelled(task: &TaskRef) {
    if let Some(reason) = task.cancellation_reason()
        && task.record().is_first_to_tell()
    {
        tell(|instrument| instrument.cancelled(task, reason));
    }
}

/// Calls the instrument, unless this thread calls it already.
fn tell(event: impl FnOnce(&dyn Instrument)) {
    std::thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
    }

    let Some(instrument) = INSTRUMENT.get() else { return };
    if INSIDE.replace(true) {
        return;
    }
    // The panic hook has reported it.
    _ = Panic::catch(|| event(&**instrument)).map_err(Panic::discard);
    INSIDE.set(false);
}
