//! Functions that make senders.

#[cfg(feature = "std")]
pub(crate) mod continuation;
#[cfg(feature = "alloc")]
mod from_future;
mod just;
mod just_error;
mod just_from;
mod just_stopped;
mod never;
mod read_env;
#[cfg(feature = "std")]
pub(crate) mod sleep;
#[cfg(feature = "std")]
pub(crate) mod spawn_blocking;
#[cfg(feature = "std")]
pub(crate) mod yield_now;

#[cfg(feature = "alloc")]
pub use from_future::{FromFuture, from_future};
pub(crate) use just::ReadyOperation;
pub use just::{Just, just};
pub use just_error::{JustError, just_error};
pub use just_from::{JustFrom, just_from};
pub use just_stopped::{JustStopped, just_stopped};
pub use never::{Never, never};
pub use read_env::{Get, Query, ReadEnv, StopRequested, read_env};
