//! Coroutines, and closures that run side by side.
//!
//! - [`Task`] is an `async` block that is a sender; [`LocalTask`] is one that stays on its thread. Both await every
//!   sender, and every future.
//! - [`block_on`] runs a future here; [`#[bowline::main]`](crate::main) and [`#[bowline::test]`](crate::test) put it
//!   around a function.
//! - [`TaskContext`] says what a task is made with: its allocator, its scheduler, what it adds to the environment;
//!   [`Task::builder`] takes one.
//! - [`SenderFuture`] is the bridge that `.await` takes, for coroutine types of your own.
//! - [`scope`] spreads closures and coroutines that borrow over the pool.
//!
//! ```
//! use bowline::prelude::*;
//! use bowline::task::Task;
//!
//! let hello = Task::new(async {
//!     let Ok(name) = just("bowline").await;
//!     format!("hello, {name}")
//! });
//! assert_eq!(sync_wait(hello).unwrap(), "hello, bowline");
//! ```

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
mod scope;
#[allow(clippy::module_inception, reason = "the file is named for the type in it")]
mod task;
mod wait;

pub use allocator::{CurrentAllocator, TaskAllocator};
pub use await_sender::SenderFuture;
pub use await_state::TaskToken;
pub use block_on::block_on;
pub use builder::TaskBuilder;
#[doc(hidden)]
pub use context::{Around, Home};
pub use context::{ContextScheduler, DefaultContext, FromEnv, InAllocator, Inline, Providing, TaskContext, TaskEnv};
pub(crate) use hop::{HopTo, HopVtable, hop};
pub use local::{LocalTask, LocalTaskFuture, LocalTaskOperation};
pub use task::{Task, TaskFuture, TaskOperation};

pub use crate::Priority;
pub use crate::scheduler::thread_pool::{Scope, scope};
