use core::convert::Infallible;
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;
use core::time::Duration;
use std::time::Instant;

use super::entry::TimerEntry;
use super::pending::{Clock, NEVER, NOW};
use super::timer::Timer;
use crate::sender::stage::container_of;
use crate::stop::StopSlot;
use crate::{Completion, Env, Identity, Job, Operation, Receiver, Scheduler, Sender, Transfer};

/// The scheduler of a [`Timer`]. Two are equal if they complete on one context.
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

    /// Returns the current time of the timer's clock.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Returns a sender that completes at `deadline`: see [`Timer::schedule_at`].
    pub fn schedule_at(&self, deadline: Instant) -> TimerSchedule {
        self.timer.schedule_at(deadline)
    }

    /// Returns a sender that completes after `delay`: see [`Timer::schedule_after`].
    pub fn schedule_after(&self, delay: Duration) -> TimerSchedule {
        self.timer.schedule_after(delay)
    }
}

impl Scheduler for TimerScheduler {
    type Schedule = TimerSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> TimerSchedule {
        TimerSchedule::new(self.timer.clone(), When::at(NOW))
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

/// The sender of a [`Timer`], which completes when its deadline has passed.
///
/// # Completions
///
/// The value, on the timer's context, as soon as the deadline has passed. Stopped, if the stop was requested first.
///
/// # Panics
///
/// None: it runs no user code.
///
/// # Cancellation
///
/// A stop ends the wait at once, on the requesting thread. If the deadline has passed and the timer is already queued,
/// it completes stopped on the timer's context.
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
    when: When,
}

impl TimerSchedule {
    #[inline]
    pub(super) fn new(timer: Timer, when: When) -> Self {
        TimerSchedule { timer, when }
    }
}

/// The time of a timer in nanoseconds: a deadline, or a delay from the start on, with the highest bit set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When(u64);

const DELAY: u64 = 1 << 63;

impl When {
    /// Creates a deadline. In three centuries it is as good as none.
    #[inline]
    pub(super) fn at(deadline: u64) -> Self {
        When(if deadline < DELAY { deadline } else { NEVER })
    }

    /// Creates a delay. Zero is the deadline `NOW`, at any time.
    #[inline]
    pub(super) fn after(delay: u64) -> Self {
        match delay {
            NOW => When(NOW),
            1..DELAY => When(DELAY | delay),
            _ => When(NEVER),
        }
    }

    /// Returns the number that an entry has instead of a deadline until it begins.
    #[inline]
    pub(super) fn as_number(self) -> u64 {
        self.0
    }

    /// Returns the time of an entry that has not begun.
    #[inline]
    pub(super) fn of_entry(entry: &TimerEntry) -> Self {
        When(entry.deadline())
    }

    /// Returns the deadline of a timer that is started now.
    #[inline]
    pub(super) fn deadline(self, clock: &Clock) -> u64 {
        match self.0 {
            ..DELAY | NEVER => self.0,
            delay => clock.now().saturating_add(delay - DELAY),
        }
    }
}

/// A handle to a timer.
pub trait TimerHandle: Clone + Send + Sync {
    fn timer(&self) -> &Timer;
}

impl TimerHandle for Timer {
    #[inline]
    fn timer(&self) -> &Timer {
        self
    }
}

/// The handle to the [global timer](Timer::global), which never ends.
#[derive(Clone, Copy, Debug)]
pub struct GlobalTimer;

impl TimerHandle for GlobalTimer {
    #[inline]
    fn timer(&self) -> &Timer {
        Timer::global()
    }
}

// SAFETY: the operation does not access itself after it was inserted or listens, unless `PendingTimers` returned it to
// this thread. Nor does it after its completion. It is `!Unpin`.
unsafe impl Sender for TimerSchedule {
    type Value = ();
    type Error = Infallible;
    type Operation<R: Receiver<(), Infallible>> = TimerOperation<R>;

    #[inline]
    fn connect<R: Receiver<(), Infallible>>(self, receiver: R) -> TimerOperation<R> {
        TimerOperation::new(self.timer, self.when, receiver)
    }
}

/// The operation of [`TimerSchedule`].
pub struct TimerOperation<R: Receiver<(), Infallible>, H: TimerHandle = Timer> {
    /// Until the start its deadline is a [`When`].
    entry: TimerEntry,
    timer: H,
    slot: StopSlot<<R::Env as Env>::StopToken>,
    receiver: Option<R>,
    _pinned: PhantomPinned,
}

impl<R: Receiver<(), Infallible>, H: TimerHandle> TimerOperation<R, H> {
    #[inline]
    pub(crate) fn new(timer: H, when: When, receiver: R) -> Self {
        TimerOperation {
            entry: TimerEntry::new(when.as_number(), Self::due),
            timer,
            slot: StopSlot::new(Self::stop_requested),
            receiver: Some(receiver),
            _pinned: PhantomPinned,
        }
    }

    /// # Safety
    ///
    /// `job` is the job of an operation that was taken out of the wheel as due.
    unsafe fn due(job: NonNull<Job>) -> Transfer {
        let entry = job.cast::<TimerEntry>();
        // SAFETY: the job is the first field of an entry, which is a field of an operation. A running callback finds
        // the entry due and releases the slot. After `leave`, this function has exclusive access.
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
    /// `slot` is the field of a started operation.
    unsafe fn stop_requested(slot: NonNull<StopSlot<<R::Env as Env>::StopToken>>) -> Transfer {
        // SAFETY: the slot is a field of an operation, which is valid until the slot's release. The operation's handle
        // keeps the timers valid. If `remove` returns `true`, this function has exclusive access to the receiver.
        let receiver = unsafe {
            let this = container_of!(slot, Self, slot);
            let entry = NonNull::new_unchecked(&raw mut (*this.as_ptr()).entry);
            let receiver = if (*this.as_ptr()).timer.timer().pending().remove(entry) {
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

impl<R: Receiver<(), Infallible>, H: TimerHandle> Operation for TimerOperation<R, H> {
    unsafe fn start(self: Pin<&mut Self>) -> Transfer {
        // SAFETY: only the receiver is moved, and it is not pinned.
        let operation = unsafe { self.get_unchecked_mut() };
        // A handle of its own: the operation and its handle may be freed while `insert` releases the lock.
        let timer = operation.timer.clone();
        let when = When::of_entry(&operation.entry);
        operation
            .entry
            .set_deadline(when.deadline(timer.timer().pending().clock()));
        let token = match &operation.receiver {
            Some(receiver) => receiver.env().stop_token(),
            None => return Transfer::none(),
        };
        let this = NonNull::from(operation);
        // SAFETY: the slot is pinned with the operation, and left or released before the operation completes.
        let listens = unsafe { StopSlot::listen(NonNull::new_unchecked(&raw mut (*this.as_ptr()).slot), token) };
        // SAFETY: the address of a field is not null.
        let entry = unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).entry) };
        // SAFETY: the entry is pinned with the operation, which its job or the thread that removes it completes.
        // `timer` keeps the timers valid.
        if listens && unsafe { timer.timer().pending().insert(entry) } {
            return Transfer::none();
        }
        // Dropped before the completion, because it may be the last handle.
        drop(timer);
        // SAFETY: the slot does not listen, or its callback came first and left the completion to this function. After
        // `leave` it has exclusive access.
        let receiver = unsafe {
            (*this.as_ptr()).slot.leave();
            (*this.as_ptr()).receiver.take()
        };
        Completion::Stopped.deliver_to(receiver)
    }
}

impl<R: Receiver<(), Infallible>, H: TimerHandle> fmt::Debug for TimerOperation<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerOperation").finish_non_exhaustive()
    }
}
