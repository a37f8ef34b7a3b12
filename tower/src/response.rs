//! The response future: the client's side of a request.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::Failure;
use crate::exchange::Exchange;
use crate::policy::OnFailure;

/// The response of a [`TaskService`](crate::TaskService). Works in every executor.
///
/// It is ready as soon as the handler has returned, or with a [`Failure`]. It is not the request: that is a task of its own.
///
/// Dropping it before it is ready means that the client has left. The request is cancelled with
/// [`CLIENT_LEFT`](crate::CLIENT_LEFT), and ends by itself. Dropping it later, or forgetting it, does not affect the request.
///
/// # Panics
///
/// When it is polled again after it has returned the response.
#[must_use = "dropping the future of a response cancels the request"]
pub struct ResponseFuture<T, E, A> {
    client: Client<Result<T, E>>,
    on_failure: A,
}

enum Client<T> {
    Waiting(Arc<Exchange<T>>),
    /// The request was not spawned.
    Refused(Failure),
    Over,
}

impl<T, E, A> ResponseFuture<T, E, A> {
    pub(crate) fn of_task(exchange: Arc<Exchange<Result<T, E>>>, on_failure: A) -> Self {
        ResponseFuture {
            client: Client::Waiting(exchange),
            on_failure,
        }
    }

    pub(crate) fn refused(failure: Failure, on_failure: A) -> Self {
        ResponseFuture {
            client: Client::Refused(failure),
            on_failure,
        }
    }
}

// No field is pinned.
impl<T, E, A> Unpin for ResponseFuture<T, E, A> {}

impl<T, E, A: OnFailure<T, E>> Future for ResponseFuture<T, E, A> {
    type Output = Result<T, A::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let answer = match &this.client {
            Client::Waiting(exchange) => Some(ready!(exchange.poll(cx))),
            _ => None,
        };
        let answer = match (answer, mem::replace(&mut this.client, Client::Over)) {
            (Some(answer), _) => answer,
            (None, Client::Refused(failure)) => Err(failure),
            _ => panic!("a `ResponseFuture` was polled again after it had given its result"),
        };
        Poll::Ready(match answer {
            Ok(output) => output.map_err(A::service_failed),
            Err(failure) => this.on_failure.request_failed(failure),
        })
    }
}

impl<T, E, A> Drop for ResponseFuture<T, E, A> {
    fn drop(&mut self) {
        if let Client::Waiting(exchange) = &self.client {
            exchange.leave();
        }
    }
}

impl<T, E, A> fmt::Debug for ResponseFuture<T, E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.client {
            Client::Waiting(_) => "waiting",
            Client::Refused(_) => "refused",
            Client::Over => "over",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
