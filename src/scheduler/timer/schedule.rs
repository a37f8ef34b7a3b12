use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;
use core::time::Duration;
use std::time::Instant;

use super::pending::NOW;
use super::timer::Timer;
use super::wheel::TimerEntry;
use crate::sender::stage::container_of;
use crate::stop::StopSlot;
use crate::{Completion, Env, Identity, Job, Operation, Receiver, Scheduler, Sender, Transfer};

/// A handle to the context of a [`Timer`]. Equal to another when both are of one context.
///
/// [`schedule`](Scheduler::schedule) completes there as soon as possible.
#[derive(Clone, PartialEq, Eq)]
pub struct TimerScheduler {
    timer: Timer,
}

impl TimerScheduler {
    pub(super) fn new(timer: Timer) -> Self {
        TimerScheduler { timer }
    }

    /// The time of the timer's clock.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// [`Timer::schedule_at`].
    pub fn schedule_at(&self, deadline: Instant) -> TimerSchedule {
        self.timer.schedule_at(deadline)
    }

    /// [`Timer::schedule_after`].
    pub fn schedule_after(&self, delay: Duration) -> TimerSchedule {
        self.timer.schedule_after(delay)
    }
}

impl Scheduler for TimerScheduler {
    type Schedule = TimerSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> TimerSchedule {
        TimerSchedule::at(self.timer.clone(), NOW)
    }

    fn identity(&self) -> Identity {
        Identity::of_address(self.timer.pending())
    }
}

impl fmt::Debug for TimerScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimerScheduler").field(&self.timer).finish()
    }
}

/// The sender of a [`Timer`]: completes when the time has come.
///
/// # Completions
///
/// The value, on the timer's context, when the deadline has passed; never before. Stopped, when the stop was requested
/// first.
///
/// # Panics
///
/// None: it runs no user code.
///
/// # Cancellation
///
/// A stop ends the wait at once, on the thread that requests it. A timer that is already taken out of the wheel, because
/// its deadline has passed, completes on the timer's context in its turn, stopped.
///
/// # Allocation
///
/// None: the operation is the node of the timer's list.
///
/// # Stack
///
/// Constant.
#[derive(Clone, Debug)]
#[must_use = "senders do nothing until they are connected and started"]
pub struct TimerSchedule {
    timer: Timer,
    /// A deadline, or a delay; in nanoseconds.
    time: u64,
    after: bool,
}

impl TimerSchedule {
    #[inline]
    pub(super) fn at(timer: Timer, deadline: u64) -> Self {
        TimerSchedule {
            timer,
            time: deadline,
            after: false,
        }
    }

    #[inline]
    pub(super) fn after(timer: Timer, delay: u64) -> Self {
        TimerSchedule {
            timer,
            time: delay,
            // No delay is now, whenever that is.
            after: delay != NOW,
        }
    }
}

// SAFETY: the operation touches nothing once it was inserted or listens, but where the timers say that it is its own
// again; nor after its completion. It is `!Unpin`.
unsafe impl Sender for TimerSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = TimerOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> TimerOperation<R> {
        TimerOperation {
            entry: TimerEntry::new(self.time, TimerOperation::<R>::due),
            after: self.after,
            timer: self.timer,
            slot: StopSlot::new(TimerOperation::<R>::stop_requested),
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }
}

/// The operation of [`TimerSchedule`].
pub struct TimerOperation<R: Receiver<(), Infallible>> {
    /// Its deadline is a delay before the start, where `after` says so.
    entry: TimerEntry,
    after: bool,
    timer: Timer,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>> TimerOperation<R> {
    /// # Safety
    ///
    /// The job is that of an operation that was taken out because it is due.
    unsafe fn due(job: NonNull<Job>) -> Transfer {
        let entry = job.cast::<TimerEntry>();
        // SAFETY: an entry begins with its job, and is a field of an operation, which this job completes. A callback that is
        // running finds that the timer is due, and releases the slot. From then on this has exclusive access.
        let (stopped, receiver) = unsafe {
            let this = container_of!(entry, Self, entry).as_ptr();
            (!(*this).slot.leave(), (*this).receiver.take())
        };
        match receiver {
            Some(receiver) if stopped => receiver.set_stopped(),
            Some(receiver) => receiver.set_value(()),
            None => Transfer::none(),
        }
    }

    /// # Safety
    ///
    /// The slot is that of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is not gone before the slot is released. From then on nothing of
        // it is touched. The operation holds a handle, which keeps the timers. The receiver is taken only when the timers
        // gave the operation back.
        let receiver = unsafe {
            let this = container_of!(slot, Self, slot);
            let entry = NonNull::new_unchecked(&raw mut (*this.as_ptr()).entry);
            let receiver = if (*this.as_ptr()).timer.pending().remove(entry) {
                (*this.as_ptr()).receiver.take()
            } else {
                None
            };
            slot.as_ref().release();
            receiver
        };
        Completion::Stopped.deliver_to(receiver)
    }
}

impl<R: Receiver<(), Infallible>> Operation for TimerOperation<R> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: nothing is moved but the receiver, which is not pinned.
        let operation = unsafe { self.get_unchecked_mut() };
        // A handle of our own: the operation, with its, may be gone while the lock is still being given back.
        let timer = operation.timer.clone();
        if operation.after {
            let delay = operation.entry.deadline();
            operation
                .entry
                .set_deadline(timer.pending().clock().now().saturating_add(delay));
        }
        let token = match &operation.receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let this = NonNull::from(operation);
        // SAFETY: the slot is pinned with the operation, and left, or released by the callback, before that completes.
        let listens = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token) };
        // SAFETY: the entry is pinned with the operation.
        let entry = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).entry) };
        // SAFETY: the operation is completed by its job, or by whoever gets it back. The handle keeps the timers.
        if listens && unsafe { timer.pending().insert(entry) } {
            return Transfer::none();
        }
        // Nothing that may be the last of something is dropped after the completion.
        drop(timer);
        // SAFETY: it does not listen, or the callback came first and left the completion to this. Once the slot was left,
        // this has exclusive access.
        let receiver = unsafe {
            (*this.as_ptr()).slot.leave();
            (*this.as_ptr()).receiver.take()
        };
        Completion::Stopped.deliver_to(receiver)
    }
}

impl<R: Receiver<(), Infallible>> fmt::Debug for TimerOperation<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerOperation")
            .field("timer", &self.timer)
            .finish_non_exhaustive()
    }
}
