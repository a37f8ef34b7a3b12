//! The service as a process, and its clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Process};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bank");

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

/// The transactions of a service that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Transfers {
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
}

impl Server {
    /// Starts the service on a port that the system chooses, and waits until it listens.
    pub(crate) fn start(options: &[&str]) -> Self {
        let process = Process::start(PROGRAM, &[&["--port", "0", "--report"], options].concat());
        let address = process.expect("listening on http://").parse().expect("an address");
        Server { process, address }
    }

    pub(crate) fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.address).expect("the service accepts");
        socket.set_read_timeout(Some(PATIENCE)).expect("a valid time");
        socket.set_write_timeout(Some(PATIENCE)).expect("a valid time");
        Client(socket)
    }

    /// Sends an order to move money.
    pub(crate) fn order(&self, order: &str) -> Client {
        let mut client = self.connect();
        client.post(order);
        client
    }

    /// Waits until an account has so much money.
    pub(crate) fn wait_for_money(&self, name: &str, money: u64) {
        let begin = Instant::now();
        loop {
            let mut client = self.connect();
            client.get(&format!("/accounts/{name}"));
            let answer = client.try_answer();
            if answer == Some((200, money.to_string())) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{answer:?}");
        }
    }

    /// Waits until so many requests are served that have this name. Asks for the tree of tasks to find out.
    pub(crate) fn wait_for_requests(&self, name: &str, count: usize) {
        let begin = Instant::now();
        let task = format!("\"{name}\": running");
        loop {
            self.process.signal("USR1");
            thread::sleep(Duration::from_millis(10));
            let errors = self.process.stderr();
            let tree = errors.rsplit_once("task 1: ").map_or("", |(_, tree)| tree);
            if tree.matches(&task).count() == count {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{tree}");
        }
    }

    /// Ends the service by a signal.
    #[track_caller]
    pub(crate) fn end(&mut self, signal: &str) -> Transfers {
        self.process.signal(signal);
        self.ended(&format!("SIG{signal}"))
    }

    /// Waits for the end. Checks that nothing is left, that every transaction has ended, and that no money was made or lost.
    #[track_caller]
    pub(crate) fn ended(&mut self, cause: &str) -> Transfers {
        self.process.wait_for_code(0);
        self.process.expect(&format!("stopped by {cause}: "));
        assert_eq!(self.process.expect("left: "), "0 tasks, 0 sockets, 0 threads");
        assert_eq!(self.process.stderr().lines().find(|line| line.contains("panic")), None);
        let output = self.process.stdout();
        let summary = output.lines().find(|line| line.contains(" transfers: "));
        let summary = summary.expect("a summary");
        let digits = |part: &str| part.split(' ').find_map(|word| word.parse().ok()).expect("a number");
        let numbers: Vec<usize> = summary.split([':', ',', ';']).map(digits).collect();
        let [begun, committed, rolled_back, money] = numbers[..] else {
            panic!("{summary}");
        };
        assert_eq!((begun, money), (committed + rolled_back, 3000), "{summary}");
        Transfers { committed, rolled_back }
    }
}

/// A connection.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("the service reads");
    }

    pub(crate) fn get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"));
    }

    pub(crate) fn post(&mut self, order: &str) {
        self.send(post(order));
    }

    /// Reads a response. Returns its status and its body.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> (u16, String) {
        self.try_answer().expect("the service answers")
    }

    /// Reads a response. Returns `None` if the connection ends before.
    pub(crate) fn try_answer(&mut self) -> Option<(u16, String)> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("a head").to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).expect("text");
        Some((status.expect("a status"), body.trim_end().to_owned()))
    }

    /// Checks that the service closes the connection, and sends nothing before.
    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        // The service may have given up reading what the client has sent.
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
        assert_eq!(String::from_utf8_lossy(&rest), "");
    }
}

/// Returns the request of an order.
pub(crate) fn post(order: &str) -> String {
    format!(
        "POST /transfers HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{order}",
        order.len()
    )
}
