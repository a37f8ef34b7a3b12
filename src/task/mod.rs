//! Coroutine tasks, their children, and closures that run in parallel.
//!
//! - [`Task`] is an `async` block that is a sender; [`LocalTask`] is one that stays on its thread. Both await every sender and
//!   every future.
//! - [`block_on`] runs a future on this thread; [`#[bowline::main]`](crate::main) and [`#[bowline::test]`](crate::test) wrap a
//!   function in it.
//! - [`TaskContext`] configures tasks: allocator, scheduler, and additions to the environment. [`Task::builder`] takes one.
//! - [`yield_now`] lets other work run; [`sleep`] and [`sleep_until`] wait for a time, [`continuation()`] for a callback.
//! - [`spawn_blocking`] runs a closure that blocks on a thread beside the workers.
//! - [`set_report_hook`] receives panics and errors that no caller can observe.
//! - [`SenderFuture`] is the future behind `.await`, for coroutine types of your own.
//! - [`current`] returns the current task and [`dump`] the tree of tasks that it waits for; [`task_local!`](crate::task_local)
//!   declares values that a task and everything inside it can read.
//! - [`is_cancelled`], [`check_cancellation`] and [`with_cancellation_handler`] observe a cancellation; [`shield`] blocks it,
//!   [`with_deadline`] and [`with_timeout`] cause it.
//! - [`retry_with()`] tries a future again after an error, with growing delays.
//! - [`scope`] runs closures and coroutines that borrow on the pool.
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

// The invariants that the unsafe code of this crate relies on, and where each is established:
//
// | invariant | established by |
// |---|---|
// | an operation is pinned, started once, and neither moved nor dropped until it completes | `Operation::start`'s contract, and the `unsafe trait Sender`; `sender::InPlace`, `sender::Stage` and `awaiting::AwaitBlock` keep it |
// | a job runs once, is valid until it runs, and does not unwind | `Transfer::to`'s contract; `Job::run` is the one caller |
// | a registry is alive while a slot is in its list | the slot owns its token (`stop::StopSlot`), or the token's `unsafe` constructor |
// | a queue is alive while a frame waits in it | `sender::native`: the answer borrows the scheduler, which is pinned in an operation (`task::frame::home`) |
// | a value borrowed from an environment is used only until the receiver completes | the lifetime of `EnvDoor`; `strand::Awaiter::of` and `frame::Home::behind` inside the crate |
// | a frame's placement and tracker are the first fields of a context and a unit | `Header::begin` (`strand::context`) |
// | one thread at a time polls a frame | the `BUSY` flag of `frame::state` |
// | a frame's memory is alive while anything points into it | the two counts of `frame::state`; blocks and their parties in `frame::memory` |
// | a context is alive while anything uses it | the frame's awaits; inside a scope, the users that `frame::scope` counts |
// | the current task is the one that the thread polls | `sender::current`: pushed by the poll, hidden by every driver and callback |
// | a value read as `T` was stored as `T` | handles that store and return `T` are invariant (`tests/foundation/variance.rs`) |
// | a local task stays on its thread | `!Send` types, and a run-time check that aborts (`coroutine::homed`) |
// | reference counts do not overflow | `memory::Count`, and the check in `frame::state` |

// The layers: frame, strand, awaiting, coroutine, children. Each names only those before it, as `scripts/layers` checks.
mod awaiting;
mod children;
mod coroutine;
mod frame;
mod strand;

// The public features, a file each.
mod block_on;
mod cancellation;
mod cancellation_handler;
mod current;
mod deadline;
mod deadline_scope;
mod escalation_handler;
mod handle;
mod let_async;
mod next_until;
mod retry_with;
mod scope;
mod shield;
mod task_local;
mod tree;
mod tree_format;
#[cfg(feature = "inspect")]
mod watchdog;

pub use awaiting::{NeverFuture, ScheduleFuture, SenderFuture, SleepFuture, TaskEnv, TaskToken, ValueFuture};
pub use block_on::block_on;
#[cfg(not(loom))]
#[doc(hidden)]
pub use block_on::block_on_with_threads;
pub use cancellation::{Cancelled, cancellation_reason, check_cancellation, is_cancelled};
pub use cancellation_handler::{WithCancellationHandler, with_cancellation_handler};
pub use children::group::{
    AllResults, ChildError, ChildHandle, Collecting, Discarding, FirstSuccess, Gather, GroupFuture, JoinPolicy, Next,
    NextEnded, Quorum, QuorumError, Ready, SpawnError, SpawnErrorKind, SpawnHandle, SpawnWhenReady, SpawnWhenReadyWith,
    Supervising, TaskGroup, TryNext, TrySpawnWhenReady, TrySpawnWhenReadyWith, Trying, WaitForAll, discarding_group,
    gather, group, supervised_group, try_group,
};
pub use children::{SpawnOptions, TaskError};
pub use coroutine::{
    ContextScheduler, CurrentAllocator, DefaultContext, FromEnv, InAllocator, Inline, LocalTask, LocalTaskFuture,
    LocalTaskOperation, Providing, Task, TaskAllocator, TaskBuilder, TaskContext, TaskFuture, TaskOperation,
};
pub use current::{base_priority, current, priority};
pub use deadline::{DeadlineExceeded, WithDeadline, deadline, time_left, with_deadline, with_timeout};
pub use escalation_handler::{WithEscalationHandler, with_escalation_handler};
pub use handle::{Handle, detach, detach_with};
pub use let_async::{AsyncLet, let_async};
pub use next_until::NextUntil;
pub use retry_with::{retry_with, retry_with_if};
pub use shield::{Shield, shield};
#[cfg(feature = "inspect")]
pub use strand::{Instrument, SetInstrumentError, set_instrument};
pub use strand::{TaskId, TaskRef};
pub use task_local::{TaskLocal, TaskLocalFuture};
#[cfg(feature = "inspect")]
pub use tree::dump_all;
pub use tree::{TaskActivity, TaskNode, TaskState, TaskTree, TaskWait, dump};
#[cfg(feature = "inspect")]
pub use watchdog::{Watchdog, watch};

pub use crate::Priority;
pub use crate::factories::continuation::{Continuation, ContinuationOperation, ContinuationSender, continuation};
pub use crate::factories::sleep::{Sleep, sleep, sleep_until};
pub use crate::factories::spawn_blocking::{SpawnBlocking, SpawnBlockingOperation, spawn_blocking};
pub use crate::factories::yield_now::{YieldNow, YieldOperation, YieldReceiver, yield_now};
pub use crate::report::{Report, reset_report_hook, set_report_hook};
pub use crate::scheduler::thread_pool::{Scope, scope};
pub use crate::stop::Reason;
