use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::{self, ManuallyDrop};
use core::pin::pin;
use core::ptr::NonNull;

use crate::scheduler::{Driver, RunLoop, RunLoopScheduler, RunUntil};
use crate::sender::receiver::receive_as_completion;
use crate::sender::stage::container_of;
use crate::sender::start;
use crate::{Completion, EmptyEnv, Job, Outcome, Patched, Receiver, Sender, Transfer, WithScheduler};

/// Connects a sender now, to be started and waited for later.
///
/// Connecting happens here, and [`Prepared::wait`] only starts. The slot receives the result, and can be used again.
/// Dropping the [`Prepared`] runs nothing.
///
/// ```
/// use bowline::prelude::*;
///
/// let mut slot = WaitSlot::new();
/// let prepared = prepare(just_from(|| 6 * 7), &mut slot);
/// // … later:
/// assert_eq!(prepared.wait().unwrap(), 42);
/// ```
#[inline]
pub fn prepare<S>(sender: S, slot: &mut WaitSlot<S::Value, S::Error>) -> Prepared<'_, S>
where
    S: Sender<Value: Send, Error: Send>,
{
    *slot = WaitSlot::new();
    Prepared::new(sender, slot)
}

/// A connected sender that is not started, created by [`prepare`].
#[must_use = "a prepared operation does nothing until it is waited for"]
pub struct Prepared<'a, S>
where
    S: Sender<Value: Send, Error: Send>,
{
    operation: S::Operation<WaitReceiver<'a, S::Value, S::Error>>,
    slot: &'a WaitSlot<S::Value, S::Error>,
}

impl<'a, S> Prepared<'a, S>
where
    S: Sender<Value: Send, Error: Send>,
{
    #[inline]
    pub(super) fn new(sender: S, slot: &'a WaitSlot<S::Value, S::Error>) -> Self {
        Prepared {
            operation: sender.connect(slot.receiver::<S>(&slot.run_loop)),
            slot,
        }
    }

    /// Starts the sender and blocks until it has completed, as [`sync_wait`](crate::sync_wait) does.
    #[inline]
    pub fn wait(self) -> Outcome<S::Value, S::Error> {
        into_outcome(self.complete())
    }

    #[inline]
    pub(super) fn complete(self) -> Option<Completion<S::Value, S::Error>> {
        let Prepared { operation, slot } = self;
        let operation = pin!(operation);
        slot.waiting.set(true);
        // SAFETY: the operation is pinned on this stack frame, started once, and dropped after it has completed.
        let start = || unsafe { start(operation) }.run();
        if S::COMPLETES.is_inline() {
            start();
        } else {
            // SAFETY: the loop is in the slot, which only this stack frame drives.
            unsafe { slot.run_loop.drive_alone(start, |driver| slot.drive(driver)) };
        }
        // SAFETY: the sender has completed.
        unsafe { slot.take() }
    }
}

impl<S> fmt::Debug for Prepared<'_, S>
where
    S: Sender<Value: Send, Error: Send>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}

/// The place for the result of a sender that is waited for, and the run loop that is driven meanwhile.
pub struct WaitSlot<T, E> {
    run_loop: RunLoop,
    /// Written by the completion, before `job` is pushed. Read by the waiting thread, after the job has run. A sender
    /// that completes inside `start` needs no job.
    completion: UnsafeCell<Option<Completion<T, E>>>,
    /// Tells the waiting thread, through its own queue, that the sender has completed.
    job: UnsafeCell<Job>,
    /// Set by the job. Only the waiting thread accesses it.
    done: Cell<bool>,
    /// Set by the waiting thread before it starts the operation, and only read from then on. A receiver that is dropped
    /// before that, with an unstarted operation, completes nothing. The slot may still move then, so its job must not
    /// be queued.
    waiting: Cell<bool>,
}

// SAFETY: the completion is written once, and released and acquired through the run loop. The job is pushed once. Value
// and error are `Send`.
unsafe impl<T: Send, E: Send> Sync for WaitSlot<T, E> {}
// SAFETY: see `Sync`.
unsafe impl<T: Send, E: Send> Send for WaitSlot<T, E> {}

impl<T, E> WaitSlot<T, E> {
    /// Makes an empty slot.
    #[inline]
    pub fn new() -> Self {
        WaitSlot {
            run_loop: RunLoop::new(),
            completion: UnsafeCell::new(None),
            job: UnsafeCell::new(Job::new(Self::completed)),
            done: Cell::new(false),
            waiting: Cell::new(false),
        }
    }

    #[inline]
    fn receiver<'a, S: Sender<Value = T, Error = E>>(&'a self, run_loop: &'a RunLoop) -> WaitReceiver<'a, T, E> {
        WaitReceiver {
            slot: self,
            run_loop,
            inline: S::COMPLETES.is_inline(),
        }
    }

    /// Starts `sender`, drives the loop until it has completed, and returns its outcome.
    pub(crate) fn wait_on<S>(&self, driver: &Driver<'_>, sender: S) -> Outcome<T, E>
    where
        S: Sender<Value = T, Error = E>,
        T: Send,
        E: Send,
    {
        let operation = pin!(sender.connect(self.receiver::<S>(driver)));
        self.waiting.set(true);
        // SAFETY: the operation is pinned on this stack frame, started once, and dropped after it has completed.
        unsafe { start(operation) }.run();
        if !S::COMPLETES.is_inline() {
            self.drive(driver);
        }
        // SAFETY: the sender has completed.
        into_outcome(unsafe { self.take() })
    }

    fn drive(&self, driver: &Driver<'_>) {
        while !self.done.get() {
            driver.run_one(RunUntil::NextJob);
        }
    }

    /// # Safety
    ///
    /// The sender has completed.
    #[inline]
    unsafe fn take(&self) -> Option<Completion<T, E>> {
        // SAFETY: the completion was written before the sender was known to have completed.
        unsafe { (*self.completion.get()).take() }
    }

    /// # Safety
    ///
    /// The job is that of a slot, run by the waiting thread.
    unsafe fn completed(job: NonNull<Job>) -> Transfer {
        // SAFETY: the job is a field of a slot, alive while its thread waits. An `UnsafeCell` has its content's
        // address.
        unsafe { container_of!(job, Self, job).as_ref() }.done.set(true);
        Transfer::none()
    }
}

impl<T, E> Default for WaitSlot<T, E> {
    fn default() -> Self {
        WaitSlot::new()
    }
}

crate::opaque!([T, E] WaitSlot<T, E>);

/// The receiver of [`sync_wait`](crate::sync_wait).
pub(super) struct WaitReceiver<'a, T, E> {
    slot: &'a WaitSlot<T, E>,
    run_loop: &'a RunLoop,
    /// Whether the sender completes inside `start`, so that no job is needed.
    inline: bool,
}

impl<T, E> WaitReceiver<'_, T, E> {
    #[inline]
    fn complete(self, completion: Completion<T, E>) -> Transfer {
        // Forgotten before the push, after which the slot may be destroyed.
        let this = ManuallyDrop::new(self);
        this.leave(completion);
        Transfer::none()
    }

    #[inline]
    fn leave(&self, completion: Completion<T, E>) {
        // SAFETY: the receiver completes once, and the waiting thread reads after that.
        unsafe { *self.slot.completion.get() = Some(completion) };
        if !self.inline {
            // The job leads back to the slot, so its address is derived from the slot's.
            // SAFETY: the job is a field of the slot.
            let job = unsafe { NonNull::from(self.slot).byte_add(mem::offset_of!(WaitSlot<T, E>, job)) }.cast();
            // SAFETY: the job is pushed once. A thread waits, so the slot is alive and does not move until the job has
            // run. Nothing of it is accessed after the push.
            unsafe { self.run_loop.push(job) };
        }
    }
}

impl<'a, T: Send, E: Send> Receiver<T, E> for WaitReceiver<'a, T, E> {
    type Env = Patched<WithScheduler<RunLoopScheduler<'a>>, EmptyEnv>;

    #[inline]
    fn env(&self) -> Self::Env {
        Patched::new(WithScheduler(self.run_loop.scheduler()), EmptyEnv)
    }

    receive_as_completion!(T, E);
}

impl<T, E> Drop for WaitReceiver<'_, T, E> {
    #[cold]
    fn drop(&mut self) {
        // A receiver completes only after the start, but it may be dropped before.
        if self.slot.waiting.get() {
            self.leave(Completion::Stopped);
        }
    }
}

/// Converts to the caller's outcome. A leaked receiver has left no completion, which counts as a stop.
#[inline]
pub(super) fn into_outcome<T, E>(completion: Option<Completion<T, E>>) -> Outcome<T, E> {
    match completion {
        Some(completion) => completion.into_outcome(),
        None => Outcome::Stopped,
    }
}
