//! Wrong command lines, ports in use, and peers that do not keep to the protocol.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::common::Directory;
use crate::server::Kind;

crate::for_each_server! {
    command_lines,
    a_port_in_use,
    garbage_is_answered_and_ends_the_connection,
    half_a_request_is_not_executed,
    a_stalled_request_ends_at_the_idle_deadline,
    a_request_that_is_too_large,
    a_peer_that_takes_no_answers,
    connections_beyond_the_limit_wait,
    connections_beyond_the_limit_of_open_files_wait,
    keys_are_saved_and_loaded,
    a_file_that_has_no_keys,
}

fn command_lines(kind: Kind) {
    let mut help = kind.start_with(&["--help"]);
    help.wait_for_code(0);
    assert!(help.stdout().starts_with("Usage: kv") && help.stdout().contains("--max-request BYTES"));
    assert_eq!(help.stderr(), "");
    for (options, message) in [
        (&["--threads", "0"][..], "--threads 0: must be at least 1"),
        (&["--addr", "here"], "--addr here: invalid socket address syntax"),
        (
            &["--idle-timeout", "-1"],
            "--idle-timeout -1: must be a positive number of seconds",
        ),
        (&["--save"], "--save needs a value"),
        (&["--fast"], "unknown option --fast"),
        (&["6379"], "unexpected argument 6379"),
    ] {
        let mut refused = kind.start_with(options);
        refused.wait_for_code(2);
        assert_eq!(refused.stderr(), format!("{message}\nTry --help.\n"));
        assert_eq!(refused.stdout(), "");
    }
}

fn a_port_in_use(kind: Kind) {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let mut server = kind.start_with(&["--addr", &address]);
    server.wait_for_code(1);
    assert_eq!(server.stdout(), "");
    assert!(
        server
            .stderr()
            .contains(&format!("cannot listen at {address}: Address already in use")),
        "{}",
        server.stderr()
    );
}

fn garbage_is_answered_and_ends_the_connection(kind: Kind) {
    let mut server = kind.start(&[]);
    let mut neighbour = server.connect();
    for (garbage, answer) in [
        (&b"*x\r\n"[..], "-ERR Protocol error: invalid multibulk length\r\n"),
        (
            b"*2\r\n$3\r\nGET\r\n:5\r\n",
            "-ERR Protocol error: expected '$', got ':'\r\n",
        ),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        // The answers before it are sent.
        (
            b"PING\r\n*1\r\n$1\r\nabc\r\nPING\r\n",
            "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n",
        ),
        (&[0xff; 70_000], "-ERR Protocol error: too big inline request\r\n"),
    ] {
        let mut peer = server.connect();
        peer.send(garbage);
        assert_eq!(peer.rest(), answer);
    }
    // A line of garbage is an unknown command, as in Redis. The connection stays open.
    neighbour.send(b"GET / HTTP/1.1\r\n\x00\xff\r\nPING\r\n");
    neighbour.expect("-ERR wrong number of arguments for 'get' command\r\n");
    neighbour.expect("-ERR unknown command '\\x00\\xff'\r\n+PONG\r\n");
    server.end("INT");
}

fn half_a_request_is_not_executed(kind: Kind) {
    let mut server = kind.start(&[]);
    let whole = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
    for cut in 0..whole.len() {
        server.connect().send(&whole[..cut]);
    }
    // The same in pieces is executed once it is whole.
    let mut patient = server.connect();
    for cut in 0..whole.len() {
        patient.send(&whole[cut..=cut]);
    }
    patient.expect("+OK\r\n");
    patient.send(b"DBSIZE\r\n");
    patient.expect(":1\r\n");
    assert_eq!(server.end("INT"), 1);
}

fn a_stalled_request_ends_at_the_idle_deadline(kind: Kind) {
    for timeout in ["0.2", "0.8", "3.2", "12.8"] {
        let mut server = kind.start(&["--idle-timeout", timeout]);
        let mut silent = server.connect();
        let mut stalled = server.connect();
        let sent = stalled.0.write_all(b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\n");
        let mut answer = Vec::new();
        let ended = sent.and_then(|()| stalled.0.read_to_end(&mut answer));
        assert_eq!(silent.rest(), "");
        assert_eq!(server.end("INT"), 0);
        if !answer.is_empty() {
            assert_eq!((answer.as_slice(), ended.ok()), (&b"+PONG\r\n"[..], Some(7)));
            return;
        }
        // On a busy machine the deadline may pass before the first request has arrived.
    }
    panic!("no request has arrived in time");
}

fn a_request_that_is_too_large(kind: Kind) {
    let mut server = kind.start(&["--max-request", "1000"]);
    let answer = "-ERR Protocol error: request is larger than 1000 bytes\r\n";
    // The announced length is enough.
    let mut peer = server.connect();
    peer.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$9999999999\r\n");
    assert_eq!(peer.rest(), answer);
    // A peer that sends on sees the answer, too: its connection is not reset before.
    let mut peer = server.connect();
    peer.send(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\n");
    peer.send(vec![b'x'; 1_000_000]);
    peer.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(peer.rest(), answer);
    // The limit is that of one request, not of what is sent at a time.
    let mut peer = server.connect();
    peer.send(b"PING\r\n".repeat(1000));
    peer.expect(&"+PONG\r\n".repeat(1000));
    assert_eq!(server.end("INT"), 0);
}

fn a_peer_that_takes_no_answers(kind: Kind) {
    let mut server = kind.start(&["--write-timeout", "0.2"]);
    let mut peer = server.connect();
    peer.send(format!(
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n{}\r\n",
        "x".repeat(100_000)
    ));
    peer.expect("+OK\r\n");
    // The server reads no more requests than it can answer. So these writes wait, until the deadline ends the connection.
    let error = loop {
        if let Err(error) = peer.0.write_all(&b"GET a\r\n".repeat(100)) {
            break error;
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
    server.connect().send(b"PING\r\n");
    assert_eq!(server.end("INT"), 1);
}

fn connections_beyond_the_limit_wait(kind: Kind) {
    let mut server = kind.start(&["--max-connections", "2"]);
    let (mut first, mut second) = (server.connect(), server.connect());
    for served in [&mut first, &mut second] {
        served.send(b"PING\r\n");
        served.expect("+PONG\r\n");
    }
    let mut third = server.connect();
    third.send(b"PING\r\n");
    third.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let unanswered = third.0.read_exact(&mut [0]).expect_err("there is no room");
    assert!(
        matches!(unanswered.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{unanswered}"
    );
    third.0.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
    drop(first);
    third.expect("+PONG\r\n");
    // At the limit the server ends like anywhere else.
    server.end("TERM");
    assert_eq!(second.rest(), "");
}

fn connections_beyond_the_limit_of_open_files_wait(kind: Kind) {
    let mut server = kind.start_with_files(40, &[]);
    let mut peers: Vec<_> = (0..80).map(|_| server.connect()).collect();
    for peer in &mut peers {
        peer.send(b"PING\r\n");
    }
    let message = server.process.expect_error("cannot accept a connection: ");
    assert!(message.contains("Too many open files"), "{message}");
    // Those that are open are served. Each that ends makes room for another one.
    for mut peer in peers {
        peer.expect("+PONG\r\n");
    }
    // Connections end, as elsewhere, also while no more can be accepted.
    let mut peers: Vec<_> = (0..80).map(|_| server.connect()).collect();
    peers[0].send(b"PING\r\n");
    peers[0].expect("+PONG\r\n");
    assert_eq!(server.end("TERM"), 0);
    let printed = server.process.stderr().matches("cannot accept a connection").count();
    assert_eq!(printed, 1, "{}", server.process.stderr());
}

fn keys_are_saved_and_loaded(kind: Kind) {
    let directory = Directory::new();
    let file = directory.join("keys");
    let options = ["--save", &file];
    let mut server = kind.start(&options);
    let mut peer = server.connect();
    peer.send(b"MSET a 1 b 2\r\nSET c 3 EX 1000\r\nSET d 4 PX 1\r\n");
    peer.expect("+OK\r\n+OK\r\n+OK\r\n");
    thread::sleep(Duration::from_millis(2));
    assert_eq!(server.end("INT"), 3);
    assert_eq!(directory.files(), ["keys"]);
    let mut server = kind.start(&options);
    let mut peer = server.connect();
    peer.send(b"MGET a b c d\r\nTTL a\r\nEXPIRE c 5\r\n");
    peer.expect("*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$-1\r\n:-1\r\n:1\r\n");
    assert_eq!(server.end("TERM"), 3);
}

fn a_file_that_has_no_keys(kind: Kind) {
    let directory = Directory::new();
    let file = directory.join("keys");
    for content in ["knot", "*1\r\n$3\r\nSET", "PING\r\n", "SET a\r\n", "SET a 1\r\n*x\r\n"] {
        fs::write(&file, content).unwrap();
        let mut server = kind.start_with(&["--addr", "127.0.0.1:0", "--save", &file]);
        server.wait_for_code(1);
        assert_eq!(server.stdout(), "", "it does not listen");
        assert!(
            server.stderr().contains("not a file of keys, at byte "),
            "{}",
            server.stderr()
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
    // A file that cannot be written is told at the end.
    let mut server = kind.start(&["--save", &directory.join("missing/keys")]);
    server.process.signal("INT");
    server.process.wait_for_code(1);
    assert!(
        server.process.stderr().contains("cannot save "),
        "{}",
        server.process.stderr()
    );
}
