//! Structured concurrency: coroutines, and closures that run side by side.

mod allocator;
mod await_sender;
mod await_state;
mod awaitable;
mod block_on;
mod builder;
mod context;
mod foreign;
mod frame;
mod hop;
mod local;
#[allow(clippy::module_inception, reason = "the file is named for the type in it")]
mod task;
mod wait;

pub use allocator::{CurrentAllocator, TaskAllocator};
pub use await_sender::SenderFuture;
pub use await_state::TaskToken;
pub use block_on::block_on;
pub use builder::TaskBuilder;
#[doc(hidden)]
pub use context::Home;
pub use context::{ContextScheduler, DefaultContext, FromEnv, InAllocator, Inline, Providing, TaskContext, TaskEnv};
pub(crate) use hop::{HopTo, HopVtable, hop};
pub use local::{LocalTask, LocalTaskFuture, LocalTaskOperation};
pub use task::{Task, TaskFuture, TaskOperation};

pub use crate::Priority;
pub use crate::scheduler::thread_pool::{Scope, scope};
