//! A work-stealing pool of threads.
//!
//! [`ThreadPool`] is the owner, [`PoolScheduler`] the handle, and `PoolShared` the memory that all threads of the pool
//! share. Each worker has a *seat* with queues of its own. The *injector* is the queue that all workers share, with one
//! list for each priority. A job in these queues is an [`Entry`], or a *fork* of `join`.
//!
//! | file | contents |
//! |---|---|
//! | `pool.rs`, `builder.rs`, `affinity.rs` | the pool: how it is built, and how it ends |
//! | `schedule.rs` | its scheduler, sender and operation |
//! | `join.rs`, `scope.rs` | fork-join of closures |
//! | `party.rs` | a count of the workers that share a piece of work |
//! | `shared.rs` | the memory of a pool: push, raise, end |
//! | `seat.rs` | the states of seats and threads |
//! | `worker.rs` | the thread of a worker: its seat, its main loop |
//! | `push.rs`, `pick.rs`, `search.rs` | how a worker queues, picks and searches for jobs |
//! | `theft.rs` | whether a worker goes on stealing children |
//! | `block.rs`, `spare.rs` | a worker that blocks, and the spare thread that takes its seat |
//! | `blocking.rs` | closures that block: their queue and their threads |
//! | `entry.rs` | the items of the queues |
//! | `ring.rs` | the work-stealing deque of a seat |
//! | `slot.rs` | the newest entry of a seat |
//! | `child_queue.rs` | the children of tasks that were spawned on a seat |
//! | `biased.rs`, `barrier.rs` | the lock of these two, which is nearly free for the occupant of the seat. Task groups use it, too |
//! | `injector.rs` | the queues of all workers, one for each priority |
//! | `reactor.rs` | what one sleeping worker waits in: the user's source of events |
//! | `idle/` | which threads search and sleep, and which has which seat |
//! | `model.rs` | access for the models in `tests/model/` |

mod affinity;
pub(crate) mod barrier;
mod biased;
mod block;
mod blocking;
mod builder;
mod child_queue;
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
mod reactor;
mod ring;
mod schedule;
mod scope;
mod search;
mod seat;
mod shared;
mod slot;
mod spare;
mod theft;
mod worker;

pub(crate) use biased::{Biased, BiasedGuard};
pub(crate) use blocking::{BlockingEntry, BlockingPlace, Inserted, StopResult};
pub use builder::{BuildError, ThreadPoolBuilder};
pub(crate) use entry::{Entry, EntryKind};
pub(super) use entry::{EntryPlace, OwnedEntry};
pub(super) use injector::{Levels, Lists};
pub use join::join;
pub(crate) use party::Party;
pub use pool::ThreadPool;
pub(super) use pool::forward;
pub use reactor::Reactor;
pub(in crate::scheduler) use reactor::interrupt_other;
pub(crate) use reactor::without_interrupts;
pub(super) use schedule::raise_forwarded;
pub use schedule::{PoolSchedule, PoolScheduler};
pub use scope::{Scope, scope};
pub(crate) use worker::Worker;
