//! A server for downloads. The path of a request says what happens:
//!
//! | path | answer |
//! |---|---|
//! | `/ok/LENGTH/..`, `/chunked/LENGTH/..` | a body of that length |
//! | `/busy/N/LENGTH/..` | the first N requests: 503 |
//! | `/cut/N/LENGTH/..` | the first N requests: half of the body, then the end |
//! | `/reset/N/LENGTH/..` | the first N requests: the end, without an answer |
//! | `/garbage/N/LENGTH/..` | the first N requests: not HTTP |
//! | `/stall/N/LENGTH/..` | the first N requests: half of the body, then nothing until the client leaves |
//! | `/endless/..` | a body without a length and without an end, until the client leaves |
//! | `/silent/..` | nothing until the client leaves |
//! | `/gate/N/..` | a body, once N requests have come together |
//! | any other | 404 |

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: HashMap<String, usize>,
    running: usize,
    most: usize,
    /// The requests that have come to a gate.
    gate: usize,
}

/// Returns the bytes of a body.
pub(crate) fn body(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

impl Server {
    /// Starts a server, which runs until the end of the process.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let server = Server {
            address,
            shared: shared.clone(),
        };
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.begin();
                    // Clients may leave at any time.
                    let _ = shared.answer(socket);
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns how often a path was requested.
    pub(crate) fn requests(&self, path: &str) -> usize {
        self.shared
            .state
            .lock()
            .unwrap()
            .requests
            .get(path)
            .copied()
            .unwrap_or(0)
    }

    /// Returns the largest number of requests that were served at a time.
    pub(crate) fn most_at_a_time(&self) -> usize {
        self.shared.state.lock().unwrap().most
    }
}

impl Shared {
    fn begin(&self) {
        let mut state = self.state.lock().unwrap();
        state.running += 1;
        state.most = state.most.max(state.running);
    }

    /// Ends a request, before the client can see the end of the answer and begin another.
    fn end(&self) {
        self.state.lock().unwrap().running -= 1;
    }

    fn answer(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(socket.try_clone()?).lines();
        let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let earlier = {
            let mut state = self.state.lock().unwrap();
            let requests = state.requests.entry(path.clone()).or_default();
            *requests += 1;
            *requests - 1
        };
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let number = |index: usize| {
            parts
                .get(index)
                .and_then(|part| part.parse::<usize>().ok())
                .unwrap_or(0)
        };
        let (kind, is_first) = (parts[0], earlier < number(1));
        match kind {
            "ok" => self.send(&mut socket, number(1)),
            "chunked" => self.send_chunked(&mut socket, number(1)),
            "endless" => send_endless(&mut socket),
            "gate" => {
                self.wait_at_gate(number(1));
                self.send(&mut socket, 10)
            }
            "busy" if is_first => {
                self.end();
                socket.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")
            }
            "cut" if is_first => {
                self.end();
                send_half(&mut socket, number(2))
            }
            "stall" if is_first => {
                send_half(&mut socket, number(2))?;
                wait_for_the_end(&mut socket)
            }
            "reset" if is_first => Ok(()),
            "garbage" if is_first => socket.write_all(b"knot\r\n\r\n"),
            "silent" => wait_for_the_end(&mut socket),
            "busy" | "cut" | "stall" | "reset" | "garbage" => self.send(&mut socket, number(2)),
            _ => {
                self.end();
                socket.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            }
        }
    }

    fn send(&self, socket: &mut TcpStream, length: usize) -> std::io::Result<()> {
        self.end();
        write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")?;
        socket.write_all(&body(length))
    }

    fn send_chunked(&self, socket: &mut TcpStream, length: usize) -> std::io::Result<()> {
        self.end();
        write!(socket, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        for chunk in body(length).chunks(1000) {
            write!(socket, "{:x}\r\n", chunk.len())?;
            socket.write_all(chunk)?;
            write!(socket, "\r\n")?;
        }
        write!(socket, "0\r\n\r\n")
    }

    fn wait_at_gate(&self, together: usize) {
        let mut state = self.state.lock().unwrap();
        state.gate += 1;
        let opens = state.gate.next_multiple_of(together);
        self.changed.notify_all();
        while state.gate < opens {
            state = self.changed.wait(state).unwrap();
        }
    }
}

fn send_half(socket: &mut TcpStream, length: usize) -> std::io::Result<()> {
    write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")?;
    socket.write_all(&body(length)[..length / 2])
}

fn send_endless(socket: &mut TcpStream) -> std::io::Result<()> {
    write!(socket, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
    let chunk = [&b"2710\r\n"[..], &body(10_000), b"\r\n"].concat();
    loop {
        socket.write_all(&chunk)?;
    }
}

fn wait_for_the_end(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.read(&mut [0]).map(drop)
}
