//! A server that imports nothing of bowline but the prelude.

use std::io;
use std::time::Duration;

use bowline::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SHUTDOWN: Reason = Reason::Custom("shutdown");

/// Accepts connections until it is cancelled.
async fn serve(listener: TcpListener) {
    task::discarding_group(async |connections: TaskGroup<()>| {
        connections.set_limit(100);
        while connections.ready().await {
            let Ok((socket, peer)) = listener.accept().await else {
                continue;
            };
            let options = SpawnOptions::new()
                .name(format!("connection from {peer}"))
                .priority(Priority::UserInitiated);
            connections.spawn_with(options, async move {
                let _ = echo(socket).await;
            });
        }
    })
    .await
}

/// Answers with what it gets, until the peer leaves or is silent for too long.
async fn echo(mut socket: TcpStream) -> io::Result<()> {
    let mut bytes = [0; 1024];
    loop {
        match with_timeout(Duration::from_secs(60), socket.read(&mut bytes)).await {
            Ok(Ok(0)) | Err(DeadlineExceeded) => return Ok(()),
            Ok(read) => socket.write_all(&bytes[..read?]).await?,
        }
    }
}

#[test]
fn a_server_needs_nothing_else() {
    let runtime = crate::common::multi_thread(2);
    let (answer, end) = bowline_tokio::block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        group(async |server| {
            server.spawn(async {
                let Ok(ended) = Task::new(serve(listener)).stopped_as_option().await;
                (ended, task::cancellation_reason())
            });
            client.write_all(b"knot").await.unwrap();
            let mut answer = [0; 4];
            client.read_exact(&mut answer).await.unwrap();
            server.cancel_all_for(SHUTDOWN);
            (answer, server.next().await)
        })
        .await
    });
    assert_eq!(&answer, b"knot");
    assert_eq!(end, Some((None, Some(SHUTDOWN))));
}
