//! Tasks with their types: `Task`, `LocalTask`, and the frames behind them.

mod allocator;
mod builder;
mod context;
mod future;
mod homed;
mod local;
mod operation;
mod own_context;
mod task;
mod typed_frame;

pub use self::allocator::{CurrentAllocator, TaskAllocator};
pub use self::builder::TaskBuilder;
use self::builder::or_panic;
pub use self::context::{ContextScheduler, DefaultContext, FromEnv, InAllocator, Inline, Providing, TaskContext};
pub use self::future::TaskFuture;
use self::homed::{Homed, HomedFuture};
pub use self::local::{LocalTask, LocalTaskFuture, LocalTaskOperation};
use self::operation::SchedulerIn;
pub use self::operation::TaskOperation;
use self::own_context::OwnContext;
use self::task::Produces;
pub use self::task::Task;
pub(super) use self::typed_frame::{Frame, Plain};
use self::typed_frame::{Local, Produce, Try};
