//! A server as a process, and connections to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::common::{PATIENCE, Process};

/// The servers, which behave alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kv,
    KvOwnPool,
    KvTokio,
}

impl Kind {
    /// Starts the server with these options only.
    pub(crate) fn start_with(self, options: &[&str]) -> Process {
        let (program, first) = self.program();
        Process::start(program, &[first, options].concat())
    }

    /// Starts the server on a port that the system chooses, and waits until it listens.
    pub(crate) fn start(self, options: &[&str]) -> Server {
        Server::listening(self.start_with(&[ANY_PORT, options].concat()))
    }

    /// Does the same for a server that may have so many files open, sockets included.
    pub(crate) fn start_with_files(self, files: usize, options: &[&str]) -> Server {
        let (program, first) = self.program();
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let words = [&["-c", &script, program], first, ANY_PORT, options].concat();
        Server::listening(Process::start("sh", &words))
    }

    /// Returns the path of the program, and the option that makes it this kind.
    fn program(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Kind::Kv => (env!("CARGO_BIN_EXE_kv"), &[]),
            Kind::KvOwnPool => (env!("CARGO_BIN_EXE_kv"), &["--own-pool"]),
            Kind::KvTokio => (env!("CARGO_BIN_EXE_kv_tokio"), &[]),
        }
    }
}

const ANY_PORT: &[&str] = &["--addr", "127.0.0.1:0", "--threads", "2", "--report"];

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    fn listening(process: Process) -> Self {
        let address = process.expect("listening on ").parse().expect("an address");
        Server { process, address }
    }

    pub(crate) fn connect(&self) -> Connection {
        let socket = TcpStream::connect(self.address).expect("the server accepts");
        socket.set_read_timeout(Some(PATIENCE)).expect("a valid time");
        socket.set_write_timeout(Some(PATIENCE)).expect("a valid time");
        Connection(socket)
    }

    pub(crate) fn client(&self) -> redis::Connection {
        let client = redis::Client::open(format!("redis://{}/", self.address)).expect("a valid address");
        client
            .get_connection_with_timeout(PATIENCE)
            .expect("the server accepts")
    }

    /// Ends the server by a signal, and checks that nothing is left. Returns the number of keys.
    #[track_caller]
    pub(crate) fn end(&mut self, signal: &str) -> usize {
        self.process.signal(signal);
        self.ended(signal)
    }

    /// Waits for the end of the server by a signal that was sent.
    #[track_caller]
    pub(crate) fn ended(&mut self, signal: &str) -> usize {
        self.process.wait_for_code(0);
        assert_eq!(self.process.expect("left: "), "0 tasks, 0 sockets, 0 threads");
        assert_eq!(self.process.stderr().lines().find(|line| line.contains("panic")), None);
        let summary = self.process.expect(&format!("stopped by SIG{signal}: "));
        let keys = summary.split(", ").last().and_then(|text| text.strip_suffix(" keys"));
        keys.expect("the number of keys").parse().expect("a number")
    }
}

/// A connection without a client library, for what a client library would not send.
pub(crate) struct Connection(pub(crate) TcpStream);

impl Connection {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Reads an answer of this length.
    #[track_caller]
    pub(crate) fn expect(&mut self, answer: &str) {
        let mut bytes = vec![0; answer.len()];
        self.0.read_exact(&mut bytes).expect("the server answers");
        assert_eq!(String::from_utf8_lossy(&bytes), answer);
    }

    /// Reads until the server closes the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        self.0
            .read_to_end(&mut bytes)
            .expect("the server closes the connection");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
