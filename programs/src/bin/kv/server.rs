//! The tasks of the server, from the first signal handler to the last connection.

use std::net::SocketAddr;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bowline::prelude::*;
use bowline_programs::kv::{Options, Store};
use bowline_programs::signals::Signals;
use bowline_programs::sockets::{self, AcceptErrors};
use tokio::net::{TcpListener, TcpStream};

use crate::connection;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) store: Arc<Store>,
    connections: AtomicU64,
}

/// How the server has ended.
pub(crate) struct End {
    /// The name of the signal that has ended it.
    pub(crate) signal: &'static str,
    /// The number of connections that were accepted.
    pub(crate) connections: u64,
    /// The number of tasks that have not ended, which is zero.
    pub(crate) tasks_left: usize,
}

/// Serves until a signal ends the server. Returns after the last connection has ended.
pub(crate) async fn run(options: Options, store: Arc<Store>) -> Result<End, String> {
    // Before anything else, so that no signal is lost from here on. A signal that came earlier has killed the process, as it does by
    // default: nothing was promised to any client by then.
    let mut signals = Signals::install().map_err(|error| format!("cannot handle signals: {error}"))?;
    let listener = sockets::listen(options.address);
    let listener = listener.map_err(|error| format!("cannot listen at {}: {error}", options.address))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("listening on {address}");

    let shared = Arc::new(Shared {
        options,
        store,
        connections: AtomicU64::new(0),
    });
    let me = task::current();
    let tree = || me.as_ref().map(|me| me.tree());
    // With the feature `inspect` also where each task waits, and since when.
    let print_tree = || eprint!("{}", tree().map_or_else(String::new, |tree| tree.to_string()));
    let state = shared.clone();
    // A discarding group frees each child as soon as it has ended.
    let signal = task::discarding_group(async |server| {
        server.spawn_with(named("accept"), accept(listener, state.clone()));
        server.spawn_with(named("expiry"), remove_expired(state.store.clone()));
        let signal = signals.stop(&print_tree).await;
        // Each child stops at its `.await`. The group awaits them all, and with them the shielded writes of answers.
        server.cancel_all_for(Reason::Custom(signal));
        // A second Ctrl-C does not wait for slow peers. A tree tells which ones the end waits for.
        tokio::select! {
            () = server.wait_for_all() => {}
            again = signals.stop(&print_tree) => {
                eprintln!("kv: stopped at once by a second {again}");
                process::exit(1);
            }
        }
        signal
    })
    .await;
    Ok(End {
        signal,
        connections: shared.connections.load(Relaxed),
        tasks_left: tree().map_or(0, |tree| tree.iter().map(|task| 1 + task.others()).sum::<usize>() - 1),
    })
}

fn named(name: impl Into<std::borrow::Cow<'static, str>>) -> SpawnOptions {
    SpawnOptions::new().name(name)
}

/// Accepts connections until the server ends.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    task::discarding_group(async |connections| {
        connections.set_limit(shared.options.max_connections);
        let mut errors = AcceptErrors::new("kv");
        // Room first: a connection that cannot be served yet waits in the queue of the operating system, and costs nothing here.
        while connections.ready().await {
            let (socket, peer) = accept_one(&listener, &mut errors).await;
            let number = shared.connections.fetch_add(1, Relaxed) + 1;
            let shared = shared.clone();
            connections.spawn_with(named(format!("connection {number} from {peer}")), async move {
                // An error is one of the peer's. It has ended the connection, and concerns no other.
                let _ = connection::serve(socket, &shared).await;
            });
        }
    })
    .await
}

/// Accepts one connection. Errors are temporary: too many files are open, or the peer has left already.
async fn accept_one(listener: &TcpListener, errors: &mut AcceptErrors) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => task::sleep(errors.pause(&error)).await,
        }
    }
}

/// Frees the memory of expired keys, also while no command looks at them.
async fn remove_expired(store: Arc<Store>) {
    loop {
        task::sleep(Duration::from_secs(1)).await;
        store.remove_expired();
    }
}
