//! An axum server whose handler holds a connection of a pool, and whose clients are killed.
//!
//! The handler runs a transaction. Each statement waits at a gate that the test controls. So the test kills the client, lets the deadline
//! pass, or shuts the server down while the handler waits at a chosen statement.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bowline::prelude::*;
use bowline::task::{Reason, TaskGroup, TaskRef};
use bowline_tokio::block_on;
use bowline_tower::{CLIENT_LEFT, Failure, RequestError, Requests, TaskLayer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower::ServiceBuilder;

use crate::common::*;

/// A connection to a database. It is dirty while it has an open transaction.
#[derive(Debug, Default)]
struct Connection {
    is_dirty: AtomicBool,
}

/// A pool that takes connections back in whatever state they are, and counts the dirty ones.
#[derive(Debug)]
struct Pool {
    idle: Mutex<VecDeque<Connection>>,
    room: Arc<Semaphore>,
    dirty: AtomicUsize,
}

impl Pool {
    fn new(connections: usize) -> Arc<Pool> {
        Arc::new(Pool {
            idle: Mutex::new((0..connections).map(|_| Connection::default()).collect()),
            room: Arc::new(Semaphore::new(connections)),
            dirty: AtomicUsize::new(0),
        })
    }

    /// Waits for a connection.
    async fn get(self: &Arc<Pool>) -> Pooled {
        self.room.acquire().await.unwrap().forget();
        Pooled {
            connection: self.idle.lock().unwrap().pop_front(),
            pool: self.clone(),
        }
    }

    fn idle(&self) -> usize {
        self.idle.lock().unwrap().len()
    }
}

/// A connection that is in use.
#[derive(Debug)]
struct Pooled {
    connection: Option<Connection>,
    pool: Arc<Pool>,
}

impl Pooled {
    fn set_dirty(&self, is_dirty: bool) {
        self.connection.as_ref().unwrap().is_dirty.store(is_dirty, SeqCst);
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let connection = self.connection.take().unwrap();
        if connection.is_dirty.swap(false, SeqCst) {
            self.pool.dirty.fetch_add(1, SeqCst);
        }
        self.pool.idle.lock().unwrap().push_back(connection);
        self.pool.room.add_permits(1);
    }
}

/// The place where a statement waits until the test lets it pass.
#[derive(Debug)]
struct Arrival {
    statement: &'static str,
    task: Option<TaskRef>,
    pass: oneshot::Sender<()>,
}

#[derive(Clone, Debug)]
struct App {
    pool: Arc<Pool>,
    arrivals: mpsc::UnboundedSender<Arrival>,
    reasons: Arc<Mutex<Vec<Option<Reason>>>>,
}

impl App {
    /// Runs a statement: tells the test of it, and waits.
    async fn run(&self, statement: &'static str) {
        let (pass, passed) = oneshot::channel();
        let task = task::current();
        let _ = self.arrivals.send(Arrival { statement, task, pass });
        // A gate that was dropped is open.
        let _ = passed.await;
    }
}

/// Transfers money with a connection of the pool. A cancellation rolls the transaction back.
async fn transfer(State(app): State<App>) -> &'static str {
    app.run("wait for the pool").await;
    let connection = Arc::new(app.pool.get().await);
    let (statements, used) = (app.clone(), connection.clone());
    let transaction = Task::new(async move {
        used.set_dirty(true);
        for statement in ["begin", "debit", "credit"] {
            statements.run(statement).await;
        }
        // A commit that was sent is awaited.
        task::shield(statements.run("commit")).await;
        used.set_dirty(false);
    });
    let Ok(committed) = transaction.stopped_as_option().await;
    if committed.is_none() {
        app.reasons.lock().unwrap().push(task::cancellation_reason());
        task::shield(app.run("rollback")).await;
        connection.set_dirty(false);
    }
    app.run("notify").await;
    "transferred"
}

/// The answer to a failed request.
fn answer(failure: Failure) -> Response {
    let status = match failure {
        Failure::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Failure::Closed | Failure::Cancelled(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, failure.to_string()).into_response()
}

/// The test's side of a server.
struct Server {
    group: TaskGroup<()>,
    requests: Requests,
    address: SocketAddr,
    app: App,
    arrivals: mpsc::UnboundedReceiver<Arrival>,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Starts a server with one connection in its pool.
    async fn start(
        group: &TaskGroup<()>,
        requests: Requests,
        layer: impl FnOnce(TaskLayer, Router<App>) -> Router<App>,
    ) -> Server {
        let (sender, arrivals) = mpsc::unbounded_channel();
        let app = App {
            pool: Pool::new(1),
            arrivals: sender,
            reasons: Arc::default(),
        };
        let router = layer(requests.layer(), Router::new().route("/transfer", get(transfer)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = axum::serve(listener, router.with_state(app.clone())).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        Server {
            group: group.clone(),
            requests,
            address,
            app,
            arrivals,
            stop,
            serving: tokio::spawn(serve.into_future()),
        }
    }

    /// Connects a client, and sends its request.
    async fn connect(&self) -> TcpStream {
        request(self.address).await
    }

    /// Waits for the next statement.
    async fn arrival(&mut self) -> Arrival {
        self.arrivals.recv().await.unwrap()
    }

    /// Lets every statement pass until no request runs. The pool is then complete, and was never given a dirty connection.
    async fn drain(&mut self) -> Vec<&'static str> {
        let (mut passed, group) = (Vec::new(), self.group.clone());
        let mut ended = std::pin::pin!(group.wait_for_all().into_future());
        loop {
            tokio::select! {
                biased;
                Some(arrival) = self.arrivals.recv() => {
                    passed.push(arrival.statement);
                    let _ = arrival.pass.send(());
                }
                _ = &mut ended => break,
            }
        }
        assert_eq!((self.app.pool.idle(), self.app.pool.dirty.load(SeqCst)), (1, 0));
        passed
    }

    /// Ends the server gracefully.
    async fn stop(self) {
        drop(self.stop);
        self.serving.await.unwrap().unwrap();
    }
}

/// Connects a client, and sends its request.
async fn request(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    client
        .write_all(b"GET /transfer HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    client
}

/// Reads the whole response of a client.
async fn read(mut client: TcpStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    text
}

/// Runs a test with a server in a task on tokio's threads.
fn with_server<F>(
    limit: usize,
    layer: impl FnOnce(TaskLayer, Router<App>) -> Router<App> + Send + 'static,
    test: impl FnOnce(Server) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    in_time(move || {
        block_on(&multi_thread(2), async move {
            task::discarding_group(async move |group| {
                let requests = Requests::new(&group).limit(limit);
                let server = Server::start(&group, requests, layer).await;
                test(server).await;
            })
            .await;
        });
    });
}

fn plain(layer: TaskLayer, router: Router<App>) -> Router<App> {
    router.layer(layer.answer_failures(answer))
}

#[test]
fn a_request_is_served() {
    with_server(8, plain, async |mut server| {
        let client = server.connect().await;
        for statement in ["wait for the pool", "begin", "debit", "credit", "commit", "notify"] {
            let arrival = server.arrival().await;
            assert_eq!(arrival.statement, statement);
            assert!(arrival.task.is_some());
            arrival.pass.send(()).unwrap();
        }
        let response = read(client).await;
        assert!(
            response.starts_with("HTTP/1.1 200") && response.ends_with("transferred"),
            "{response}"
        );
        assert!(server.drain().await.is_empty());
        server.stop().await;
    });
}

#[test]
fn the_connection_is_clean_wherever_the_client_is_killed() {
    with_server(8, plain, async |mut server| {
        let mut killed_at = Vec::new();
        'kill: for suspension in 0.. {
            let client = server.connect().await;
            for _ in 0..suspension {
                let arrival = server.arrival().await;
                arrival.pass.send(()).unwrap();
                if arrival.statement == "notify" {
                    // There is no other statement to be killed at.
                    assert!(read(client).await.starts_with("HTTP/1.1 200"));
                    assert!(server.drain().await.is_empty());
                    break 'kill;
                }
            }
            let arrival = server.arrival().await;
            let statement = arrival.statement;
            drop(client);
            let request = arrival.task.clone().unwrap();
            eventually("the cancellation", || request.is_cancelled()).await;
            // The cancellation ends the wait for a statement, unless that is shielded.
            let mut pass = Some(arrival.pass);
            if statement == "commit" {
                pass.take().unwrap().send(()).unwrap();
            }
            let after = server.drain().await;
            drop(pass);
            killed_at.push((statement, after));
        }
        assert_eq!(
            killed_at,
            [
                ("wait for the pool", vec![]),
                // After the shielded clean-up, the next `.await` ends the handler.
                ("begin", vec!["rollback", "notify"]),
                ("debit", vec!["rollback", "notify"]),
                ("credit", vec!["rollback", "notify"]),
                ("commit", vec!["notify"]),
                ("notify", vec![]),
            ]
        );
        let reasons = std::mem::take(&mut *server.app.reasons.lock().unwrap());
        assert_eq!(reasons, [Some(CLIENT_LEFT); 3]);
        server.stop().await;
    });
}

#[test]
fn the_clean_up_itself_is_not_cut_short() {
    with_server(8, plain, async |mut server| {
        let client = server.connect().await;
        server.arrival().await.pass.send(()).unwrap();
        let begin = server.arrival().await;
        drop(client);
        let rollback = server.arrival().await;
        assert_eq!((begin.statement, rollback.statement), ("begin", "rollback"));
        // A second cancellation, of the whole server, during the clean-up.
        server.group.cancel_all_for(Reason::Custom("shutdown"));
        assert_eq!(server.app.pool.idle(), 0);
        rollback.pass.send(()).unwrap();
        server.drain().await;
        assert_eq!(*server.app.reasons.lock().unwrap(), [Some(CLIENT_LEFT)]);
        server.stop().await;
    });
}

#[test]
fn without_the_layer_the_connection_is_dirty() {
    with_server(
        8,
        |_, router| router,
        async |mut server| {
            let client = server.connect().await;
            server.arrival().await.pass.send(()).unwrap();
            let begin = server.arrival().await;
            assert_eq!(begin.statement, "begin");
            drop(client);
            let pool = server.app.pool.clone();
            eventually("the end of the handler", || pool.idle() == 1).await;
            assert_eq!(pool.dirty.load(SeqCst), 1);
            server.stop().await;
        },
    );
}

#[test]
fn a_client_that_waits_for_a_connection_may_leave() {
    with_server(8, plain, async |mut server| {
        let holds = server.connect().await;
        server.arrival().await.pass.send(()).unwrap();
        let begin = server.arrival().await;
        // The second request waits in the pool itself.
        let waits = server.connect().await;
        let arrival = server.arrival().await;
        arrival.pass.send(()).unwrap();
        let request = arrival.task.unwrap();
        drop(waits);
        eventually("the end of the request", || request.is_finished()).await;
        begin.pass.send(()).unwrap();
        let passed = server.drain().await;
        assert_eq!(passed, ["debit", "credit", "commit", "notify"]);
        assert!(read(holds).await.starts_with("HTTP/1.1 200"));
        server.stop().await;
    });
}

#[test]
fn a_shutdown_in_the_midst_cancels_cleans_up_and_answers() {
    const SHUTDOWN: Reason = Reason::Custom("shutdown");
    with_server(8, plain, async |mut server| {
        let working = server.connect().await;
        server.arrival().await.pass.send(()).unwrap();
        let _begin = server.arrival().await;
        let waiting = server.connect().await;
        let _wait = server.arrival().await;
        server.group.cancel_all_for(SHUTDOWN);
        // The second has nothing to clean up.
        let refused = read(waiting).await;
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        assert!(refused.ends_with("request was cancelled: shutdown"), "{refused}");
        // The first rolls back. A request that comes meanwhile is refused.
        let rollback = server.arrival().await;
        assert_eq!(rollback.statement, "rollback");
        let late = read(server.connect().await).await;
        assert!(
            late.starts_with("HTTP/1.1 503") && late.ends_with("takes no more requests"),
            "{late}"
        );
        rollback.pass.send(()).unwrap();
        assert!(read(working).await.starts_with("HTTP/1.1 503"));
        server.drain().await;
        assert_eq!(*server.app.reasons.lock().unwrap(), [Some(SHUTDOWN)]);
        server.stop().await;
    });
}

#[test]
fn a_closed_scope_lets_its_requests_finish() {
    with_server(8, plain, async |mut server| {
        let working = server.connect().await;
        let wait = server.arrival().await;
        server.requests.close();
        let late = read(server.connect().await).await;
        assert!(late.starts_with("HTTP/1.1 503"), "{late}");
        wait.pass.send(()).unwrap();
        server.drain().await;
        assert!(read(working).await.starts_with("HTTP/1.1 200"));
        server.stop().await;
    });
}

#[test]
fn the_deadline_answers_and_the_connection_comes_back_clean() {
    let limited = |layer: TaskLayer, router: Router<App>| {
        router.layer(layer.timeout(Duration::from_millis(20)).answer_failures(answer))
    };
    with_server(8, limited, async |mut server| {
        // The gates stay closed until the client has its answer.
        let (mut arrivals, response) = (Vec::new(), read(server.connect().await));
        let mut response = std::pin::pin!(response);
        let response = loop {
            tokio::select! {
                response = &mut response => break response,
                arrival = server.arrival() => match arrival.statement {
                    "wait for the pool" => arrival.pass.send(()).unwrap_or_default(),
                    _ => arrivals.push(arrival),
                },
            }
        };
        assert!(response.starts_with("HTTP/1.1 504"), "{response}");
        assert!(response.ends_with("deadline exceeded"), "{response}");
        drop(arrivals);
        server.drain().await;
        // On a slow machine the deadline may pass before the transaction has begun.
        let reasons = server.app.reasons.lock().unwrap().clone();
        assert!(reasons.is_empty() || reasons == [Some(Reason::Deadline)], "{reasons:?}");
        server.stop().await;
    });
}

#[test]
fn a_request_waits_until_another_has_ended() {
    with_server(1, plain, async |mut server| {
        let first = server.connect().await;
        server.arrival().await.pass.send(()).unwrap();
        let begin = server.arrival().await;
        assert_eq!(begin.statement, "begin");
        let second = server.connect().await;
        // The first client leaves, and its request is in flight until it has rolled back.
        drop(first);
        let rollback = server.arrival().await;
        assert_eq!(rollback.statement, "rollback");
        assert!(server.arrivals.try_recv().is_err());
        rollback.pass.send(()).unwrap();
        // The first one ends at its next `.await`.
        assert_eq!(server.arrival().await.statement, "notify");
        let next = server.arrival().await;
        assert_eq!(next.statement, "wait for the pool");
        assert_eq!((server.app.pool.idle(), server.app.pool.dirty.load(SeqCst)), (1, 0));
        next.pass.send(()).unwrap();
        server.drain().await;
        assert!(read(second).await.starts_with("HTTP/1.1 200"));
        server.stop().await;
    });
}

#[test]
fn errors_are_handled_by_a_layer_of_axums() {
    let handled = |layer: TaskLayer, router: Router<App>| {
        let handler = async |error: RequestError<Infallible>| (StatusCode::IM_A_TEAPOT, error.to_string());
        router.layer(ServiceBuilder::new().layer(HandleErrorLayer::new(handler)).layer(layer))
    };
    with_server(8, handled, async |mut server| {
        server.requests.close();
        let response = read(server.connect().await).await;
        assert!(response.starts_with("HTTP/1.1 418"), "{response}");
        assert!(response.ends_with("server takes no more requests"), "{response}");
        server.drain().await;
        server.stop().await;
    });
}

#[test]
fn clients_come_and_go_and_the_server_ends_in_the_midst() {
    const CLIENTS: u64 = 12;
    with_server(3, plain, async |mut server| {
        let address = server.address;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                tokio::spawn(async move {
                    // Some leave at once, some later, and some stay until they are answered.
                    for round in 0..30 {
                        let stream = request(address).await;
                        match (client + round) % 4 {
                            0 => read(stream).await.len(),
                            stays => {
                                tokio::time::sleep(Duration::from_micros(stays * 97 * (round % 5))).await;
                                0
                            }
                        };
                    }
                })
            })
            .collect();
        let mut served = 0;
        while served < 400 {
            let arrival = server.arrival().await;
            served += 1;
            // Every third statement takes a while.
            if served % 3 == 0 {
                tokio::time::sleep(Duration::from_micros(50)).await;
            }
            let _ = arrival.pass.send(());
        }
        server.group.cancel_all_for(Reason::Custom("shutdown"));
        server.drain().await;
        // The clients that stay are refused from now on.
        for client in clients {
            client.await.unwrap();
        }
        assert_eq!((server.app.pool.idle(), server.app.pool.dirty.load(SeqCst)), (1, 0));
        server.stop().await;
    });
}
