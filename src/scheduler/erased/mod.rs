//! [`TaskScheduler`]: any infallible scheduler, type-erased.
//!
//! | file | contents |
//! |---|---|
//! | `scheduler.rs` | `TaskScheduler`: three words for a scheduler, or a pointer to a shared one, and a vtable |
//! | `vtable.rs` | the functions of a scheduler type and of its operation |
//! | `schedule.rs` | the sender and its operation, in one of two forms |
//! | `inner.rs` | the part that both forms share: the receiver, and the progress of the inner operation |
//! | `inline.rs`, `heap.rs` | the two forms: the inner operation in sixteen words, or in memory of its own |
//!
//! # Invariants
//!
//! - The words of a `TaskScheduler` hold a value of the vtable's type, or a pointer to a reference count with that
//!   value behind it. [`Words::fit`](crate::memory::Words::fit) of the vtable's layout decides which.
//! - The *room* of an operation has the layout of the vtable's operation type. `Progress` says whether it holds an
//!   operation. Only the thread that starts, completes or drops the outer operation accesses the room.
//! - The inner operation reports to a `Port` in the outer one, which erases the receiver's type. The outer operation
//!   outlives the inner one.
//!
//! # Stack
//!
//! An inline operation cannot contain another erased one, which does not fit, so it starts and completes directly. A
//! heap operation may contain any number of others. So its inner operation is started, completed and destroyed by jobs
//! of the driver, in constant stack.

#[cfg(feature = "alloc")]
mod heap;
mod inline;
mod inner;
mod schedule;
mod scheduler;
mod vtable;

pub use schedule::TaskSchedule;
pub use scheduler::TaskScheduler;
#[cfg(feature = "std")]
pub(crate) use scheduler::hop_to;
