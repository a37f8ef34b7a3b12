// These link definitions come before those of the README, and so take precedence over them.
#![doc = "[The book]: book"]
#![doc = "[getting started]: book::getting_started"]
#![doc = "[the concepts]: book::concepts"]
#![doc = "[schedulers]: book::schedulers"]
#![doc = "[tasks]: book::tasks"]
#![doc = "[structured concurrency]: book::structured_concurrency"]
#![doc = "[I/O]: book::io"]
#![doc = "[coming from tokio]: book::coming_from_tokio"]
#![doc = "[where every task waits]: book::structured_concurrency#finding-what-hangs"]
#![doc = "[Programs]: book::io#programs"]
#![doc = "[every algorithm]: book::algorithms"]
#![doc = "[writing your own]: book::writing_your_own"]
#![doc = "[Performance]: book::performance"]
#![doc = "[Conformance]: book::conformance"]
#![doc = "[changelog]: book::changelog"]
#![doc = "[contributing]: book::contributing"]
#![doc = "[MIT]: https://opensource.org/license/mit"]
#![doc = "[Apache-2.0]: https://www.apache.org/licenses/LICENSE-2.0"]
#![doc = ""]
#![doc = include_str!("../README.md")]
#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod adaptors;
#[cfg(doc)]
pub mod book;
#[cfg(feature = "inspect")]
mod coarse_clock;
pub mod consumers;
pub mod factories;
mod memory;
mod opaque;
#[cfg(feature = "std")]
mod report;
pub mod scheduler;
#[cfg(feature = "alloc")]
pub mod scope;
pub mod sender;
pub mod stop;
mod sync;
#[cfg(feature = "std")]
pub mod task;

pub(crate) use opaque::opaque;

#[cfg(feature = "std")]
pub use adaptors::TimeoutError;
pub use adaptors::{starts_on, when_all, when_any};
#[cfg(feature = "alloc")]
pub use adaptors::{when_all_iter, when_any_iter};
/// Runs an `async fn main` as a [local task](task::LocalTask) on a run loop of the main thread, by [`task::block_on`].
///
/// It may await any sender and any future. Use [`ThreadPool::global`](scheduler::ThreadPool::global) for work on other
/// threads. A returned `Result` is reported as in a plain `main`.
///
/// ```
/// use bowline::prelude::*;
/// use bowline::scheduler::ThreadPool;
///
/// #[bowline::main]
/// async fn main() -> Result<(), std::num::ParseIntError> {
///     let pool = ThreadPool::global().scheduler();
///     let parse = starts_on(pool, just_from(|| "42".parse::<i32>()));
///     let Ok(parsed) = parse.await;
///     assert_eq!(parsed?, 42);
///     Ok(())
/// }
/// ```
///
/// Children of the function, and other work on the global pool, have one thread for each processor. An option sets another
/// number:
///
/// ```standalone_crate
/// use bowline::scheduler::ThreadPool;
///
/// #[bowline::main(threads = 3)]
/// async fn main() {
///     assert_eq!(ThreadPool::global().threads(), 3);
/// }
/// ```
///
/// The function takes no parameters and is not generic; it may have any name.
///
/// # Panics
///
/// Like [`task::block_on`]. With `threads`, if the system refuses the threads, or if there is a global pool already with another
/// number of threads.
#[cfg(feature = "macros")]
pub use bowline_macros::main;
/// Runs an `async fn` test as a [local task](task::LocalTask) on a run loop of the test's thread, by [`task::block_on`].
///
/// Otherwise it is a `#[test]`: `#[should_panic]`, `#[ignore]` and a returned `Result` work. It takes no options, since the tests
/// of a program share the global pool.
///
/// ```
/// use bowline::prelude::*;
///
/// #[bowline::test]
/// async fn one_and_one() {
///     let Ok(sum) = just(1).then(|one| one + 1).await;
///     assert_eq!(sum, 2);
/// }
/// ```
#[cfg(feature = "macros")]
pub use bowline_macros::test;
#[cfg(feature = "std")]
pub use consumers::{Prepared, WaitSlot, prepare, sync_wait};
#[cfg(feature = "alloc")]
pub use consumers::{execute, start_detached, submit};
#[cfg(feature = "alloc")]
pub use factories::from_future;
pub use factories::{Get, Query, StopRequested, just, just_error, just_from, just_stopped, never, read_env};
#[cfg(feature = "std")]
pub use scheduler::thread_pool::join;
pub use sender::{
    Completes, Completion, EmptyEnv, Env, Identity, Job, NoScheduler, Operation, Outcome, Panic, Patch, Patched,
    Priority, Receiver, Scheduler, Sender, Transfer, With, WithScheduler, WithStopToken,
};

/// Internals that the models test.
#[cfg(loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::memory::model::*;
    pub use crate::scheduler::thread_pool::model::*;
    pub use crate::scheduler::timer::model::*;
}

/// The names that most programs use: traits, factories, combinators, consumers, tasks, groups, deadlines, a pool and a stop
/// source.
///
/// It is meant to be imported whole: `use bowline::prelude::*`.
pub mod prelude {
    #[cfg(feature = "alloc")]
    pub use crate::adaptors::BoxedSender;
    #[cfg(feature = "std")]
    pub use crate::adaptors::RetryPolicy;
    #[cfg(feature = "std")]
    pub use crate::scheduler::ThreadPool;
    #[cfg(feature = "alloc")]
    pub use crate::scope::{CountingScope, SimpleCountingScope};
    #[cfg(feature = "alloc")]
    pub use crate::stop::StopSource;
    pub use crate::stop::StopToken;
    #[cfg(feature = "std")]
    pub use crate::task::{
        self, DeadlineExceeded, Reason, SpawnOptions, Task, TaskGroup, group, spawn_blocking, try_group, with_deadline,
        with_timeout,
    };
    pub use crate::{
        Env, Get, Outcome, Priority, Receiver, Scheduler, Sender, StopRequested, With, WithScheduler, WithStopToken,
        just, just_error, just_from, just_stopped, never, read_env, starts_on, when_all, when_any,
    };
    #[cfg(feature = "std")]
    pub use crate::{TimeoutError, WaitSlot, prepare, sync_wait};
    #[cfg(feature = "alloc")]
    pub use crate::{execute, from_future, start_detached, submit, when_all_iter, when_any_iter};
}
