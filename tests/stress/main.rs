//! Seeded random work on everything at once, counted at the end.

#[path = "../common/mod.rs"]
mod common;

mod group_stress;
mod moved_futures;
mod scope_stress;
mod stress;
mod task_stress;
mod thread_pool_stress;
