//! Asking work to stop: sources, tokens and callbacks.
//!
//! A *source* requests the stop, once; its *tokens* are asked about it, and a *callback* is told. Work sees the token
//! of its receiver's environment ([`Env::stop_token`](crate::Env::stop_token)) and completes with `set_stopped` when
//! it gives up because of it.
//!
//! | source | token | lives | allocates |
//! |---|---|---|---|
//! | [`InplaceStopSource`] | [`InplaceStopToken`], a borrow | where it is put | nothing |
//! | [`StopSource`] | [`SharedStopToken`], `'static` | as long as anyone holds it | once |
//! | none | [`NeverStop`] | | nothing; every check compiles away |
//!
//! Callbacks run on the thread that requests the stop, outside any lock. A callback that belongs to an operation may
//! complete it; what that resumes runs after the callback has returned, from the requester's own loop, so a stop that
//! travels through a hundred thousand nested operations takes the stack of one.

#[cfg(feature = "std")]
mod callback;
mod inplace;
mod registry;
#[cfg(feature = "std")]
mod relay;
#[cfg(feature = "alloc")]
mod shared;
mod slot;
mod token;

#[cfg(feature = "std")]
pub use callback::{StopCallback, with_callback};
pub use inplace::InplaceStopSource;
#[cfg(feature = "std")]
pub(crate) use registry::{Registry, StopEntry, Why};
#[cfg(feature = "std")]
pub(crate) use relay::Relay;
#[cfg(feature = "alloc")]
pub use shared::{SharedStopToken, StopSource};
pub use slot::StopSlot;
#[cfg(feature = "std")]
pub(crate) use token::private::Raw;
pub use token::{ErasedStopToken, InplaceStopToken, NeverStop, StopToken};
