//! Access to alarms for the models in `tests/model/`.
#![allow(missing_debug_implementations, reason = "for the models alone")]

use core::pin::Pin;
use core::ptr::NonNull;
use core::task::Waker;
use core::time::Duration;
use std::boxed::Box;

use super::{Alarm, Timer};

/// An alarm that its owner may end at any time.
pub struct AlarmModel {
    alarm: Pin<Box<Alarm>>,
    timer: Timer,
}

// SAFETY: an alarm may be moved to another thread with its owner.
unsafe impl Send for AlarmModel {}

impl AlarmModel {
    /// Begins an alarm.
    pub fn begin(timer: &Timer, delay: Duration, waker: Waker) -> Self {
        let alarm = Box::pin(Alarm::new(Timer::when_after(delay), waker));
        // SAFETY: the alarm is in a box, and ended by the drop of this.
        unsafe { Alarm::begin(NonNull::from(&*alarm), timer.pending()) };
        AlarmModel {
            alarm,
            timer: timer.clone(),
        }
    }

    /// Returns whether the time is over.
    pub fn has_fired(&self) -> bool {
        self.alarm.has_fired()
    }

    /// Changes the waker, unless the time is over.
    pub fn set_waker(&self, waker: &Waker) {
        if !self.has_fired() {
            // SAFETY: the alarm has begun, and not fired.
            unsafe { self.alarm.set_waker(self.timer.pending(), waker) };
        }
    }
}

impl Drop for AlarmModel {
    fn drop(&mut self) {
        // SAFETY: the alarm has begun, and this is the last call.
        unsafe { Alarm::end(NonNull::from(&*self.alarm), self.timer.pending()) };
    }
}
