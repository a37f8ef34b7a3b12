//! One attempt to download a file.

use std::future::IntoFuture;
use std::time::Duration;

use bowline::prelude::*;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1;
use hyper::header::{HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use indicatif::ProgressBar;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Failure, Job, Options};

/// Downloads a file under its partial name. Returns the number of bytes.
pub(super) async fn attempt(job: &Job, options: &Options, bar: &ProgressBar) -> Result<u64, Failure> {
    let (stall, limit) = (options.stall_timeout, options.max_size);
    let socket = within(stall, TcpStream::connect((job.host(), job.port()))).await?;
    let socket = socket.map_err(Failure::Connect)?;
    let (mut requests, connection) = http1::handshake(TokioIo::new(socket)).await?;
    // The connection moves bytes while this function waits for them. As a child bound to a variable it is cancelled where this function
    // is left, on every path, and awaited at the end of the task.
    let _connection = task::let_async(connection);
    let request = Request::get(job.path())
        .header(HOST, job.authority())
        .header(USER_AGENT, "bowline-download")
        .body(Empty::<Bytes>::new())?;
    let response = within(stall, requests.send_request(request)).await??;
    if !response.status().is_success() {
        return Err(Failure::Status(response.status()));
    }
    let mut body = response.into_body();
    if let Some(length) = body.size_hint().exact() {
        bar.set_length(length);
    }
    // A length that the server announces is enough to refuse it. Without one the bytes are counted as they come.
    if body.size_hint().lower() > limit {
        return Err(Failure::TooLarge(limit));
    }
    // Tokio creates the file on another thread. A cancellation must not leave that behind, for the file to appear after its removal.
    let file = task::shield(File::create(job.partial())).await;
    let mut file = file.map_err(Failure::File)?;
    let mut bytes = 0;
    // hyper gives an error if the body ends before its length.
    while let Some(frame) = within(stall, body.frame()).await? {
        if let Ok(data) = frame?.into_data() {
            bytes += data.len() as u64;
            if bytes > limit {
                return Err(Failure::TooLarge(limit));
            }
            file.write_all(&data).await.map_err(Failure::File)?;
            bar.set_position(bytes);
        }
    }
    file.flush().await.map_err(Failure::File)?;
    Ok(bytes)
}

/// Waits for the server, but not for ever. An outer deadline may end the wait sooner, and is then reported by its own future.
async fn within<F: IntoFuture>(stall: Duration, wait: F) -> Result<F::Output, Failure> {
    task::with_timeout(stall, wait).await.map_err(|_| Failure::Stalled)
}
