//! The tasks of the service, from the first signal handler to the last connection.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use bowline::prelude::*;
use bowline_programs::signals::Signals;
use bowline_programs::sockets::{self, AcceptErrors};
use bowline_tokio::HyperTimer;
use bowline_tower::Requests;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::ledger::Ledger;
use crate::{Options, demo, routes};

/// The time at the end for roll-backs, and for clients to take their last answers.
const LAST: Duration = Duration::from_secs(2);

/// How the service has ended.
pub(crate) struct End {
    /// The name of the signal that has ended it, or that it was the demonstration.
    pub(crate) cause: &'static str,
    /// The number of connections that were accepted.
    pub(crate) connections: u64,
    /// The number of tasks that have not ended, which is zero.
    pub(crate) tasks_left: usize,
}

/// Serves until a signal ends the service. Returns after the last request and the last connection have ended.
pub(crate) async fn run(options: Options, ledger: Arc<Ledger>) -> Result<End, String> {
    // Before anything else, so that no signal is lost from here on.
    let mut signals = Signals::install().map_err(|error| format!("cannot handle signals: {error}"))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener = sockets::listen(address);
    let listener = listener.map_err(|error| format!("cannot listen at {address}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("listening on http://{address}");

    let me = task::current();
    let tree = || me.as_ref().map(|me| me.tree());
    let print_tree = || eprint!("{}", tree().map_or_else(String::new, |tree| tree.to_string()));
    let accepted = Arc::new(AtomicU64::new(0));
    // Two groups in one task. The connections are awaited last, since they write the answers to the requests.
    let cause = task::discarding_group(async |connections| {
        task::discarding_group(async |handlers| {
            let requests = Requests::new(&handlers).limit(options.max_requests);
            let app = routes::router(&options, ledger.clone(), &requests);
            let accept = accept(listener, app, options.clone(), accepted.clone());
            connections.spawn_with(SpawnOptions::new().name("accept"), accept);

            let (cause, late) = if options.is_demo {
                ("the demonstration", demo::run(address, &ledger).await)
            } else {
                (signals.stop(&print_tree).await, None)
            };
            let end = async {
                // The end of the connections begins: none is accepted, and each ends after the request that it is serving.
                requests.close();
                connections.cancel_all_for(Reason::Custom(cause));
                // Requests have some time. After it they are cancelled, which rolls their transactions back.
                if task::with_timeout(options.grace, handlers.wait_for_all())
                    .await
                    .is_err()
                {
                    handlers.cancel_all_for(Reason::Custom(cause));
                    handlers.wait_for_all().await;
                }
                if let Some(late) = late {
                    demo::print("a late one", late).await;
                }
                connections.wait_for_all().await;
            };
            tokio::select! {
                () = end => {}
                again = signals.stop(&print_tree) => {
                    eprintln!("bank: stopped at once by a second {again}");
                    process::exit(1);
                }
            }
            cause
        })
        .await
    })
    .await;
    Ok(End {
        cause,
        connections: accepted.load(Relaxed),
        tasks_left: tree().map_or(0, |tree| tree.iter().map(|task| 1 + task.others()).sum::<usize>() - 1),
    })
}

/// Accepts connections until the service ends.
async fn accept(listener: TcpListener, app: Router, options: Options, accepted: Arc<AtomicU64>) {
    task::discarding_group(async |connections| {
        connections.set_limit(options.max_connections);
        let mut errors = AcceptErrors::new("bank");
        while connections.ready().await {
            let (socket, peer) = match listener.accept().await {
                Ok(connection) => connection,
                Err(error) => {
                    task::sleep(errors.pause(&error)).await;
                    continue;
                }
            };
            let number = accepted.fetch_add(1, Relaxed) + 1;
            let name = SpawnOptions::new().name(format!("connection {number} from {peer}"));
            connections.spawn_with(name, serve(socket, app.clone(), options.clone()));
        }
    })
    .await
}

/// Serves a connection until the client leaves, breaks the protocol, or is too slow.
///
/// When its lifetime or the service ends, the connection ends after the request that it is serving. A client that does not take the answer
/// delays this by a limited time.
async fn serve(socket: TcpStream, app: Router, options: Options) {
    let mut connection = http1::Builder::new()
        .timer(HyperTimer::new())
        .header_read_timeout(options.read_timeout)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(app));
    // A cancellation would stop the task where it waits, and the client would not get its answer. So the shield keeps it out, and a handler
    // tells of it.
    let (end, mut ended) = oneshot::channel::<()>();
    let on_cancellation = move || drop(end);
    let whole = async {
        let mut served = poll_fn(|cx| connection.poll_without_shutdown(cx));
        let limit = tokio::select! {
            _ = &mut served => return true,
            _ = &mut ended => options.grace + LAST,
            () = task::sleep(options.lifetime).into_future() => options.timeout + LAST,
        };
        Pin::new(&mut connection).graceful_shutdown();
        let served = poll_fn(|cx| connection.poll_without_shutdown(cx));
        task::with_timeout(limit, served).await.is_ok()
    };
    // An error is one of the client's. It has ended the connection, after an answer if it was not HTTP, and concerns no other.
    if task::with_cancellation_handler(on_cancellation, task::shield(whole)).await {
        let _ = sockets::linger(connection.into_parts().io.into_inner()).await;
    }
}
