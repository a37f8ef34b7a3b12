//! A server that speaks the protocol of Redis, written with bowline's tasks and tokio's sockets.
//!
//! Each connection is a child of one group, so the structure of the program is that of its tasks:
//!
//! ```text
//! server ─┬─ accept ─┬─ connection 1
//!         │          └─ connection 2 …
//!         └─ expiry
//! ```
//!
//! Cancelling the children of `server` ends everything, and the server returns when everything has ended. So no code here counts
//! connections, keeps handles, or passes a "shut down" flag around. The same server with tokio alone is `kv_tokio`.

mod connection;
mod server;

use std::process::ExitCode;
use std::sync::Arc;

use bowline::prelude::*;
use bowline_programs::arguments::{self, ArgumentError, Arguments};
use bowline_programs::kv::{self, Leftovers, Store};
use bowline_tokio::IoPool;
use tokio::runtime::Builder;

const HELP: &str = "\
Usage: kv [options]

A server that speaks the protocol of Redis. Ctrl-C and SIGTERM end it after the
answers to all requests that were executed. SIGUSR1 prints the tree of tasks.

  --own-pool             run tasks on a pool of threads of bowline's, which also wait
                         for the sockets
";

struct Options {
    shared: kv::Options,
    own_pool: bool,
}

fn main() -> ExitCode {
    let help = format!("{HELP}{}", kv::Options::HELP);
    let options = arguments::read(&help, |arguments: &mut Arguments| -> Result<_, ArgumentError> {
        Ok(Options {
            own_pool: arguments.flag("--own-pool"),
            shared: kv::Options::read(arguments)?,
        })
    });
    match options.map(run) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("kv: {error}");
            ExitCode::FAILURE
        }
        Err(exit_code) => exit_code,
    }
}

/// Runs the server from start to end. The returned text says what went wrong.
fn run(options: Options) -> Result<(), String> {
    let Options { shared, own_pool } = options;
    let store = Arc::new(Store::default());
    if let Some(path) = &shared.save {
        kv::load(&store, path).map_err(|error| format!("cannot load {}: {error}", path.display()))?;
    }
    let outcome = if own_pool {
        run_on_own_pool(&shared, store.clone())
    } else {
        run_on_tokio(&shared, store.clone())
    };
    let end = outcome?;
    if let Some(path) = &shared.save {
        kv::save(&store, path).map_err(|error| format!("cannot save {}: {error}", path.display()))?;
    }
    println!(
        "stopped by {}: {} connections, {} requests, {} keys",
        end.signal,
        end.connections,
        store.requests(),
        store.len()
    );
    if shared.report {
        println!("{}", Leftovers::count(end.tasks_left));
    }
    Ok(())
}

/// Runs all tasks on the threads of a tokio runtime.
fn run_on_tokio(options: &kv::Options, store: Arc<Store>) -> Result<server::End, String> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    bowline_tokio::block_on(&runtime, server::run(options.clone(), store))
}

/// Runs all tasks on a pool of bowline's, whose idle threads wait for the sockets.
fn run_on_own_pool(options: &kv::Options, store: Arc<Store>) -> Result<server::End, String> {
    let pool = IoPool::new(options.threads).map_err(|error| error.to_string())?;
    let server = Task::try_new(server::run(options.clone(), store));
    match sync_wait(starts_on(pool.scheduler(), server)) {
        Outcome::Value(end) => Ok(end),
        Outcome::Error(error) => Err(error),
        Outcome::Stopped => Err("the server was stopped by no signal".to_owned()),
    }
}
