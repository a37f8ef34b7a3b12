//! hyper's executor and timer traits.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline_tokio::{DetachedExecutor, GroupExecutor, HyperTimer, TokioScheduler, block_on};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn as client;
use hyper::rt::{Executor, Timer};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::common::*;

#[test]
fn a_group_awaits_and_cancels_what_its_executor_runs() {
    in_time(|| {
        let runtime = multi_thread(2);
        let ended = Arc::new(AtomicUsize::new(0));
        let counts = ended.clone();
        block_on(&runtime, async move {
            task::group(async |group| {
                let executor = GroupExecutor::new(&group);
                for _ in 0..3 {
                    let counts = counts.clone();
                    executor.execute(async move {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        assert_eq!(here(), "tokio-worker");
                        counts.fetch_add(1, SeqCst);
                    });
                }
            })
            .await;
        });
        assert_eq!(ended.load(SeqCst), 3);
        block_on(&runtime, async {
            task::group(async |group| {
                GroupExecutor::new(&group).execute(async { task::sleep(PATIENCE).await });
                group.cancel_all();
            })
            .await;
        });
    });
}

#[test]
fn a_scheduler_runs_what_its_executor_is_given() {
    in_time(|| {
        let runtime = multi_thread(1);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        DetachedExecutor::new(TokioScheduler::new(runtime.handle())).execute(async move {
            sender.send(here()).unwrap();
        });
        assert_eq!(runtime.block_on(receiver).unwrap(), "tokio-worker");
    });
}

#[test]
fn a_timer_sleeps_and_is_reset() {
    in_time(|| {
        let (runtime, timer) = (multi_thread(1), HyperTimer::new());
        let begun = Instant::now();
        block_on(&runtime, async move { timer.sleep(Duration::from_millis(5)).await });
        assert!(begun.elapsed() >= Duration::from_millis(5));
        // Outside of a task, and with another deadline than at first.
        let begun = Instant::now();
        runtime.block_on(async {
            let mut sleep = timer.sleep(PATIENCE);
            timer.reset(&mut sleep, begun + Duration::from_millis(5));
            sleep.await;
        });
        let slept = begun.elapsed();
        assert!(slept >= Duration::from_millis(5) && slept < PATIENCE);
    });
}

/// Answers a request with its body, after a while if the path says so.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    assert_eq!(here(), "tokio-worker");
    assert!(task::current().is_some());
    if request.uri().path() == "/slow" {
        task::sleep(Duration::from_millis(10)).await;
    }
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::new(body)))
}

#[test]
fn a_connection_of_http2_runs_its_streams_in_a_group() {
    in_time(|| {
        let runtime = multi_thread(2);
        let answers = block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            task::group(async |group| {
                let socket = TcpStream::connect(address).await.unwrap();
                let (accepted, _) = listener.accept().await.unwrap();
                // The timer makes it send pings meanwhile.
                let server = http2::Builder::new(GroupExecutor::new(&group))
                    .timer(HyperTimer::new())
                    .keep_alive_interval(Duration::from_millis(1))
                    .keep_alive_timeout(PATIENCE)
                    .serve_connection(TokioIo::new(accepted), service_fn(answer));
                group.spawn(async { server.await.unwrap() });
                let executor = GroupExecutor::new(&group);
                let (client, connection) = client::http2::handshake(executor, TokioIo::new(socket)).await.unwrap();
                group.spawn(async { connection.await.unwrap() });
                // The requests of one connection run at the same time.
                let requests = ["/slow", "/", "/slow"].map(|path| {
                    let mut client = client.clone();
                    task::let_async(async move {
                        let body = Full::new(Bytes::from(path));
                        let request = Request::post(format!("http://inn{path}")).body(body).unwrap();
                        let response = client.send_request(request).await.unwrap();
                        response.into_body().collect().await.unwrap().to_bytes()
                    })
                });
                let mut answers = Vec::new();
                for request in requests {
                    answers.push(request.await);
                }
                // The last client ends both sides, and so the group.
                drop(client);
                answers
            })
            .await
        });
        assert_eq!(answers, ["/slow", "/", "/slow"]);
    });
}

#[test]
fn a_cancelled_group_ends_the_streams_of_its_connection() {
    in_time(|| {
        let runtime = multi_thread(2);
        let (handling, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (handling.clone(), dropped.clone());
        let answer = block_on(&runtime, async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let (mut client, connection) = client::http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
                .await
                .unwrap();
            let connection = tokio::spawn(connection);
            let request = Request::get("http://inn/").body(Empty::<Bytes>::new()).unwrap();
            let answer = tokio::spawn(async move { client.send_request(request).await.map(drop) });
            task::group(async |group| {
                let stuck = service_fn(move |_| {
                    let (handling, dropped) = counts.clone();
                    async move {
                        let _drops = CountOnDrop(dropped);
                        handling.fetch_add(1, SeqCst);
                        pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
                    }
                });
                let server = http2::Builder::new(GroupExecutor::new(&group));
                let server = server.serve_connection(TokioIo::new(accepted), stuck);
                group.spawn(async { _ = server.await });
                while handling.load(SeqCst) == 0 {
                    task::yield_now().await;
                }
                group.cancel_all();
            })
            .await;
            // The connection was dropped with its group.
            let answer = answer.await.unwrap();
            _ = connection.await.unwrap();
            answer
        });
        assert!(answer.is_err());
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

/// Counts its drop.
struct CountOnDrop(Arc<AtomicUsize>);

impl Drop for CountOnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn hypers_time_limits_end_connections_of_silent_clients() {
    in_time(|| {
        let runtime = multi_thread(1);
        block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            task::group(async |group| {
                // A client that sends no header.
                let silent = TcpStream::connect(address).await.unwrap();
                let (accepted, _) = listener.accept().await.unwrap();
                let ended = http1::Builder::new()
                    .timer(HyperTimer::new())
                    .header_read_timeout(Duration::from_millis(5))
                    .serve_connection(TokioIo::new(accepted), service_fn(answer))
                    .await;
                assert!(ended.unwrap_err().is_timeout());
                drop(silent);
                // A client that says that it speaks the protocol, and then does not answer a ping.
                let mut silent = TcpStream::connect(address).await.unwrap();
                let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
                silent.write_all(&settings).await.unwrap();
                let (accepted, _) = listener.accept().await.unwrap();
                let ended = http2::Builder::new(GroupExecutor::new(&group))
                    .timer(HyperTimer::new())
                    .keep_alive_interval(Duration::from_millis(5))
                    .keep_alive_timeout(Duration::from_millis(5))
                    .serve_connection(TokioIo::new(accepted), service_fn(answer))
                    .await;
                assert!(ended.unwrap_err().is_timeout());
                drop(silent);
            })
            .await;
        });
    });
}
