//! [`TaskScheduler`]: any infallible scheduler, type-erased.

#[cfg(feature = "alloc")]
mod heap;
mod inline;
mod inner;
mod schedule;
mod scheduler;
mod vtable;

pub use schedule::TaskSchedule;
pub use scheduler::TaskScheduler;
#[cfg(feature = "std")]
pub(crate) use scheduler::hop_to;
