//! Asking work to stop: sources, tokens and callbacks.
//!
//! A *source* requests the stop, once. A *token* reads whether the stop was requested, and a *callback* is called when
//! it is. Work reads the token of its receiver's environment ([`Env::stop_token`](crate::Env::stop_token)). Work that
//! ends early because of a stop completes with `set_stopped`.
//!
//! | source | token | lives | allocates |
//! |---|---|---|---|
//! | [`InplaceStopSource`] | [`InplaceStopToken`], a borrow | where it is put | nothing |
//! | [`StopSource`] | [`SharedStopToken`], `'static` | until its last reference is released | once |
//! | none | [`NeverStop`] | | nothing; every check compiles away |
//!
//! Callbacks run on the thread that requests the stop, outside any lock. The callback of an operation may complete it.
//! The work which that resumes runs after the callback has returned, from the requester's loop. So a stop that passes
//! through many nested operations uses constant stack.

#[cfg(feature = "std")]
mod branch;
#[cfg(feature = "std")]
mod callback;
mod inplace;
#[cfg(feature = "std")]
mod reason;
mod registry;
#[cfg(feature = "std")]
mod relay;
#[cfg(feature = "alloc")]
mod shared;
mod slot;
mod token;

#[cfg(feature = "std")]
pub(crate) use branch::{Branch, BranchOwner, Fork};
#[cfg(feature = "std")]
pub use callback::{StopCallback, with_callback};
pub use inplace::InplaceStopSource;
#[cfg(feature = "std")]
pub use reason::Reason;
#[cfg(feature = "std")]
pub(crate) use registry::{Registry, StopEntry, Why};
#[cfg(feature = "std")]
pub(crate) use relay::{Relay, RelayOwner};
#[cfg(feature = "alloc")]
pub use shared::{SharedStopToken, StopSource};
pub use slot::StopSlot;
#[cfg(feature = "std")]
pub(crate) use token::private::Raw;
pub use token::{ErasedStopToken, InplaceStopToken, NeverStop, StopToken};
