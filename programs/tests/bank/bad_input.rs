//! Wrong command lines, ports in use, and clients that do not keep to the protocol.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener};

use crate::common::Process;
use crate::server::{PROGRAM, Server, Transfers, post};

const NONE: Transfers = Transfers {
    committed: 0,
    rolled_back: 0,
};

#[test]
fn command_lines() {
    let mut help = Process::start(PROGRAM, &["--help"]);
    help.wait_for_code(0);
    assert!(help.stdout().starts_with("Usage: bank") && help.stdout().contains("--max-body BYTES"));
    for (options, message) in [
        (
            &["--port", "65536"][..],
            "--port 65536: number too large to fit in target type",
        ),
        (&["--port"], "--port needs a value"),
        (&["--max-body", "0"], "--max-body 0: must be at least 1"),
        (&["--grace", "0"], "--grace 0: must be a positive number of seconds"),
        (&["--fast"], "unknown option --fast"),
        (&["3000"], "unexpected argument 3000"),
    ] {
        let mut refused = Process::start(PROGRAM, options);
        refused.wait_for_code(2);
        assert_eq!(
            (refused.stdout(), refused.stderr()),
            (String::new(), format!("{message}\nTry --help.\n"))
        );
    }
}

#[test]
fn a_port_in_use() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let mut process = Process::start(PROGRAM, &["--port", &address.port().to_string()]);
    process.wait_for_code(1);
    let message = format!("bank: cannot listen at {address}: Address already in use");
    assert!(process.stderr().starts_with(&message), "{}", process.stderr());
    assert_eq!(process.stdout(), "");
}

#[test]
fn garbage_is_answered_and_ends_the_connection() {
    let mut server = Server::start(&[]);
    let mut neighbour = server.connect();
    let long_head = format!("GET /accounts/ada HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1_000_000));
    let many_lines = format!("GET /accounts/ada HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for (garbage, status) in [
        (&b"knot\r\n\r\n"[..], 400),
        (&[0xff; 10_000], 400),
        // The first bytes of TLS.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (
            b"POST /transfers HTTP/1.1\r\ncontent-length: knot\r\n\r\nada bob 5",
            400,
        ),
        (
            b"POST /transfers HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nknot\r\n",
            400,
        ),
        (long_head.as_bytes(), 431),
        (many_lines.as_bytes(), 431),
    ] {
        let mut client = server.connect();
        // The service may have refused it before it has read everything.
        let _ = client.0.write_all(garbage);
        let answer = client.try_answer();
        assert_eq!(
            answer.map(|(status, _)| status),
            Some(status),
            "{}",
            garbage[..20.min(garbage.len())].escape_ascii()
        );
        client.expect_end();
    }
    neighbour.get("/accounts/ada");
    assert_eq!(neighbour.answer(), (200, "1000".to_owned()));
    assert_eq!(server.end("INT"), NONE);
}

#[test]
fn half_a_request_is_not_executed() {
    let mut server = Server::start(&[]);
    let whole = post("ada bob 5");
    for cut in 0..whole.len() {
        let mut client = server.connect();
        client.send(&whole[..cut]);
        if cut % 2 == 0 {
            // The client waits for an answer, which there is for half a body.
            client.0.shutdown(Shutdown::Write).unwrap();
            let answer = client.try_answer();
            assert!(answer.as_ref().is_none_or(|(status, _)| *status == 400), "{answer:?}");
        }
    }
    // The same in pieces is executed once it is whole.
    let mut patient = server.connect();
    for cut in 0..whole.len() {
        patient.send(&whole[cut..=cut]);
    }
    assert_eq!(patient.answer(), (200, "transferred".to_owned()));
    assert_eq!(server.end("INT").committed, 1);
}

#[test]
fn a_request_that_stalls_ends_at_the_deadline() {
    for timeout in ["0.5", "2", "8"] {
        let mut server = Server::start(&["--read-timeout", timeout, "--timeout", "600"]);
        let whole = post("ada bob 5");
        let mut silent = server.connect();
        let mut half_a_head = server.connect();
        let _ = half_a_head.0.write_all(&whole.as_bytes()[..20]);
        let mut half_a_body = server.connect();
        let _ = half_a_body.0.write_all(&whole.as_bytes()[..whole.len() - 1]);
        let answer = half_a_body.try_answer();
        half_a_body.expect_end();
        half_a_head.expect_end();
        silent.expect_end();
        assert_eq!(server.end("INT"), NONE);
        if let Some(answer) = answer {
            assert_eq!(answer, (408, "the body did not arrive in time".to_owned()));
            return;
        }
        // On a busy machine the time may be over before the head has arrived, which has no answer.
    }
    panic!("no head has arrived in time");
}

#[test]
fn a_body_that_is_too_large() {
    let mut server = Server::start(&["--max-body", "1000"]);
    let answer = (413, "more than 1000 bytes".to_owned());
    // The announced length is enough.
    let mut client = server.connect();
    client.send("POST /transfers HTTP/1.1\r\nhost: test\r\ncontent-length: 9999999999\r\n\r\n");
    assert_eq!(client.answer(), answer);
    // A client that sends on sees the answer, too: its connection is not reset before.
    let mut client = server.order(&"x".repeat(100_000));
    client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.answer(), answer);
    // Without a length the bytes are counted.
    let mut client = server.connect();
    client.send("POST /transfers HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(format!("3e9\r\n{}\r\n", "x".repeat(1001)));
    assert_eq!(client.answer(), answer);
    // The largest body.
    let mut client = server.order(&format!("ada bob 5{}", " ".repeat(991)));
    assert_eq!(client.answer(), (200, "transferred".to_owned()));
    assert_eq!(server.end("INT").committed, 1);
}

#[test]
fn a_client_that_takes_no_answers() {
    let options = ["--lifetime", "0.2", "--timeout", "0.2"];
    let mut server = Server::start(&options);
    let mut client = server.connect();
    let requests = "GET /accounts/ada HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100);
    // The service reads no more requests than it can answer. So these writes wait, until the lifetime of the connection is over.
    let error = loop {
        if let Err(error) = client.0.write_all(requests.as_bytes()) {
            break error;
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
    server.wait_for_money("ada", 1000);
    assert_eq!(server.end("INT"), NONE);
}
