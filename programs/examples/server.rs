//! A server: requests run as children of one group, each with its own time limit, until no more requests arrive.
//!
//! The requests arrive through a channel, so the example needs no network. With a socket the loop is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use bowline::prelude::*;

struct Request {
    path: &'static str,
    answer: Sender<&'static str>,
}

/// The state that all requests share.
#[derive(Default)]
struct Server {
    served: AtomicUsize,
    failed: AtomicUsize,
}

impl Server {
    /// Serves requests until the channel closes. Returns after the last answer.
    async fn run(self: Arc<Self>, requests: Receiver<Request>) {
        // A discarding group frees each child as soon as it ends. At the limit, requests wait in the bounded channel, which
        // slows their senders down.
        task::discarding_group(async move |group| {
            group.set_limit(64);
            // A request is received only when there is room for it. Ends when the channel closes, or with a cancellation.
            while group.ready().await {
                let Ok(request) = requests.recv().await else { break };
                group.spawn(self.clone().handle(request));
            }
        })
        .await;
    }

    async fn handle(self: Arc<Self>, request: Request) {
        let limit = Duration::from_millis(20);
        let text = match task::with_timeout(limit, respond(request.path)).await {
            Ok(text) => {
                self.served.fetch_add(1, Ordering::Relaxed);
                text
            }
            // The response was cancelled with its children. Other requests are not affected.
            Err(DeadlineExceeded) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                "503"
            }
        };
        // The client may have given up.
        let _ = request.answer.send(text).await;
    }
}

/// Computes a response. A request may have children, which inherit its deadline.
async fn respond(path: &'static str) -> &'static str {
    let page = task::let_async(async move {
        if path == "/slow" {
            task::sleep(Duration::MAX).await;
        }
        "200"
    });
    let user = task::let_async(async { "ada" });
    match user.await {
        "ada" => page.await,
        _ => "403",
    }
}

fn main() {
    let server = Arc::new(Server::default());
    let (requests, incoming) = async_channel::bounded(16);
    let running = task::detach(server.clone().run(incoming));

    let clients = Task::new(async move {
        task::group(async |clients| {
            for number in 0..1000 {
                let path = if number == 500 { "/slow" } else { "/" };
                let requests = requests.clone();
                clients.spawn(async move {
                    let (answer, answered) = async_channel::bounded(1);
                    requests.send(Request { path, answer }).await.expect("the server runs");
                    answered.recv().await.expect("every request is answered")
                });
            }
            let mut unavailable = 0;
            while let Some(answer) = clients.next().await {
                unavailable += usize::from(answer == "503");
            }
            unavailable
        })
        .await
        // The last sender of requests is dropped here, which closes the channel and ends the server.
    });
    let unavailable = sync_wait(clients).unwrap();
    task::block_on(running).expect("the server neither panics nor is cancelled");

    let (served, failed) = (&server.served, &server.failed);
    println!("{served:?} requests were served, {failed:?} took too long");
    assert_eq!(served.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed), 1000);
    assert_eq!(failed.load(Ordering::Relaxed), unavailable);
    assert!(unavailable >= 1);
}
