//! A timer that wakes a waiting party, instead of completing an operation.

use core::cell::UnsafeCell;
use core::mem::{self, MaybeUninit};
use core::ptr::NonNull;
use core::task::Waker;

use super::entry::TimerEntry;
use super::pending::PendingTimers;
use super::schedule::When;

/// A timer in the memory of a future. The driver of the timers uses it under their lock only, so the future can be dropped at any
/// time without waiting for the driver.
///
/// The entry is first, so both have the same address.
#[repr(C)]
pub(crate) struct Alarm {
    entry: TimerEntry,
    /// The waker to be woken. Owned by the alarm until the timer fires, and then by the driver, which copies it out under the lock. The thread
    /// that owns the alarm reads it at any time until then, and writes it under the lock.
    waker: UnsafeCell<MaybeUninit<Waker>>,
}

impl Alarm {
    pub(crate) fn new(when: When, waker: Waker) -> Self {
        Alarm {
            entry: TimerEntry::of_alarm(when),
            waker: UnsafeCell::new(MaybeUninit::new(waker)),
        }
    }

    /// Begins to wait.
    ///
    /// # Safety
    ///
    /// This is the first call. The alarm is pinned until [`end`](Alarm::end) has returned, which is called by the thread that owns
    /// the alarm.
    pub(crate) unsafe fn begin(this: NonNull<Self>, timers: &PendingTimers) {
        // SAFETY: the alarm is not known to another thread before it is inserted. It is valid until it was taken out, since `end`
        // removes it.
        unsafe {
            let entry = &this.as_ref().entry;
            entry.set_deadline(When::of_entry(entry).deadline(timers.clock()));
            timers.insert(this.cast());
        }
    }

    /// Returns whether the time is over. Then the timers do not use the alarm any longer.
    #[inline]
    pub(crate) fn has_fired(&self) -> bool {
        self.entry.has_fired()
    }

    /// Changes the party that is woken, unless the time is over.
    ///
    /// # Safety
    ///
    /// The alarm has begun and not ended, and the caller owns it. [`has_fired`](Alarm::has_fired) has returned `false`.
    pub(crate) unsafe fn set_waker(&self, timers: &PendingTimers, waker: &Waker) {
        // SAFETY: a waker that the driver copies stays as it is, so this may read it.
        let is_set = unsafe { (*self.waker.get()).assume_init_ref() }.will_wake(waker);
        if !is_set {
            // Cloned and dropped without the lock: both may be user code.
            let mut other = waker.clone();
            timers.with_lock(|| {
                if !self.has_fired() {
                    // SAFETY: under the lock, and before the timer fires, this thread has exclusive access to the waker.
                    mem::swap(unsafe { (*self.waker.get()).assume_init_mut() }, &mut other);
                }
            });
        }
    }

    /// Ends the wait, if the time is not over.
    ///
    /// # Safety
    ///
    /// The alarm has begun, the caller owns it, and this is the last call.
    pub(crate) unsafe fn end(this: NonNull<Self>, timers: &PendingTimers) {
        // SAFETY: the caller's promise. The driver does not use a removed entry, so the waker is that of this thread.
        unsafe {
            if !this.as_ref().has_fired() && timers.remove(this.cast()) {
                (*this.as_ref().waker.get()).assume_init_drop();
            }
        }
    }

    /// Takes the waker of a timer that is due.
    ///
    /// # Safety
    ///
    /// The entry is that of an alarm, and was taken out of the wheel. The caller holds the lock of the timers, and then [marks the
    /// entry](TimerEntry::set_fired), which it does not use afterwards.
    pub(super) unsafe fn take_waker(entry: NonNull<TimerEntry>) -> Waker {
        // SAFETY: the caller's promise. No other thread writes the waker under the lock, nor drops it once the entry is marked.
        unsafe { (*entry.cast::<Alarm>().as_ref().waker.get()).assume_init_read() }
    }
}
