//! Connections that come, go, stall and are killed at random, until a signal ends the server in the middle of it.
//!
//! Each write has a key of its own. A client notes the key once the answer has arrived. The server saves its keys at the end, and a second
//! run must know every key that was noted. There is not room for all clients at a time, so connections wait to be accepted. All clients are
//! served nevertheless, before the signal comes. Where the server has no deadlines, every connection is: until the signal, each
//! request that a client waits for is answered.
//!
//! The test takes two seconds; `KV_SOAK_SECONDS` and `KV_SOAK_CONNECTIONS` change it.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::common::{Directory, PATIENCE};
use crate::server::Kind;

crate::for_each_server! {
    answered_writes_are_kept,
    every_connection_is_served,
}

/// Deadlines of the server that connections often meet.
const SHORT: [&str; 4] = ["--idle-timeout", "0.5", "--write-timeout", "1"];
/// Deadlines that none meets.
const NEVER: [&str; 4] = ["--idle-timeout", "3600", "--write-timeout", "3600"];

fn answered_writes_are_kept(kind: Kind) {
    soak(kind, SHORT);
}

fn every_connection_is_served(kind: Kind) {
    let counts = soak(kind, NEVER);
    assert_eq!(counts.unserved.load(Relaxed), 0, "a request was not answered");
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Fails with advice if the system does not let this process open so many files, which is also the limit of the server.
fn check_open_files(wanted: u64) {
    // Elsewhere than on Linux a connection fails, if it does, and tells why.
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let limit = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    if let Some(limit) = limit {
        assert!(
            limit >= wanted,
            "this needs {wanted} open files, and the limit is {limit}: run `ulimit -n {wanted}` before, or set KV_SOAK_CONNECTIONS"
        );
    }
}

/// The counts of all clients.
#[derive(Default)]
struct Counts {
    /// Set before the signal is sent. So a client that is cut off afterwards sees it.
    is_ending: AtomicBool,
    /// The clients that have had an answer.
    clients: AtomicU64,
    /// The connections that were made.
    connections: AtomicU64,
    /// The connections that have ended before the signal, while the client waited for an answer.
    unserved: AtomicU64,
    /// The connections that the system has refused, all of them after the signal.
    refused: AtomicU64,
}

fn soak(kind: Kind, deadlines: [&str; 4]) -> Arc<Counts> {
    let seconds = setting("KV_SOAK_SECONDS", 2);
    let clients = setting("KV_SOAK_CONNECTIONS", 200);
    let seed = setting("KV_SOAK_SEED", fastrand::u64(..));
    println!("KV_SOAK_SEED={seed}");
    check_open_files(clients + 64);
    let directory = Directory::new();
    let file = directory.join("keys");
    // The limit is below the number of clients, so that some wait to be accepted: not more than any system has room for.
    let limit = (clients - (clients / 4).min(100)).to_string();
    let options = [&["--save", &file, "--max-connections", &limit][..], &deadlines].concat();
    let mut server = kind.start(&options);
    let address = server.address;
    let counts = Arc::new(Counts::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let answered = runtime.block_on(async {
        let mut running = JoinSet::new();
        for number in 0..clients {
            let client = Client {
                number,
                random: fastrand::Rng::with_seed(seed ^ number),
                answered: Vec::new(),
                written: 0,
                awaits_answer: false,
                counts: counts.clone(),
            };
            running.spawn(tokio::time::timeout(
                2 * PATIENCE + Duration::from_secs(seconds),
                client.run(address),
            ));
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let begin = Instant::now();
        while counts.clients.load(Relaxed) < clients {
            let served = counts.clients.load(Relaxed);
            assert!(begin.elapsed() < PATIENCE, "{served} of {clients} clients were served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        counts.is_ending.store(true, SeqCst);
        server.process.signal("INT");
        let mut answered = HashMap::new();
        while let Some(client) = running.join_next().await {
            answered.extend(client.unwrap().expect("every client sees the end of the server"));
        }
        answered
    });
    let keys = server.ended("INT");
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    println!(
        "soak of {kind:?}: {clients} clients, all served; {} connections, {} ended by a deadline, {} refused after the signal; \
         {} answered writes, {keys} keys",
        count(&counts.connections),
        count(&counts.unserved),
        count(&counts.refused),
        answered.len()
    );
    // Each client ends when no server listens.
    assert_eq!(count(&counts.refused), clients);
    assert!(answered.len() as u64 >= clients, "{} answered writes", answered.len());
    assert!(keys >= answered.len());

    let mut server = kind.start(&options);
    let mut client = server.client();
    let all: Vec<_> = answered.into_iter().collect();
    for some in all.chunks(1000) {
        let names: Vec<_> = some.iter().map(|(key, _)| key).collect();
        let values: Vec<Option<String>> = redis::cmd("MGET").arg(names).query(&mut client).unwrap();
        for ((key, value), found) in some.iter().zip(values) {
            assert_eq!(found.as_ref(), Some(value), "{key}");
        }
    }
    assert_eq!(server.end("INT"), keys);
    counts
}

struct Client {
    number: u64,
    random: fastrand::Rng,
    answered: Vec<(String, String)>,
    written: u64,
    /// Whether the connection would have an answer if it went on.
    awaits_answer: bool,
    counts: Arc<Counts>,
}

impl Client {
    /// Connects again and again, until no server listens. Returns the writes that were answered.
    async fn run(mut self, address: SocketAddr) -> Vec<(String, String)> {
        loop {
            let mut socket = match TcpStream::connect(address).await {
                Ok(socket) => socket,
                Err(error) => {
                    assert!(
                        self.counts.is_ending.load(SeqCst),
                        "a connection failed before the signal: {error}"
                    );
                    self.counts.refused.fetch_add(1, Relaxed);
                    return self.answered;
                }
            };
            self.counts.connections.fetch_add(1, Relaxed);
            self.awaits_answer = false;
            // An error is the end of the server, or one of its deadlines.
            if self.talk(&mut socket).await.is_err() && self.awaits_answer && !self.counts.is_ending.load(SeqCst) {
                self.counts.unserved.fetch_add(1, Relaxed);
            }
            if self.random.bool() {
                // As if the client were killed: the connection is reset.
                let _ = socket.set_zero_linger();
            }
        }
    }

    /// Writes some keys, and leaves in one of several ways.
    async fn talk(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        // Most clients wait until they are accepted. If all left before, their connections would fill the queue of the operating system,
        // which then lets others wait for seconds.
        if self.random.u32(0..20) != 0 {
            self.awaits_answer = true;
            socket.write_all(b"PING\r\n").await?;
            socket.read_exact(&mut [0; 7]).await?;
            self.awaits_answer = false;
        }
        for _ in 0..self.random.u32(0..50) {
            match self.random.u32(0..20) {
                // Several at a time.
                0..4 => {
                    let count = self.random.usize(1..30);
                    self.write(socket, count).await?;
                }
                4..18 => self.write(socket, 1).await?,
                // Idle for a while, sometimes beyond the deadline.
                18 => tokio::time::sleep(Duration::from_millis(self.random.u64(0..700))).await,
                // A request whose answer the client does not wait for. It may be executed or not.
                _ => {
                    let (_, _, request) = self.request();
                    self.awaits_answer = true;
                    socket.write_all(request.as_bytes()).await?;
                    return Ok(());
                }
            }
        }
        match self.random.u32(0..4) {
            0 => {
                self.awaits_answer = true;
                socket.write_all(b"QUIT\r\n").await?;
                socket.read_exact(&mut [0; 5]).await?;
            }
            1 => {
                // Half a request, and then nothing until the server's deadline or a time of the client's own.
                let (_, _, request) = self.request();
                let half = self.random.usize(0..request.len());
                socket.write_all(&request.as_bytes()[..half]).await?;
                let wait = Duration::from_millis(self.random.u64(0..700));
                let _ = tokio::time::timeout(wait, socket.read(&mut [0])).await;
            }
            2 => {
                self.awaits_answer = true;
                socket.write_all(b"*garbage\r\n").await?;
                let mut answer = Vec::new();
                socket.read_to_end(&mut answer).await?;
                // There is no answer if the server was ending, or the connection was idle for too long before.
                if answer.is_empty() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let is_refused = answer.starts_with(b"-ERR Protocol error");
                assert!(is_refused, "{}", answer.escape_ascii());
            }
            _ => {}
        }
        Ok(())
    }

    fn request(&mut self) -> (String, String, String) {
        self.written += 1;
        let key = format!("{}:{}", self.number, self.written);
        let value = format!("value {key}");
        let lengths = (key.len(), value.len());
        let request = format!(
            "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n",
            lengths.0, lengths.1
        );
        (key, value, request)
    }

    /// Sends writes together, and notes each when its answer has arrived.
    async fn write(&mut self, socket: &mut TcpStream, count: usize) -> io::Result<()> {
        let requests: Vec<_> = (0..count).map(|_| self.request()).collect();
        let bytes: String = requests.iter().map(|(_, _, request)| request.as_str()).collect();
        self.awaits_answer = true;
        socket.write_all(bytes.as_bytes()).await?;
        for (key, value, _) in requests {
            let mut answer = [0; 5];
            socket.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"+OK\r\n");
            if self.answered.is_empty() {
                self.counts.clients.fetch_add(1, Relaxed);
            }
            self.answered.push((key, value));
        }
        self.awaits_answer = false;
        Ok(())
    }
}
