//! [bowline]'s tasks with [tokio]'s sockets, timers and runtime.
//!
//! ```
//! use bowline::prelude::*;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! #[bowline_tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     task::group(async |group| {
//!         // Children run on tokio's threads, in parallel. Their sockets and timers work there.
//!         group.spawn(async move {
//!             let (mut socket, _) = listener.accept().await?;
//!             socket.write_all(b"hello").await
//!         });
//!         let mut greeting = String::new();
//!         TcpStream::connect(address).await?.read_to_string(&mut greeting).await?;
//!         assert_eq!(greeting, "hello");
//!         Ok(())
//!     })
//!     .await
//! }
//! ```
//!
//! | to | use |
//! |---|---|
//! | run a program's `main` as a task on tokio's threads | [`#[bowline_tokio::main]`](macro@main), or [`block_on`] |
//! | run tasks on the threads of a runtime that exists | [`TokioScheduler`] |
//! | use tokio's sockets and timers on a pool of bowline's | [`IoPool`] |
//! | use those of a runtime that exists on a pool of bowline's | [`pool()`], or [`inside`] |
//! | connect tokio's cancellation with bowline's | `StopFollowing` and `with_cancellation_token`, of the feature `cancellation-token` |
//! | run hyper's connections and timers | `GroupExecutor`, `DetachedExecutor` and `HyperTimer`, of the feature `hyper` |
//!
//! The chapter "I/O and the rest of the ecosystem" of bowline's book says where the children of tasks run in each case.
//!
//! [bowline]: https://docs.rs/bowline
//! [tokio]: https://docs.rs/tokio

#![forbid(unsafe_code)]

mod io_pool;
mod main_function;
mod pool;
mod scheduler;

#[cfg(feature = "cancellation-token")]
mod cancellation;
#[cfg(feature = "hyper")]
mod hyper;

#[cfg(feature = "hyper")]
pub use self::hyper::{DetachedExecutor, GroupExecutor, HyperTimer};
/// Runs an `async fn main` as a [`Task`](bowline::task::Task) on the threads of a new tokio runtime.
///
/// The runtime has all drivers that tokio is built with: I/O and time. The function's future is `Send`, because it moves between
/// the threads. Children of groups run there too. A returned `Result` is reported as in a plain `main`.
///
/// | option | default | meaning |
/// |---|---|---|
/// | `flavor = "multi_thread"` | yes | tokio's threads run the tasks in parallel |
/// | `flavor = "current_thread"` | | the main thread runs everything |
/// | `threads = 4` | one for each processor | the number of tokio's threads |
///
/// ```
/// use bowline::prelude::*;
/// use std::time::Duration;
///
/// #[bowline_tokio::main(threads = 2)]
/// async fn main() {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     assert!(task::current().is_some());
/// }
/// ```
///
/// The function takes no parameters and is not generic; it may have any name. The program that uses it depends on `bowline-tokio`
/// under that name.
#[cfg(feature = "macros")]
pub use bowline_macros::tokio_main as main;
#[cfg(feature = "cancellation-token")]
pub use cancellation::{StopFollowing, with_cancellation_token};
pub use io_pool::IoPool;
pub use main_function::{Main, block_on};
pub use pool::{inside, pool};
pub use scheduler::TokioScheduler;

/// Runs the code of the book's chapter.
#[cfg(doctest)]
#[doc = include_str!("../../docs/io.md")]
pub mod book {}

/// Runs the code of the page for users of tokio.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from-tokio.md")]
pub mod coming_from_tokio {}
