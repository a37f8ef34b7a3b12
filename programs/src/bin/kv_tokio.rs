//! The server `kv`, written with tokio alone: the measure for `kv`, and something to compare it with.
//!
//! What `kv` has by its structure is written out here: a set of tasks, a token that every wait is raced with, permits, and the order in
//! which they end.

use std::io::{self, ErrorKind};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bowline_programs::arguments;
use bowline_programs::kv::{self, Leftovers, Options, Session, Step, Store};
use bowline_programs::signals::Signals;
use bowline_programs::sockets::{self, AcceptErrors};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const HELP: &str = "\
Usage: kv_tokio [options]

The server kv, written with tokio alone. Ctrl-C and SIGTERM end it after the
answers to all requests that were executed.

";

fn main() -> ExitCode {
    let help = format!("{HELP}{}", Options::HELP);
    match arguments::read(&help, Options::read).map(run) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("kv_tokio: {error}");
            ExitCode::FAILURE
        }
        Err(exit_code) => exit_code,
    }
}

fn run(options: Options) -> Result<(), String> {
    let store = Arc::new(Store::default());
    if let Some(path) = &options.save {
        kv::load(&store, path).map_err(|error| format!("cannot load {}: {error}", path.display()))?;
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    // The future of `block_on` runs on this thread. A task of its own runs on the runtime's threads, as in `kv`.
    let server = runtime.spawn(serve(options.clone(), store.clone()));
    let (signal, connections) = runtime.block_on(server).map_err(|error| error.to_string())??;
    drop(runtime);
    if let Some(path) = &options.save {
        kv::save(&store, path).map_err(|error| format!("cannot save {}: {error}", path.display()))?;
    }
    let (requests, keys) = (store.requests(), store.len());
    println!("stopped by {signal}: {connections} connections, {requests} requests, {keys} keys");
    if options.report {
        println!("{}", Leftovers::count(0));
    }
    Ok(())
}

struct Shared {
    options: Options,
    store: Arc<Store>,
    stop: CancellationToken,
    connections: AtomicU64,
}

async fn serve(options: Options, store: Arc<Store>) -> Result<(&'static str, u64), String> {
    let mut signals = Signals::install().map_err(|error| format!("cannot handle signals: {error}"))?;
    let listener = sockets::listen(options.address);
    let listener = listener.map_err(|error| format!("cannot listen at {}: {error}", options.address))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    println!("listening on {address}");

    let shared = Arc::new(Shared {
        options,
        store,
        stop: CancellationToken::new(),
        connections: AtomicU64::new(0),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, shared.clone()));
    tasks.spawn(remove_expired(shared.clone()));
    let print_tree = || eprintln!("kv_tokio: tokio has no tree of tasks");
    let signal = signals.stop(print_tree).await;
    shared.stop.cancel();
    let end = async { while tasks.join_next().await.is_some() {} };
    tokio::select! {
        () = end => {}
        again = signals.stop(print_tree) => {
            eprintln!("kv_tokio: stopped at once by a second {again}");
            process::exit(1);
        }
    }
    Ok((signal, shared.connections.load(Relaxed)))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(
        shared.options.max_connections.min(Semaphore::MAX_PERMITS),
    ));
    let mut connections = JoinSet::new();
    let mut errors = AcceptErrors::new("kv_tokio");
    loop {
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            () = shared.stop.cancelled() => break,
        };
        let socket = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tokio::time::sleep(errors.pause(&error)).await;
                    continue;
                }
            },
            () = shared.stop.cancelled() => break,
        };
        shared.connections.fetch_add(1, Relaxed);
        let shared = shared.clone();
        connections.spawn(async move {
            let _ = connection(socket, &shared).await;
            drop(permit);
        });
        // Frees the tasks that have ended.
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn remove_expired(shared: Arc<Shared>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => shared.store.remove_expired(),
            () = shared.stop.cancelled() => break,
        }
    }
}

async fn connection(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    let options = &shared.options;
    let mut session = Session::new(options);
    socket.set_nodelay(true)?;
    loop {
        let step = session.execute(&shared.store);
        write(&mut socket, &mut session, options.write_timeout).await?;
        match step {
            Step::Read => tokio::select! {
                read = timeout(options.idle_timeout, socket.read_buf(session.input())) => match read {
                    Ok(Ok(0)) | Err(_) => return Ok(()),
                    Ok(read) => _ = read?,
                },
                () = shared.stop.cancelled() => return Ok(()),
            },
            Step::Execute if shared.stop.is_cancelled() => return Ok(()),
            Step::Execute => tokio::task::yield_now().await,
            Step::Close => return linger(socket, shared).await,
        }
    }
}

async fn write(socket: &mut TcpStream, session: &mut Session, limit: Duration) -> io::Result<()> {
    if session.output().is_empty() {
        return Ok(());
    }
    match socket.try_write(session.output()) {
        Ok(bytes) => session.written(bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    if !session.output().is_empty() {
        timeout(limit, socket.write_all(session.output())).await??;
        session.written(session.output().len());
    }
    Ok(())
}

async fn linger(mut socket: TcpStream, shared: &Shared) -> io::Result<()> {
    socket.shutdown().await?;
    let mut ignored = [0; 4096];
    let drain = async {
        while socket.read(&mut ignored).await? > 0 {}
        Ok(())
    };
    tokio::select! {
        drained = timeout(Duration::from_secs(1), drain) => drained.unwrap_or(Ok(())),
        () = shared.stop.cancelled() => Ok(()),
    }
}
