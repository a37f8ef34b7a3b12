//! The layer, with plain services and with axum.

#[path = "../common/mod.rs"]
mod common;

mod axum;
mod end;
mod leaving;
mod readiness;
mod response;
