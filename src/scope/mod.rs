//! Scopes for senders: work is started without waiting for each piece, and joined together.
//!
//! A [`CountingScope`] counts the work started in it. Its [`join`](Scope::join) is a sender that completes when all of
//! it has ended. So no spawned work is lost, though no handle to it exists.
//!
//! ```
//! use bowline::prelude::*;
//! use bowline::scheduler::ThreadPool;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! let pool = ThreadPool::global().scheduler();
//! let scope = CountingScope::new();
//! let served = Arc::new(AtomicUsize::new(0));
//! for _ in 0..10 {
//!     let served = served.clone();
//!     scope.spawn(starts_on(pool, just_from(move || served.fetch_add(1, Ordering::Relaxed)).then(drop)));
//! }
//! let answer = scope.spawn_future(starts_on(pool, just(6)).then(|x| x * 7));
//! assert_eq!(sync_wait(answer).unwrap(), 42);
//!
//! sync_wait(scope.join()).unwrap();
//! assert_eq!(served.load(Ordering::Relaxed), 10);
//! ```
//!
//! | | starts | returns | allocates |
//! |---|---|---|---|
//! | [`spawn(sender)`](Scope::spawn) | now | whether the scope accepted it | 1 |
//! | [`spawn_future(sender)`](Scope::spawn_future) | now | a sender of the result | 1 |
//! | [`associate(sender)`](Scope::associate) | when the result is started | the sender, associated with the scope | |
//!
//! [`SimpleCountingScope`] has no stop source. A [`ScopeToken`] is a handle that spawns work, and neither closes nor
//! joins the scope.

mod associate;
mod join;
mod kind;
mod panics;
#[allow(clippy::module_inception, reason = "the file is named for the type in it")]
mod scope;
mod spawn;
mod spawn_future;
mod state;
mod token;

pub use associate::Associated;
pub use join::Join;
pub use kind::{Kind, WithStop, WithoutStop};
pub use scope::{CountingScope, Scope, SimpleCountingScope};
pub use spawn::NoValue;
pub use spawn_future::SpawnFuture;
pub use token::ScopeToken;
