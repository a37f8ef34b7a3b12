//! Timers: senders that complete at a deadline.
//!
//! | file | contents |
//! |---|---|
//! | `timer.rs` | `Timer`, the handle that users have |
//! | `schedule.rs` | its scheduler, sender and operation |
//! | `pending.rs` | the timers of one run loop: the wheel, its lock and its clock |
//! | `entry.rs` | the part of an operation that the timers link, and its states |
//! | `alarm.rs` | a timer that wakes a waiting future |
//! | `wheel.rs` | the order of the timers |
//! | `model.rs` | access for the models in `tests/model/` |
//!
//! A run loop serves the timers: the user's, or the one of the timer's own thread.

mod alarm;
mod entry;
#[cfg(loom)]
pub(crate) mod model;
mod pending;
mod schedule;
#[expect(clippy::module_inception, reason = "the file of `Timer`")]
mod timer;
mod wheel;

pub(crate) use alarm::Alarm;
pub(super) use pending::{PendingTimers, Taken};
pub(crate) use schedule::{GlobalTimer, TimerOperation, When};
pub use schedule::{TimerSchedule, TimerScheduler};
pub use timer::Timer;
