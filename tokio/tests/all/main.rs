//! bowline and tokio together.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
#[cfg(feature = "cancellation-token")]
mod cancellation;
#[cfg(feature = "hyper")]
mod hyper;
mod io_pool;
#[cfg(feature = "macros")]
mod main_attribute;
mod places;
mod pool;
mod prelude;
mod scheduler;
mod shutdown;
