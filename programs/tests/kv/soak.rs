//! Connections that come, go, stall and are killed at random, until a signal ends the server in the middle of it.
//!
//! Each write has a key of its own. A client notes the key once the answer has arrived. The server saves its keys at the end, and a second
//! run must know every key that was noted. The test takes two seconds; `KV_SOAK_SECONDS` and `KV_SOAK_CONNECTIONS` change it.

use std::collections::HashMap;
use std::env;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::common::{Directory, PATIENCE};
use crate::server::Kind;

crate::for_each_server! { answered_writes_are_kept, }

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn answered_writes_are_kept(kind: Kind) {
    let seconds = setting("KV_SOAK_SECONDS", 2);
    let clients = setting("KV_SOAK_CONNECTIONS", 200);
    let seed = setting("KV_SOAK_SEED", fastrand::u64(..));
    println!("KV_SOAK_SEED={seed}");
    let directory = Directory::new();
    let file = directory.join("keys");
    // The limit is below the number of clients, so that some wait to be accepted.
    let limit = (clients * 3 / 4).max(1).to_string();
    let options = [
        "--save",
        &file,
        "--max-connections",
        &limit,
        "--idle-timeout",
        "0.5",
        "--write-timeout",
        "1",
    ];
    let mut server = kind.start(&options);
    let address = server.address;
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
            };
            running.spawn(tokio::time::timeout(
                PATIENCE + Duration::from_secs(seconds),
                client.run(address),
            ));
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        server.process.signal("INT");
        let mut answered = HashMap::new();
        while let Some(client) = running.join_next().await {
            answered.extend(client.unwrap().expect("every client sees the end of the server"));
        }
        answered
    });
    let keys = server.ended("INT");
    println!("{kind:?}: {} answered writes, {keys} keys", answered.len());
    assert!(
        answered.len() as u64 > clients,
        "something was written: {}",
        answered.len()
    );
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
}

struct Client {
    number: u64,
    random: fastrand::Rng,
    answered: Vec<(String, String)>,
    written: u64,
}

impl Client {
    /// Connects again and again, until no server listens. Returns the writes that were answered.
    async fn run(mut self, address: std::net::SocketAddr) -> Vec<(String, String)> {
        while let Ok(mut socket) = TcpStream::connect(address).await {
            // An error is the end of the server, or one of its deadlines.
            let _ = self.talk(&mut socket).await;
            if self.random.bool() {
                // As if the client were killed: the connection is reset.
                let _ = socket.set_zero_linger();
            }
        }
        self.answered
    }

    /// Writes some keys, and leaves in one of several ways.
    async fn talk(&mut self, socket: &mut TcpStream) -> io::Result<()> {
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
                    socket.write_all(request.as_bytes()).await?;
                    return Ok(());
                }
            }
        }
        match self.random.u32(0..4) {
            0 => {
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
                socket.write_all(b"*garbage\r\n").await?;
                let mut answer = Vec::new();
                socket.read_to_end(&mut answer).await?;
                // There is no answer if the server was ending, or the connection was idle for too long before.
                let refused = answer.is_empty() || answer.starts_with(b"-ERR Protocol error");
                assert!(refused, "{}", answer.escape_ascii());
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
        socket.write_all(bytes.as_bytes()).await?;
        for (key, value, _) in requests {
            let mut answer = [0; 5];
            socket.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"+OK\r\n");
            self.answered.push((key, value));
        }
        Ok(())
    }
}
