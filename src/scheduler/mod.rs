//! Schedulers: the places where work runs.
//!
//! | scheduler | description |
//! |---|---|
//! | [`InlineScheduler`] | completes inside `start` |
//! | [`RunLoop`] | a queue that one thread drives; lock-free, intrusive, FIFO |
//! | [`ThreadPool`] | work-stealing threads, with priorities |
//! | [`HostedScheduler`] | a queue that the threads of another executor drive, by futures that it polls |
//! | [`Timer`] | completes at a deadline, on a thread of its own or on a run loop |
//! | [`TaskScheduler`] | any infallible scheduler, type-erased |
//! | [`OrInline`], [`OrAbort`] | infallible adaptors of a fallible scheduler |
//!
//! Scheduling never allocates: the operation is the queue's node.

#[cfg(feature = "std")]
mod elsewhere;
mod erased;
#[cfg(feature = "std")]
mod hop;
#[cfg(feature = "std")]
mod hosted;
mod infallible;
mod inline;
#[cfg(feature = "std")]
mod run_loop;
#[cfg(feature = "std")]
pub(crate) mod thread_pool;
#[cfg(feature = "std")]
pub(crate) mod timer;

#[cfg(feature = "alloc")]
pub use crate::memory::OutOfMemoryError;
#[cfg(feature = "std")]
pub(crate) use elsewhere::elsewhere;
#[cfg(feature = "std")]
pub(crate) use erased::hop_to;
pub use erased::{TaskSchedule, TaskScheduler};
#[cfg(feature = "std")]
pub(crate) use hop::{Hop, HopTo, HopVtable};
#[cfg(feature = "std")]
pub use hosted::{Host, HostedDriver, HostedSchedule, HostedScheduler};
#[cfg(feature = "std")]
pub use infallible::OrAbort;
pub use infallible::{OrElse, OrElseSchedule, OrInline};
pub use inline::{InlineSchedule, InlineScheduler};
#[cfg(feature = "std")]
use run_loop::Innermost;
#[cfg(feature = "std")]
pub(crate) use run_loop::{Driver, RunUntil};
#[cfg(feature = "std")]
pub use run_loop::{RunLoop, RunLoopSchedule, RunLoopScheduler};
#[cfg(feature = "std")]
pub use thread_pool::{BuildError, PoolSchedule, PoolScheduler, Reactor, ThreadPool, ThreadPoolBuilder};
#[cfg(feature = "std")]
pub(crate) use timer::{Alarm, GlobalTimer, TimerOperation, When};
#[cfg(feature = "std")]
pub use timer::{Timer, TimerSchedule, TimerScheduler};
