//! Coroutines, and closures that run side by side.
//!
//! - [`Task`] is an `async` block that is a sender; [`LocalTask`] is one that stays on its thread. Both await every
//!   sender, and every future.
//! - [`block_on`] runs a future here; [`#[bowline::main]`](crate::main) and [`#[bowline::test]`](crate::test) put it
//!   around a function.
//! - [`TaskContext`] says what a task is made with: its allocator, its scheduler, what it adds to the environment;
//!   [`Task::builder`] takes one.
//! - [`SenderFuture`] is the bridge that `.await` takes, for coroutine types of your own.
//! - [`scope`] spreads closures over the pool.
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
mod error;
mod escalation_handler;
mod foreign;
mod frame;
mod group;
mod handle;
mod hop;
mod inside;
mod let_async;
mod local;
mod priority;
mod relay;
mod solo;
mod spawned;
#[allow(clippy::module_inception, reason = "the file is named for the type in it")]
mod task;
mod task_local;
mod unit;
mod wait;

pub use allocator::{CurrentAllocator, TaskAllocator};
pub use await_sender::SenderFuture;
pub use await_state::TaskToken;
pub use block_on::block_on;
pub use builder::TaskBuilder;
#[doc(hidden)]
pub use context::{Around, Home};
pub use context::{ContextScheduler, DefaultContext, FromEnv, InAllocator, Inline, Providing, TaskContext, TaskEnv};
pub use error::TaskError;
pub use escalation_handler::{WithEscalationHandler, with_escalation_handler};
pub use group::{
    AllResults, ChildError, Collecting, Discarding, FirstSuccess, Gather, GroupFuture, JoinPolicy, Next, NextEnded,
    NoQuorum, Quorum, Refused, SpawnOptions, SpawnWhenReady, Spawned, Supervising, TaskGroup, Trying, WaitForAll,
    discarding_group, gather, group, supervised_group, try_group,
};
pub use handle::{Handle, detach, detach_with};
pub(crate) use hop::{HopTo, HopVtable, hop};
pub use let_async::{AsyncLet, let_async};
pub use local::{LocalTask, LocalTaskFuture, LocalTaskOperation};
pub use priority::{current_priority, priority};
pub use task::{Task, TaskFuture, TaskOperation};

pub use crate::Priority;
pub use crate::scheduler::thread_pool::{Scope, scope};
