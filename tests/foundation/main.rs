//! The foundation: environments, stop tokens, transfers, outcomes, and the guarantees of types.

#[path = "../common/mod.rs"]
mod common;

mod auto_traits;
mod drop_order;
mod env;
mod fresh_tokens;
mod outcome;
mod own_sender;
mod readme;
mod receiver_dropped;
mod sizes;
mod stop;
mod transfer;
mod variance;
