//! Functions that start a sender, and block for it or let it run on its own.

#[cfg(feature = "alloc")]
mod execute;
#[cfg(feature = "std")]
mod prepare;
#[cfg(feature = "alloc")]
mod start_detached;
#[cfg(feature = "alloc")]
mod submit;
#[cfg(feature = "std")]
mod sync_wait;

#[cfg(feature = "alloc")]
pub use execute::execute;
#[cfg(feature = "std")]
pub use prepare::{Prepared, WaitSlot, prepare};
#[cfg(feature = "alloc")]
pub use start_detached::start_detached;
#[cfg(feature = "alloc")]
pub use submit::submit;
#[cfg(feature = "std")]
pub use sync_wait::sync_wait;
