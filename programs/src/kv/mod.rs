//! A store of keys and values that speaks the protocol of Redis.
//!
//! This is what the servers `kv` and `kv_tokio` share: everything except sockets and tasks. A [`Session`] turns the bytes of a
//! connection into answers, without I/O. The servers move the bytes.

mod commands;
mod leftovers;
mod options;
mod protocol;
mod reply;
mod session;
mod snapshot;
mod store;

pub use leftovers::Leftovers;
pub use options::Options;
pub use protocol::{Decoder, ProtocolError, Request};
pub use session::{Session, Step};
pub use snapshot::{load, save};
pub use store::Store;
