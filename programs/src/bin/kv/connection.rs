//! One connection: reads requests, executes them, writes the answers.

use std::io::{self, ErrorKind};
use std::time::Duration;

use bowline::prelude::*;
use bowline_programs::kv::{Session, Step};
use bowline_programs::sockets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::Shared;

/// A connection that always has requests lets others run after so many rounds.
const ROUNDS: usize = 64;

/// Serves a connection until the peer leaves, is idle for too long, or breaks the protocol.
///
/// When the server ends, this task is cancelled. It is stopped where it waits for input: no request is executed half-way there. Answers to
/// requests that were executed are still written.
pub(crate) async fn serve(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let options = &shared.options;
    let mut session = Session::new(options);
    // Answers are written whole. So waiting for more to send would only delay them.
    socket.set_nodelay(true)?;
    for round in 1_usize.. {
        let step = session.execute(&shared.store);
        write(&mut socket, &mut session, options.write_timeout).await?;
        match step {
            Step::Read => match task::with_timeout(options.idle_timeout, socket.read_buf(session.input())).await {
                // The peer has closed the connection, perhaps in the middle of a request, or sends nothing.
                Ok(Ok(0)) | Err(DeadlineExceeded) => break,
                Ok(read) => _ = read?,
            },
            // The answers did not fit the buffer, and more requests wait.
            Step::Execute => task::yield_now().await,
            Step::Close => return sockets::linger(socket).await,
        }
        // On a pool of bowline's, a read that is ready does not suspend the task. This does, and is where a cancellation is seen.
        if round.is_multiple_of(ROUNDS) {
            task::yield_now().await;
        }
    }
    Ok(())
}

/// Writes the answers.
async fn write(socket: &mut TcpStream, session: &mut Session, limit: Duration) -> io::Result<()> {
    if session.output().is_empty() {
        return Ok(());
    }
    // Nearly always the system takes the answers at once. Nothing waits then, so there is nothing to limit or to protect.
    match socket.try_write(session.output()) {
        Ok(bytes) => session.written(bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    if !session.output().is_empty() {
        // These requests were executed, so the peer is told even if the server is ending: the shield keeps the cancellation out. The
        // deadline inside of it holds in every case. So a peer that takes no answers delays the end by this time at most.
        let write = task::with_timeout(limit, socket.write_all(session.output()));
        match task::shield(write).await {
            Ok(written) => written?,
            Err(deadline) => return Err(io::Error::new(ErrorKind::TimedOut, deadline)),
        }
        session.written(session.output().len());
    }
    Ok(())
}
