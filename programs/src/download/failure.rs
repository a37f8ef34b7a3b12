//! Why a download has failed.

use std::fmt;
use std::io;

use bowline::prelude::*;
use hyper::StatusCode;

/// The error of a download.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The server cannot be reached.
    Connect(io::Error),
    /// The connection has ended too soon, or the answer is not HTTP.
    Http(hyper::Error),
    /// The request cannot be written.
    Request(hyper::http::Error),
    /// The answer is not a file.
    Status(StatusCode),
    /// The server sends nothing.
    Stalled,
    /// The file is larger than this number of bytes.
    TooLarge(u64),
    /// The file cannot be written.
    File(io::Error),
    /// The time for this download was not enough.
    Deadline,
    /// The download was cancelled.
    Cancelled(Option<Reason>),
    /// The download has not begun.
    NotStarted,
}

impl Failure {
    /// Returns whether another attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Failure::Connect(_) | Failure::Http(_) | Failure::Stalled => true,
            Failure::Status(status) => {
                let try_later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
                status.is_server_error() || try_later.contains(status)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(error) => write!(f, "cannot connect: {error}"),
            Failure::Http(error) => {
                write!(f, "{error}")?;
                // hyper's text does not contain the cause.
                std::error::Error::source(error).map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            Failure::Request(error) => write!(f, "{error}"),
            Failure::Status(status) => write!(f, "the server answered {status}"),
            Failure::Stalled => f.write_str("the server sends nothing"),
            Failure::TooLarge(limit) => write!(f, "larger than {limit} bytes"),
            Failure::File(error) => write!(f, "cannot write the file: {error}"),
            Failure::Deadline => f.write_str("deadline exceeded"),
            Failure::Cancelled(None) => f.write_str("cancelled"),
            Failure::Cancelled(Some(reason)) => write!(f, "cancelled: {reason}"),
            Failure::NotStarted => f.write_str("not started"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        Failure::Http(error)
    }
}

impl From<hyper::http::Error> for Failure {
    fn from(error: hyper::http::Error) -> Self {
        Failure::Request(error)
    }
}
