//! Signals: what ends, what is still answered, and what is printed.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use crate::common::Directory;
use crate::server::{Connection, Kind, Server};

crate::for_each_server! {
    signals_end_the_server,
    a_signal_during_the_start,
    executed_requests_are_answered,
    a_second_signal_ends_the_server_at_once,
    a_busy_connection_ends,
}

fn signals_end_the_server(kind: Kind) {
    for signal in ["INT", "TERM"] {
        let mut server = kind.start(&[]);
        let mut idle: Vec<_> = (0..50).map(|_| server.connect()).collect();
        let mut busy = server.connect();
        busy.send(b"SET a 1\r\n*3\r\n$3\r\nSET\r\n");
        busy.expect("+OK\r\n");
        assert_eq!(server.end(signal), 1);
        for connection in &mut idle {
            // A connection that was not accepted yet is reset.
            let _ = std::io::Read::read(&mut connection.0, &mut [0]).map(|read| assert_eq!(read, 0));
        }
        assert_eq!(busy.rest(), "");
        assert!(TcpStream::connect(server.address).is_err(), "the port is free");
    }
}

fn a_signal_during_the_start(kind: Kind) {
    let directory = Directory::new();
    let file = directory.join("keys");
    let content: String = (0..2000)
        .map(|number| format!("SET key:{number} {number}\r\n"))
        .collect();
    fs::write(&file, &content).unwrap();
    let (mut killed, mut ended) = (0, 0);
    for delay in 0..20 {
        let mut server = kind.start_with(&["--addr", "127.0.0.1:0", "--save", &file]);
        thread::sleep(Duration::from_micros(delay * 500));
        server.signal("TERM");
        let status = server.wait();
        // Before the handlers are installed the signal kills the process, which has changed nothing. After that it ends as always.
        if status.signal() == Some(15) {
            assert!(
                !server.stdout().contains("listening"),
                "a server that listens ends with a summary"
            );
            killed += 1;
        } else {
            assert_eq!(status.code(), Some(0), "{}", server.stderr());
            assert!(server.stdout().contains("2000 keys"), "{}", server.stdout());
            ended += 1;
        }
        assert_eq!(directory.files(), ["keys"]);
    }
    assert_eq!(killed + ended, 20);
    // Each key is still there, whoever has written the file last.
    let mut server = kind.start(&["--save", &file]);
    assert_eq!(server.end("TERM"), 2000);
}

/// Returns whether all threads of the process wait for something, as far as the system tells.
fn rests(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return true;
    };
    // The state is behind the name, which may contain anything.
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('S'))
    })
}

/// Makes a peer for whose answers the socket has no room, since it does not read them. Returns the length of one.
fn stall(server: &Server) -> (Connection, usize) {
    let length = 100_000;
    let mut peer = server.connect();
    peer.send(format!(
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n${length}\r\n{}\r\n",
        "x".repeat(length)
    ));
    peer.expect("+OK\r\n");
    // More than the sockets of both sides take.
    peer.send(b"GET a\r\n".repeat(500));
    // Until no more answers arrive, and not for want of a processor: then the server waits for room.
    let mut arrived = vec![0; 16 * 1024 * 1024];
    let (mut before, mut same) = (0, 0);
    while same < 20 {
        thread::sleep(Duration::from_millis(20));
        let now = peer.0.peek(&mut arrived).expect("the server answers");
        same = if now == before && rests(server.process.id()) {
            same + 1
        } else {
            0
        };
        before = now;
    }
    (peer, length + format!("${length}\r\n\r\n").len())
}

/// Waits until the server accepts no more connections: then it has seen the signal.
fn wait_until_closed(server: &Server) {
    while TcpStream::connect(server.address).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
}

fn executed_requests_are_answered(kind: Kind) {
    let mut server = kind.start(&["--write-timeout", "60"]);
    let (mut peer, length) = stall(&server);
    server.process.signal("INT");
    wait_until_closed(&server);
    // The answers that wait are written now, although the server is ending. None of them is cut short.
    let answers = peer.rest();
    assert!(
        !answers.is_empty() && answers.len() % length == 0,
        "{} bytes",
        answers.len()
    );
    assert_eq!(server.ended("INT"), 1);
}

fn a_second_signal_ends_the_server_at_once(kind: Kind) {
    let mut server = kind.start(&["--write-timeout", "600"]);
    let _peer = stall(&server);
    server.process.signal("INT");
    wait_until_closed(&server);
    server.process.signal("TERM");
    server.process.wait_for_code(1);
    server.process.expect_error("stopped at once by a second SIGTERM");
}

fn a_busy_connection_ends(kind: Kind) {
    let mut server = kind.start(&[]);
    let mut peer = server.connect();
    peer.send(b"PING\r\n");
    peer.expect("+PONG\r\n");
    // Requests arrive without a pause, and the answers are read: the connection never waits for long.
    let mut reader = peer.0.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| while std::io::Write::write_all(&mut peer.0, &b"PING\r\n".repeat(1000)).is_ok() {});
        scope.spawn(|| {
            let mut answers = [0; 65536];
            while std::io::Read::read(&mut reader, &mut answers).is_ok_and(|read| read > 0) {}
        });
        thread::sleep(Duration::from_millis(50));
        assert_eq!(server.end("INT"), 0);
    });
}

/// The words of the tree for a task that waits, and for one that waits and is cancelled.
const WAITS: (&str, &str) = match cfg!(feature = "inspect") {
    true => ("waiting", "waiting"),
    false => ("running", "cancelled"),
};

#[test]
fn the_tree_of_tasks_is_printed() {
    for kind in [Kind::Kv, Kind::KvOwnPool] {
        let mut server = kind.start(&[]);
        let mut peer = server.connect();
        peer.send(b"PING\r\n");
        peer.expect("+PONG\r\n");
        let (state, _) = WAITS;
        let name = format!("\"connection 1 from {}\": {state}", peer.0.local_addr().unwrap());
        let line = server.process.expect_in_tree(&name);
        assert!(
            line.starts_with("    task "),
            "it is below the task that accepts: {line:?}"
        );
        let line = server.process.expect_in_tree(&format!("task 2 \"accept\": {state}"));
        assert!(line.starts_with("  task "), "it is below the program: {line:?}");
        server.process.expect_in_tree(&format!("\"expiry\": {state}"));
        if cfg!(feature = "inspect") {
            // The connection waits for a request, which the tree tells by the line of its deadline.
            let source = include_str!("../../src/bin/kv/connection.rs");
            let wait = source
                .lines()
                .position(|line| line.contains("with_timeout(options.idle_timeout"));
            let at = format!(
                "src/bin/kv/connection.rs:{}:",
                wait.expect("the wait for a request") + 1
            );
            server.process.expect_in_tree(&at);
        }
        server.end("INT");
    }
}

#[test]
fn the_tree_of_tasks_is_printed_during_the_end() {
    for kind in [Kind::Kv, Kind::KvOwnPool] {
        let mut server = kind.start(&["--write-timeout", "600"]);
        let (peer, _) = stall(&server);
        server.process.signal("INT");
        wait_until_closed(&server);
        // The tree tells what the end waits for: the answers to a peer that does not read them.
        let (_, state) = WAITS;
        let name = format!("\"connection 1 from {}\": {state}", peer.0.local_addr().unwrap());
        server.process.expect_in_tree(&name);
        if cfg!(feature = "inspect") {
            server.process.expect_error("ago: SIGINT");
            server.process.expect_error("src/bin/kv/connection.rs:");
        }
        server.process.signal("TERM");
        server.process.wait_for_code(1);
        server.process.expect_error("stopped at once by a second SIGTERM");
    }
}
