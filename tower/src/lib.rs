//! A [tower] layer that runs each request as a task of [bowline], in the server's scope.
//!
//! Without it, a server drops the future of a request when the client leaves. The handler then ends at an arbitrary `.await`, and no part
//! of the program waits for what it leaves behind. With it, the handler is a task: it is *cancelled with a reason*, cleans up, and the
//! server's end awaits it.
//!
//! ```
//! use bowline::prelude::*;
//! use bowline_tower::{CLIENT_LEFT, Requests};
//! use std::convert::Infallible;
//! use std::sync::atomic::{AtomicBool, Ordering};
//! use std::time::Duration;
//! use tower::{Layer, Service, service_fn};
//!
//! static BEGUN: AtomicBool = AtomicBool::new(false);
//! static ROLLED_BACK: AtomicBool = AtomicBool::new(false);
//!
//! /// A handler with an asynchronous clean-up.
//! async fn transfer(_amount: u32) -> Result<&'static str, Infallible> {
//!     BEGUN.store(true, Ordering::Relaxed);
//!     // The statements of a transaction. A cancellation ends the wait for them.
//!     let statements = Task::new(async { task::sleep(Duration::from_secs(60)).await });
//!     let Ok(committed) = statements.stopped_as_option().await;
//!     if committed.is_none() {
//!         assert_eq!(task::cancellation_reason(), Some(CLIENT_LEFT));
//!         task::shield(async {
//!             task::sleep(Duration::from_millis(1)).await; // Tell the database.
//!             ROLLED_BACK.store(true, Ordering::Relaxed);
//!         })
//!         .await;
//!     }
//!     Ok("done")
//! }
//!
//! #[bowline_tokio::main]
//! async fn main() {
//!     task::discarding_group(async |server| {
//!         let requests = Requests::new(&server).limit(64);
//!         let layer = requests.layer().timeout(Duration::from_secs(120));
//!         let mut service = layer.layer(service_fn(transfer));
//!         let response = service.call(100);
//!         while !BEGUN.load(Ordering::Relaxed) {
//!             task::yield_now().await;
//!         }
//!         drop(response); // The client leaves.
//!     })
//!     .await;
//!     // The group has awaited the request.
//!     assert!(ROLLED_BACK.load(Ordering::Relaxed));
//! }
//! ```
//!
//! | to | use |
//! |---|---|
//! | make a group of a server's task the scope of its requests | [`Requests::new`] |
//! | bound the requests in flight: `poll_ready` is pending while the limit is reached | [`Requests::limit`] |
//! | make a layer for tower's `ServiceBuilder` or axum's `Router` | [`Requests::layer`] |
//! | give each request a deadline | [`TaskLayer::timeout`] |
//! | choose the priority, the scheduler and the name of the tasks | [`TaskLayer::options`], [`TaskLayer::name_requests`] |
//! | turn a failure into a response | [`TaskLayer::answer_failures`] |
//! | refuse requests | [`Requests::close`], or dropping it |
//! | cancel the requests | [`cancel_all_for`](bowline::task::TaskGroup::cancel_all_for) of the group |
//!
//! # What ends a request
//!
//! | event | the client gets | the request |
//! |---|---|---|
//! | the handler returns | its response | ends after its children |
//! | the client leaves: the response future is dropped | (it has left) | is cancelled with [`CLIENT_LEFT`] |
//! | the client leaves before the request has begun | (it has left) | is dropped without a start |
//! | the deadline passes | [`Failure::DeadlineExceeded`], at once | is cancelled with [`Reason::Deadline`](bowline::task::Reason::Deadline) |
//! | the group is cancelled | the handler's response, or [`Failure::Cancelled`] | is cancelled with the group's reason |
//! | the handler panics | [`Failure::Panicked`] | has ended; the server continues |
//! | the handler panics after the client has left | (it has left) | the same; the panic is [reported](bowline::task::Report::ChildPanic) |
//! | the scope is closed, or its group is cancelled or over | [`Failure::Closed`] | is not begun |
//!
//! A cancelled request ends by itself: at its next `.await`, unless a [`shield`](bowline::task::shield) or a [cancellation
//! handler](bowline::task::with_cancellation_handler) protects that. It is in flight until then, and so are its children. The group
//! awaits it.
//!
//! # What is not part of a request
//!
//! - The call of the service inside, and its `poll_ready`: they run where `call` and `poll_ready` are called. The future is the task.
//! - The body of a response. The server sends it after the handler has returned. A body that streams is dropped when the client leaves,
//!   as without the layer. To make it part of the scope, let it read from a channel that a child of the group fills.
//! - Layers outside of this one. A layer that depends on the polling thread, such as a tracing span, belongs inside.
//!
//! The chapter "I/O and the rest of the ecosystem" of bowline's book has an axum server with this layer.
//!
//! [bowline]: https://docs.rs/bowline
//! [tower]: https://docs.rs/tower

#![forbid(unsafe_code)]

mod admission;
mod exchange;
mod failure;
mod layer;
mod policy;
mod request;
mod requests;
mod response;
mod service;
mod sync;

pub use self::failure::{CLIENT_LEFT, Failure, RequestError};
pub use self::layer::TaskLayer;
pub use self::policy::{AsError, AsResponse, Named, OnFailure, RequestName, Unnamed};
pub use self::requests::Requests;
pub use self::response::ResponseFuture;
pub use self::service::TaskService;
