//! A server: any number of requests come and go in one group, each with its own limit in time, until it is told to end.
//!
//! The requests come through a channel, so that the example needs no network; with a socket the loop is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use bowline::prelude::*;
use bowline::task::{DeadlineExceeded, Task};

struct Request {
    path: &'static str,
    answer: Sender<&'static str>,
}

/// What every request is handled with.
#[derive(Default)]
struct Server {
    served: AtomicUsize,
    failed: AtomicUsize,
}

impl Server {
    /// Takes requests until there are no more, and returns when the last was answered.
    async fn run(self: Arc<Self>, requests: Receiver<Request>) {
        // A discarding group frees each child as soon as it has ended. A limit keeps a flood of requests in the channel,
        // where whoever sends them notices.
        task::discarding_group(async move |group| {
            group.set_limit(64);
            while let Ok(request) = requests.recv().await {
                group.spawn_when_ready(self.clone().handle(request)).await;
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
            // What took too long was cancelled, with all that it had begun, and nobody else was.
            Err(DeadlineExceeded) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                "503"
            }
        };
        // Who does not wait for the answer does not get it.
        let _ = request.answer.send(text).await;
    }
}

/// The work. One request may have children of its own: they inherit its deadline.
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
        // The last sender goes here: there are no more requests, and the server ends.
    });
    let unavailable = sync_wait(clients).unwrap();
    task::block_on(running).expect("it neither panics nor is cancelled");

    let (served, failed) = (&server.served, &server.failed);
    println!("{served:?} requests were served, {failed:?} took too long");
    assert_eq!(served.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed), 1000);
    assert_eq!(failed.load(Ordering::Relaxed), unavailable);
    assert!(unavailable >= 1);
}
