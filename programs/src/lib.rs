//! The parts of the programs that have tests of their own, or that several programs share.
//!
//! | module | for |
//! |---|---|
//! | [`arguments`] | command lines |
//! | [`signals`] | Ctrl-C, `SIGTERM` and `SIGUSR1` |
//! | [`sockets`] | listening, errors of `accept`, and the end of a connection |
//! | [`kv`] | the servers `kv` and `kv_tokio`: protocol, store and options |
//! | [`search`] | the program `search` |
//! | [`download`] | the program `download` |

pub mod arguments;
pub mod download;
pub mod kv;
pub mod search;
pub mod signals;
pub mod sockets;
