//! Awaiting: senders in tasks and in other executors.

mod await_block;
mod await_sender;
mod await_state;
pub(super) mod awaitable;
pub(super) mod environment;
pub(super) mod foreign;
mod inline;
mod schedule;

use self::await_block::AwaitBlock;
use self::await_sender::sent_elsewhere;
pub use self::await_sender::{SenderFuture, ValueFuture};
use self::await_state::AwaitState;
pub use self::await_state::TaskToken;
pub use self::environment::TaskEnv;
pub(super) use self::foreign::{Foreign, LocalHome, Noted};
use self::inline::run_inline;
pub use self::schedule::ScheduleFuture;
