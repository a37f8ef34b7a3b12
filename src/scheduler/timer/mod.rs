//! Timers: senders that complete at a deadline.
//!
//! | file | contents |
//! |---|---|
//! | `timer.rs` | `Timer`, the handle that users have |
//! | `schedule.rs` | its scheduler, sender and operation |
//! | `pending.rs` | the timers of one run loop: the wheel, its lock and its clock |
//! | `entry.rs` | the part of an operation that the timers link, and its states |
//! | `wheel.rs` | the order of the timers |
//!
//! A run loop serves the timers: the user's, or the one of the timer's own thread.

mod entry;
mod pending;
mod schedule;
#[expect(clippy::module_inception, reason = "the file of `Timer`")]
mod timer;
mod wheel;

pub(super) use pending::PendingTimers;
pub(crate) use schedule::{GlobalTimer, TimerOperation, When};
pub use schedule::{TimerSchedule, TimerScheduler};
pub use timer::Timer;
