//! Scopes: closures that borrow, and work that is counted.

#[path = "../common/mod.rs"]
mod common;

mod counting_scope;
mod scope;
mod simple_counting_scope;
mod spawn_future;
