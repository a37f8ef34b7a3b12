//! Children of a task: groups, single children, and the policies that await several.

#[path = "../common/mod.rs"]
mod common;

mod awaited;
mod child_handle;
mod gather;
mod group_send;
mod kept_memory;
mod let_async;
mod make_dinner;
mod named_child;
mod next_until;
mod product;
mod ready;
mod task_group;
mod task_group_cost;
mod task_group_end;
mod try_next;
