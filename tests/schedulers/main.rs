//! The schedulers: run loop, pool, timer, inline, and type-erased ones.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod hosted;
mod infallible_schedulers;
mod inline_scheduler;
mod join;
mod run_loop;
mod spawn_blocking;
mod task_scheduler;
mod thread_pool;
mod thread_pool_build;
mod thread_pool_children;
mod thread_pool_end;
mod thread_pool_global;
mod thread_pool_priorities;
mod thread_pool_reactor;
mod thread_pool_slot;
mod timer;
