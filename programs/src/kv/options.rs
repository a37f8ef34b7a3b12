//! The command line of the servers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use crate::arguments::{ArgumentError, Arguments, Seconds};

/// The options that both servers have.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen at.
    pub address: SocketAddr,
    /// The number of threads that execute requests.
    pub threads: usize,
    /// The maximum number of open connections.
    pub max_connections: usize,
    /// The maximum number of bytes in a request.
    pub max_request: usize,
    /// How long a connection may wait for its peer to send something.
    pub idle_timeout: Duration,
    /// How long a connection may wait for its peer to take an answer.
    pub write_timeout: Duration,
    /// The file that keeps the keys from one run to the next.
    pub save: Option<PathBuf>,
    /// Whether to report what is left of tasks, sockets and threads at the end.
    pub report: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: SocketAddr::from(([127, 0, 0, 1], 6379)),
            threads: available_parallelism().map_or(1, usize::from),
            max_connections: 10_000,
            max_request: 1024 * 1024,
            idle_timeout: Duration::from_secs(300),
            write_timeout: Duration::from_secs(5),
            save: None,
            report: false,
        }
    }
}

impl Options {
    /// The help for these options.
    pub const HELP: &str = "\
  --addr ADDRESS         listen at this address; with port 0 the system chooses
                         a port [127.0.0.1:6379]
  --threads N            execute requests on so many threads [one per processor]
  --max-connections N    accept no more connections while so many are open [10000]
  --max-request BYTES    refuse larger requests [1048576]
  --idle-timeout S       close a connection that sends nothing for so long [300]
  --write-timeout S      close a connection that takes no answer for so long [5]
  --save FILE            load the keys from this file, and save them there at the end
  --report               report tasks, sockets and threads that are left at the end
  --help                 print this
";

    /// Reads the options from a command line.
    ///
    /// # Errors
    ///
    /// A value is missing or malformed.
    pub fn read(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        let default = Options::default();
        let idle_timeout = arguments.value_or("--idle-timeout", Seconds(default.idle_timeout))?;
        let write_timeout = arguments.value_or("--write-timeout", Seconds(default.write_timeout))?;
        Ok(Options {
            address: arguments.value_or("--addr", default.address)?,
            threads: arguments.count_or("--threads", default.threads)?,
            max_connections: arguments.count_or("--max-connections", default.max_connections)?,
            max_request: arguments.count_or("--max-request", default.max_request)?,
            idle_timeout: idle_timeout.0,
            write_timeout: write_timeout.0,
            save: arguments.value("--save")?,
            report: arguments.flag("--report"),
        })
    }
}
