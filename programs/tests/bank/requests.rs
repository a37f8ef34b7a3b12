//! What clients get, and what becomes of requests whose clients do not wait for it.

use std::time::Duration;

use crate::common::{PATIENCE, Process};
use crate::server::{PROGRAM, Server, Transfers};

fn transfers(committed: usize, rolled_back: usize) -> Transfers {
    Transfers { committed, rolled_back }
}

#[test]
fn money_is_moved() {
    let mut server = Server::start(&[]);
    // One connection for all requests.
    let mut client = server.connect();
    for (order, status, answer) in [
        ("ada bob 5", 200, "transferred"),
        ("  ada\nbob\t995 ", 200, "transferred"),
        ("ada bob 1", 409, "not enough money"),
        ("ada eve 1", 404, "no such account"),
        ("eve ada 1", 404, "no such account"),
        ("ada bob", 400, "expected FROM TO AMOUNT"),
        ("ada bob 1 2", 400, "expected FROM TO AMOUNT"),
        ("ada bob 0", 400, "expected FROM TO AMOUNT"),
        ("ada bob -1", 400, "expected FROM TO AMOUNT"),
        ("ada bob 9223372036854775808", 400, "expected FROM TO AMOUNT"),
        ("bob ada 9223372036854775807", 409, "not enough money"),
        ("", 400, "expected FROM TO AMOUNT"),
    ] {
        client.post(order);
        assert_eq!(client.answer(), (status, answer.to_owned()), "{order:?}");
    }
    for (path, status, answer) in [
        ("/accounts/ada", 200, "0"),
        ("/accounts/bob", 200, "2000"),
        ("/accounts/eve", 404, "no such account"),
        ("/accounts", 404, ""),
        ("/transfers", 405, ""),
    ] {
        client.get(path);
        assert_eq!(client.answer(), (status, answer.to_owned()), "{path}");
    }
    assert_eq!(server.end("INT"), transfers(2, 2));
}

#[test]
fn a_client_that_leaves_has_its_transfer_rolled_back() {
    let mut server = Server::start(&["--timeout", "600"]);
    let client = server.order("ada moon 5");
    server.wait_for_money("ada", 995);
    drop(client);
    server.wait_for_money("ada", 1000);
    assert_eq!(server.end("TERM"), transfers(0, 1));
}

#[test]
fn a_request_has_a_deadline() {
    for timeout in ["0.2", "0.8", "3.2", "12.8"] {
        let mut server = Server::start(&["--timeout", timeout]);
        let mut client = server.order("ada moon 5");
        assert_eq!(client.answer(), (504, "deadline exceeded".to_owned()));
        server.wait_for_money("ada", 1000);
        let ended = server.end("TERM");
        if ended == transfers(0, 1) {
            return;
        }
        // On a busy machine the deadline may pass before the transfer has begun.
        assert_eq!(ended, transfers(0, 0));
    }
    panic!("no transfer has begun in time");
}

#[test]
fn requests_beyond_the_limit_wait() {
    let mut server = Server::start(&["--max-requests", "1", "--timeout", "600"]);
    let first = server.order("ada moon 5");
    server.wait_for_requests("POST /transfers", 1);
    let mut second = server.order("ada bob 5");
    second.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(second.try_answer(), None, "there is no room");
    second.0.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(first);
    assert_eq!(second.answer(), (200, "transferred".to_owned()));
    assert_eq!(server.end("INT"), transfers(1, 1));
}

#[test]
fn connections_beyond_the_limit_wait() {
    let mut server = Server::start(&["--max-connections", "1"]);
    let mut first = server.connect();
    first.get("/accounts/ada");
    assert_eq!(first.answer(), (200, "1000".to_owned()));
    let mut second = server.order("ada bob 5");
    second.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(second.try_answer(), None, "there is no room");
    second.0.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(first);
    assert_eq!(second.answer(), (200, "transferred".to_owned()));
    assert_eq!(server.end("INT"), transfers(1, 0));
}

#[test]
fn the_demonstration() {
    // More time than a busy machine takes for the short one.
    let mut process = Process::start(PROGRAM, &["--demo", "--report", "--timeout", "2"]);
    process.wait_for_code(0);
    let output = process.stdout();
    let (first, rest) = output.split_once('\n').expect("several lines");
    assert!(first.starts_with("listening on http://127.0.0.1:"), "{first}");
    let expected = "a short one: transferred\n\
                    a long one: deadline exceeded\n\
                    a late one: rolled back: the demonstration\n\
                    stopped by the demonstration: 4 connections\n\
                    4 transfers: 1 committed, 3 rolled back; 3000 in all accounts\n\
                    left: 0 tasks, 0 sockets, 0 threads\n";
    assert_eq!((rest, process.stderr().as_str()), (expected, ""));
}
