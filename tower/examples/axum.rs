//! An axum service whose requests are tasks: `cargo run -p bowline-tower --example axum`.
//!
//! `curl localhost:3000/transfer/500` runs a transaction of 500 ms. Interrupt curl, ask for more than the two seconds of the deadline, or
//! end the service with Ctrl-C: the transaction is rolled back each time, and the service ends after that. With `--demo` the service is its
//! own client, and ends by itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bowline::prelude::*;
use bowline::task::Reason;
use bowline_tower::{Failure, Requests};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const SHUTDOWN: Reason = Reason::Custom("the service shuts down");

/// A database that counts its transactions.
#[derive(Default)]
struct Database {
    begun: AtomicUsize,
    committed: AtomicUsize,
    rolled_back: AtomicUsize,
}

impl Database {
    async fn commit(&self, duration: Duration) {
        self.begun.fetch_add(1, SeqCst);
        tokio::time::sleep(duration).await;
        self.committed.fetch_add(1, SeqCst);
    }

    async fn roll_back(&self) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.rolled_back.fetch_add(1, SeqCst);
    }
}

/// Commits a transaction, or rolls it back if the request is cancelled.
async fn transfer(State(database): State<Arc<Database>>, Path(milliseconds): Path<u64>) -> Response {
    let used = database.clone();
    let transaction = Task::new(async move { used.commit(Duration::from_millis(milliseconds)).await });
    // A cancellation drops the transaction where it waits, and is a value here.
    let Ok(committed) = transaction.stopped_as_option().await;
    if committed.is_some() {
        return "committed\n".into_response();
    }
    if let Some(reason) = task::cancellation_reason() {
        println!("rolling back: {reason}");
    }
    task::shield(database.roll_back()).await;
    (StatusCode::SERVICE_UNAVAILABLE, "rolled back\n").into_response()
}

/// The answer to a request without a response.
fn answer(failure: Failure) -> Response {
    let status = match failure {
        Failure::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Failure::Closed | Failure::Cancelled(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{failure}\n")).into_response()
}

#[bowline_tokio::main]
async fn main() -> io::Result<()> {
    let is_demo = std::env::args().any(|argument| argument == "--demo");
    let (port, timeout, grace) = match is_demo {
        true => (0, Duration::from_millis(500), Duration::from_millis(20)),
        false => (3000, Duration::from_secs(2), Duration::from_secs(1)),
    };
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    let database = Arc::new(Database::default());
    let state = database.clone();

    task::discarding_group(async move |server| {
        let requests = Requests::new(&server).limit(100);
        let layer = requests
            .layer()
            .timeout(timeout)
            .name_requests(|request: &Request| format!("{} {}", request.method(), request.uri().path()))
            .answer_failures(answer);
        let app = Router::new()
            .route("/transfer/{milliseconds}", get(transfer))
            .layer(layer)
            .with_state(state.clone());

        let (stop, stopped) = oneshot::channel::<()>();
        let serve = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let end = async {
            let last_client = match is_demo {
                true => Some(demo(address, &state).await?),
                false => {
                    tokio::signal::ctrl_c().await?;
                    None
                }
            };
            // No more requests. Those in flight have some time, and are then cancelled.
            requests.close();
            if task::with_timeout(grace, server.wait_for_all()).await.is_err() {
                server.cancel_all_for(SHUTDOWN);
            }
            if let Some(client) = last_client {
                print!("a late one: {}", read(client).await?);
            }
            drop(stop);
            Ok(())
        };
        tokio::try_join!(serve.into_future(), end)
    })
    .await?;

    // The group has ended, and with it every request.
    let count = |counter: &AtomicUsize| counter.load(SeqCst);
    println!(
        "{} transactions: {} committed, {} rolled back",
        count(&database.begun),
        count(&database.committed),
        count(&database.rolled_back)
    );
    Ok(())
}

/// A client that is served, one that leaves, one that meets the deadline, and one that is to meet the shutdown.
async fn demo(address: SocketAddr, database: &Database) -> io::Result<TcpStream> {
    print!("a short one: {}", read(request(address, 1).await?).await?);
    drop(begin(address, database).await?);
    print!("a long one: {}", read(request(address, 60_000).await?).await?);
    begin(address, database).await
}

/// Sends a request for a long transaction, and waits until that has begun.
async fn begin(address: SocketAddr, database: &Database) -> io::Result<TcpStream> {
    let before = database.begun.load(SeqCst);
    let client = request(address, 60_000).await?;
    for _ in 0..1000 {
        if database.begun.load(SeqCst) > before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(client)
}

/// Sends a request for a transaction.
async fn request(address: SocketAddr, milliseconds: u64) -> io::Result<TcpStream> {
    let mut client = TcpStream::connect(address).await?;
    let request = format!("GET /transfer/{milliseconds} HTTP/1.1\r\nhost: demo\r\nconnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await?;
    Ok(client)
}

/// Returns the body of the response.
async fn read(mut client: TcpStream) -> io::Result<String> {
    let mut response = String::new();
    client.read_to_string(&mut response).await?;
    Ok(response.rsplit("\r\n").next().unwrap_or_default().to_owned())
}
