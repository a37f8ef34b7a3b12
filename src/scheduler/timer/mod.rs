//! Completing at a time.
//!
//! `wheel` keeps timers in order, `pending` is the wheel with its lock and its clock, `timer` the handle that users hold,
//! `schedule` the senders. Who serves the timers is a run loop: that of the user, or that of the timer's own thread.

mod pending;
mod schedule;
#[expect(clippy::module_inception, reason = "the file of `Timer`")]
mod timer;
mod wheel;

pub(super) use pending::PendingTimers;
pub use schedule::{TimerSchedule, TimerScheduler};
pub use timer::Timer;
