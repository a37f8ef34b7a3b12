//! An HTTP service of axum whose requests are tasks: it moves money between accounts.
//!
//! A transfer is a transaction of several statements. A client that leaves, a deadline and the end of the service cancel it wherever it is,
//! and each time it is rolled back. So the accounts have as much money at the end as at the beginning.
//!
//! ```text
//! bank ─┬─ accept ─┬─ connection 1
//!       │          └─ connection 2 …
//!       ├─ POST /transfers
//!       └─ POST /transfers …
//! ```
//!
//! A request is no part of its connection: it ends after its clean-up, also if the connection has ended before.

mod demo;
mod ledger;
mod routes;
mod server;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bowline_programs::arguments::{self, ArgumentError, Arguments, Seconds};
use bowline_programs::kv::Leftovers;
use tokio::runtime::Runtime;

use crate::ledger::Ledger;

const HELP: &str = "\
Usage: bank [options]

An HTTP service with the accounts ada, bob and moon. Ctrl-C and SIGTERM end it
after the requests that it serves. SIGUSR1 prints the tree of tasks.

  curl localhost:3000/accounts/ada
  curl localhost:3000/transfers --data 'ada bob 5'
  curl localhost:3000/transfers --data 'ada moon 5'    # takes an hour

  --port N               listen at this port of 127.0.0.1; with 0 the system chooses
                         one [3000]
  --max-connections N    accept no more connections while so many are open [1000]
  --max-requests N       serve so many requests at a time; others wait [100]
  --max-body BYTES       refuse larger bodies [1024]
  --read-timeout S       the time for a client to send a request [10]
  --timeout S            the time for a request, with its body and its response [2]
  --lifetime S           the time for a connection [300]
  --grace S              the time at the end for the requests that are served [1]
  --demo                 be a client of this service, and end it
  --report               report tasks, sockets and threads that are left at the end
  --help                 print this
";

/// The command line.
#[derive(Clone, Debug)]
struct Options {
    port: u16,
    max_connections: usize,
    max_requests: usize,
    max_body: usize,
    read_timeout: Duration,
    timeout: Duration,
    lifetime: Duration,
    grace: Duration,
    is_demo: bool,
    report: bool,
}

fn read(arguments: &mut Arguments) -> Result<Options, ArgumentError> {
    let seconds = |arguments: &mut Arguments, name, default: f64| {
        let default = Seconds(Duration::from_secs_f64(default));
        arguments.value_or(name, default).map(|Seconds(duration)| duration)
    };
    let is_demo = arguments.flag("--demo");
    // The demonstration is to be over soon, and to disturb no other service.
    let (port, timeout, grace) = if is_demo { (0, 0.5, 0.02) } else { (3000, 2.0, 1.0) };
    Ok(Options {
        port: arguments.value_or("--port", port)?,
        max_connections: arguments.count_or("--max-connections", 1000)?,
        max_requests: arguments.count_or("--max-requests", 100)?,
        max_body: arguments.count_or("--max-body", 1024)?,
        read_timeout: seconds(arguments, "--read-timeout", 10.0)?,
        timeout: seconds(arguments, "--timeout", timeout)?,
        lifetime: seconds(arguments, "--lifetime", 300.0)?,
        grace: seconds(arguments, "--grace", grace)?,
        is_demo,
        report: arguments.flag("--report"),
    })
}

fn main() -> ExitCode {
    match arguments::read(HELP, read).map(|options| run(&options)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("bank: {error}");
            ExitCode::FAILURE
        }
        Err(exit_code) => exit_code,
    }
}

/// Runs the service from start to end. The returned text says what went wrong.
fn run(options: &Options) -> Result<(), String> {
    let ledger = Arc::new(Ledger::default());
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let end = bowline_tokio::block_on(&runtime, server::run(options.clone(), ledger.clone()))?;
    drop(runtime);
    println!("stopped by {}: {} connections", end.cause, end.connections);
    println!("{ledger}");
    if options.report {
        println!("{}", Leftovers::count(end.tasks_left));
    }
    Ok(())
}
