//! The service `bank` as a process, and clients of all kinds.

#[allow(dead_code, reason = "each test binary uses some of it")]
#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod requests;
mod server;
mod shutdown;
