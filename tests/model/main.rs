//! Models of every race between threads, explored with `loom`, one file per structure.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --test model --target-dir target/loom
//! ```
//!
//! Every model lists the outcomes it must see, and fails if it sees others or misses one. Data that threads hand over is in
//! cells that `loom` watches, so a missing ordering is found even if the outcome is right.
#![cfg(loom)]

mod affine;
#[path = "await.rs"]
mod awaits;
mod bulk;
mod cancellation;
mod child_queue;
mod continuation;
mod current;
mod foreign;
mod from_future;
mod group;
mod hop;
mod hosted;
mod injector;
mod inside;
mod memory;
mod priority;
mod reactor;
mod relay;
mod ring;
mod run_loop;
mod schedule;
mod scope;
mod shared;
mod slab;
mod slot;
mod spare;
mod spawn_blocking;
mod stop;
mod support;
mod task;
mod task_scheduler;
mod tether;
mod thread_pool;
mod timer;
mod when_all;
mod with_stop_token;
