//! What servers have in common: listening, errors of `accept`, and the end of a connection.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How many connections may wait to be accepted. The system may have a lower limit of its own.
const BACKLOG: u32 = 1024;
/// How long to wait after an error that will not have gone at once.
const PAUSE: Duration = Duration::from_millis(100);
/// At most one error is printed in this time.
const QUIET: Duration = Duration::from_secs(60);
/// How long to read what a peer still sends after the last answer.
const LINGER: Duration = Duration::from_secs(1);

/// Listens at an address.
///
/// `TcpListener::bind` lets 128 connections wait to be accepted. The system ignores further ones, and their peers try again after seconds.
/// A server at its limit of connections needs more.
///
/// # Errors
///
/// Those of the system, such as that the port is in use.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A server that starts again does not wait until the system has forgotten the connections of the last one.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The errors of a listener, which do not end a server: it waits and goes on.
///
/// A process that has too many open files gets such an error until a connection ends. The connections that are open are served meanwhile, and
/// new ones wait in the queue of the operating system.
#[derive(Debug)]
pub struct AcceptErrors {
    program: &'static str,
    printed: Option<Instant>,
}

impl AcceptErrors {
    /// Makes the state of a listener that has had no error. The name of the program is part of what is printed.
    pub fn new(program: &'static str) -> Self {
        AcceptErrors { program, printed: None }
    }

    /// Returns how long to wait before the next attempt. Prints the error, unless one was printed within the last minute.
    pub fn pause(&mut self, error: &io::Error) -> Duration {
        // An error of one connection, whose peer has left already.
        if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) {
            return Duration::ZERO;
        }
        if self.is_to_print(Instant::now()) {
            eprintln!("{}: cannot accept a connection: {error}", self.program);
        }
        PAUSE
    }

    fn is_to_print(&mut self, now: Instant) -> bool {
        let is_quiet = self
            .printed
            .is_some_and(|printed| now.saturating_duration_since(printed) < QUIET);
        if !is_quiet {
            self.printed = Some(now);
        }
        !is_quiet
    }
}

/// Closes a connection whose peer may still be sending.
///
/// Closing a socket with unread input resets the connection, and the peer might never see the last answer. So this ends the
/// server's side first, and then reads what comes until the peer has closed its own, for a second at most.
///
/// # Errors
///
/// Those of the socket.
pub async fn linger(mut socket: TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    let mut ignored = [0; 4096];
    let drain = async {
        while socket.read(&mut ignored).await? > 0 {}
        Ok(())
    };
    task::with_timeout(LINGER, drain).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_printed_once_a_minute() {
        let mut errors = AcceptErrors::new("test");
        let begin = Instant::now();
        let is_printed =
            [0, 1, 59, 60, 61, 119, 120].map(|seconds| errors.is_to_print(begin + Duration::from_secs(seconds)));
        assert_eq!(is_printed, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn a_peer_that_has_left_costs_no_pause() {
        let mut errors = AcceptErrors::new("test");
        assert_eq!(errors.pause(&ErrorKind::ConnectionAborted.into()), Duration::ZERO);
        assert_eq!(errors.pause(&ErrorKind::OutOfMemory.into()), PAUSE);
    }
}
