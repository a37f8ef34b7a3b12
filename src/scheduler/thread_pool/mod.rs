//! A work-stealing pool of threads.
//!
//! | file | what is in it |
//! |---|---|
//! | `pool.rs`, `builder.rs`, `affinity.rs` | the pool, how it is made and ended |
//! | `schedule.rs` | its scheduler, sender and operation |
//! | `join.rs`, `scope.rs` | fork-join of closures |
//! | `party.rs` | work that several workers take part in |
//! | `shared.rs` | what all workers share: push, raise |
//! | `seat.rs` | the states of seats and threads |
//! | `worker.rs` | the thread of a worker: its seat, its main loop |
//! | `push.rs`, `pick.rs`, `search.rs` | what a worker queues on its seat, runs next, and finds elsewhere |
//! | `block.rs`, `spare.rs` | what it does while it waits in a job: its seat goes to a spare thread |
//! | `entry.rs` | the nodes of the queues |
//! | `ring.rs` | the queue of one seat |
//! | `shelf.rs` | what was handed over to one seat together |
//! | `injector.rs` | the queues of all, one per priority |
//! | `idle/` | which threads search and sleep, and which has which seat |
//! | `model.rs` | all of this as the models in `tests/model/` see it |

mod affinity;
mod block;
mod builder;
mod entry;
mod idle;
mod injector;
mod join;
#[cfg(loom)]
pub(crate) mod model;
mod party;
mod pick;
mod pool;
mod push;
mod ring;
mod schedule;
mod scope;
mod search;
mod seat;
mod shared;
mod shelf;
mod spare;
mod worker;

pub use builder::{BuildError, ThreadPoolBuilder};
pub(crate) use entry::{Entry, EntryKind};
pub use join::join;
pub(crate) use party::Party;
pub use pool::ThreadPool;
pub use schedule::{PoolSchedule, PoolScheduler};
pub use scope::{Scope, scope};
pub(crate) use worker::Worker;
