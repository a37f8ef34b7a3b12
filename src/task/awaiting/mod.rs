//! Awaiting: senders in tasks and in other executors.

mod await_block;
pub(super) mod await_sender;
pub(super) mod await_state;
pub(super) mod awaitable;
pub(super) mod environment;
pub(super) mod foreign;
mod inline;
pub(super) mod schedule;
