//! The servers `kv` and `kv_tokio`, as processes. Everything is tested with each of them.

#[allow(dead_code, reason = "each test binary uses some of it")]
#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod client;
mod server;
mod shutdown;
mod soak;

/// Makes the tests of a module's functions, which take a [`Kind`](server::Kind).
macro_rules! for_each_server {
    ($($test:ident,)*) => {
        mod kv {
            $(#[test] fn $test() { super::$test(crate::server::Kind::Kv); })*
        }
        mod kv_own_pool {
            $(#[test] fn $test() { super::$test(crate::server::Kind::KvOwnPool); })*
        }
        mod kv_tokio {
            $(#[test] fn $test() { super::$test(crate::server::Kind::KvTokio); })*
        }
    };
}
use for_each_server;
