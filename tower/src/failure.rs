//! The failures of requests, and what the client gets for them.

use std::error::Error;
use std::fmt;

use bowline::Panic;
use bowline::task::Reason;

/// The reason with which the layer cancels a request whose client has left: its response future was dropped.
///
/// ```
/// use bowline::prelude::*;
/// use bowline_tower::CLIENT_LEFT;
///
/// /// What a handler can ask during its clean-up.
/// fn client_has_left() -> bool {
///     task::cancellation_reason() == Some(CLIENT_LEFT)
/// }
/// assert!(!client_has_left(), "there is no task here");
/// ```
pub const CLIENT_LEFT: Reason = Reason::Custom("the client has left");

/// The reason why a request has no response of the service.
///
/// The response future returns it in a [`RequestError`], or as the response that
/// [`answer_failures`](crate::TaskLayer::answer_failures) makes of it.
///
/// ```
/// use bowline_tower::Failure;
///
/// fn status(failure: &Failure) -> u16 {
///     match failure {
///         Failure::DeadlineExceeded => 504,
///         Failure::Closed | Failure::NoRoom | Failure::Cancelled(_) => 503,
///         _ => 500,
///     }
/// }
/// assert_eq!(status(&Failure::DeadlineExceeded), 504);
/// assert_eq!(Failure::Closed.to_string(), "server takes no more requests");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The deadline has passed, of the request or of the server's task. A response that the handler still returns is dropped.
    DeadlineExceeded,
    /// The request was cancelled with the server's group, and its handler has returned no response.
    Cancelled(Reason),
    /// The handler has awaited a sender that stopped, though the request was not cancelled.
    Stopped,
    /// The handler has panicked. The server and its other requests are not affected.
    Panicked(Panic),
    /// The request was refused: the scope is closed, or its group is cancelled or has ended.
    Closed,
    /// The request was refused: the service was called without being ready while the limit was reached, or the limit is zero.
    NoRoom,
    /// The request was refused: there was no memory for its task.
    OutOfMemory,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::DeadlineExceeded => f.write_str("deadline exceeded"),
            Failure::Cancelled(reason) => write!(f, "request was cancelled: {reason}"),
            Failure::Stopped => f.write_str("handler was stopped"),
            Failure::Panicked(panic) => write!(f, "handler {panic}"),
            Failure::Closed => f.write_str("server takes no more requests"),
            Failure::NoRoom => f.write_str("limit of requests is reached"),
            Failure::OutOfMemory => f.write_str("out of memory"),
        }
    }
}

impl Error for Failure {}

/// The error of a [`TaskService`](crate::TaskService): that of the service inside, or a [`Failure`] of the request's task.
///
/// ```
/// use bowline_tower::{Failure, RequestError};
///
/// let error: RequestError<std::io::Error> = Failure::DeadlineExceeded.into();
/// assert_eq!(error.to_string(), "deadline exceeded");
/// assert!(matches!(error.failure(), Some(Failure::DeadlineExceeded)));
/// ```
#[derive(Debug)]
pub enum RequestError<E> {
    /// The service inside has returned this error.
    Service(E),
    /// The request has no response of the service.
    Failed(Failure),
}

impl<E> RequestError<E> {
    /// Returns the failure, or `None` for an error of the service.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            RequestError::Service(_) => None,
            RequestError::Failed(failure) => Some(failure),
        }
    }
}

impl<E> From<Failure> for RequestError<E> {
    fn from(failure: Failure) -> Self {
        RequestError::Failed(failure)
    }
}

impl<E: fmt::Display> fmt::Display for RequestError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Service(error) => error.fmt(f),
            RequestError::Failed(failure) => failure.fmt(f),
        }
    }
}

impl<E: Error + 'static> Error for RequestError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            RequestError::Service(error) => error.source(),
            RequestError::Failed(failure) => failure.source(),
        }
    }
}
