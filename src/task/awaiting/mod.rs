//! Awaiting senders, in tasks and in other executors.
//!
//! This layer is above `strand`. It turns senders into futures, and knows nothing of the types of tasks.
//!
//! # Key types
//!
//! - [`SenderFuture`] is the future behind `.await`. Its first poll decides which of three ways it takes.
//! - A sender that completes inside `start` runs on the stack: `inline`.
//! - A sleep of a task, and an await of nothing, need no operation: `in_place`. Neither does a hop: `schedule`.
//! - In a task, the operation lives in an [`AwaitBlock`] of the frame's memory, with an [`AwaitState`].
//! - Elsewhere, and with wakers of other crates, it lives in a block on the heap: [`foreign`].
//! - [`TaskEnv`] is the environment that the sender sees, and [`TaskToken`] the stop token in it.
//!
//! # Who may access what, and when
//!
//! | what | accessed by |
//! |---|---|
//! | the stage of a future | the code that polls or drops the future |
//! | the operation and the result of an await | its completion, until `done`; then the future; or the frame, if the future is gone |
//! | the queue of a foreign block | the thread that holds its lock |
//!
//! # States
//!
//! An await is *started*, then *done* when the sender has completed and no stop is being passed on. A future that is dropped before
//! that sets *gone* and asks the sender to stop: the await is an orphan, which the frame destroys once it is done.
//!
//! # Why it is sound
//!
//! - The frame counts the await until it is done. So the frame, its memory and the context of the await outlive the operation.
//! - The future holds a reference of the frame. So the block is valid for the future after the frame is done.
//! - `done` is stored with release by the last of the completion and the stop that is passed on. The party that destroys the operation
//!   loads it with acquire.
//! - A future that is polled in another task than the one it began in panics, and touches nothing.

mod await_block;
mod await_sender;
mod await_state;
pub(super) mod awaitable;
pub(super) mod environment;
pub(super) mod foreign;
mod in_place;
mod inline;
mod receiver;
mod schedule;

use self::await_block::AwaitBlock;
pub use self::await_sender::{SenderFuture, ValueFuture};
pub(super) use self::await_sender::{conclude, sent_elsewhere};
use self::await_state::AwaitState;
pub use self::await_state::TaskToken;
pub use self::environment::TaskEnv;
pub(super) use self::foreign::{Foreign, LocalHome};
pub use self::in_place::{NeverFuture, SleepFuture};
use self::inline::run_inline;
pub use self::schedule::ScheduleFuture;
