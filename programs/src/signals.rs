//! The signals of a program: those that end it, and the one that asks what it is doing.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request that arrived as a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// `SIGINT`, which is Ctrl-C, or `SIGTERM`: end. Carries the signal's name.
    Stop(&'static str),
    /// `SIGUSR1`: print the tree of tasks.
    Tree,
}

/// The signals that this process handles. From [`install`](Signals::install) on they no longer kill it.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    tree: Signal,
}

impl Signals {
    /// Installs the handlers. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// The system refuses a handler.
    pub fn install() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            tree: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits for the next signal. Dropping the future loses none.
    pub async fn next(&mut self) -> Request {
        // `recv` returns `None` only when the runtime is shutting down, which ends this task as well.
        tokio::select! {
            Some(()) = self.interrupt.recv() => Request::Stop("SIGINT"),
            Some(()) = self.terminate.recv() => Request::Stop("SIGTERM"),
            Some(()) = self.tree.recv() => Request::Tree,
            else => std::future::pending().await,
        }
    }

    /// Waits for a signal that ends the program, and returns its name. Calls `print_tree` for each `SIGUSR1` until then.
    ///
    /// Dropping the future loses no signal. A program that is ending waits for the next one in the same way: a tree tells then what it
    /// waits for.
    pub async fn stop(&mut self, print_tree: impl Fn()) -> &'static str {
        loop {
            match self.next().await {
                Request::Stop(name) => return name,
                Request::Tree => print_tree(),
            }
        }
    }
}
