//! The vocabulary: senders, receivers, operations, and the types that pass between them.
//!
//! Nothing here needs `std` or `alloc`.

pub(crate) mod child;
mod completes;
#[cfg(feature = "std")]
pub(crate) mod current;
pub(crate) mod demand;
pub(crate) mod dismantle;
pub(crate) mod env;
mod identity;
#[cfg(feature = "alloc")]
pub(crate) mod in_place;
pub(crate) mod native;
mod operation;
mod outcome;
mod panic;
pub(crate) mod port;
mod priority;
pub(crate) mod progress;
pub(crate) mod receiver;
mod scheduler;
#[allow(clippy::module_inception, reason = "the file is named for the trait in it")]
mod sender;
pub(crate) mod stage;
mod transfer;
pub(crate) mod unwind;

pub use completes::Completes;
#[doc(hidden)]
pub use env::EnvDoor;
pub use env::{EmptyEnv, Env, Patch, Patched, With, WithScheduler, WithStopToken};
pub use identity::Identity;
#[doc(hidden)]
pub use native::Native;
pub use operation::Operation;
#[cfg(feature = "alloc")]
pub(crate) use operation::start;
pub use outcome::{Completion, Outcome};
pub use panic::Panic;
pub use priority::Priority;
pub use receiver::Receiver;
pub use scheduler::{NoSchedule, NoScheduler, Scheduler};
pub use sender::Sender;
pub use transfer::{Job, Transfer};
