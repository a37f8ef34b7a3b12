//! Structured concurrency.

pub use crate::Priority;
pub use crate::scheduler::thread_pool::{Scope, scope};
