//! Tasks: awaits, schedulers, and queries of the current task.

#[path = "../common/mod.rs"]
mod common;

mod await_allocations;
mod await_send;
mod awaited_again;
mod cancellation;
mod cancellation_handler;
mod continuation;
mod current;
mod deadline;
mod detach;
mod dropped_in_flight;
mod foreign_executors;
mod foreign_futures;
mod frame_memory;
mod hostile_futures;
mod local_task;
mod macros;
mod moved_futures;
mod panics_in_completions;
mod priority;
mod schedule_future;
mod shield;
mod sleep;
mod task;
mod task_allocator;
mod task_context;
mod task_hop;
mod task_local;
mod yield_now;
