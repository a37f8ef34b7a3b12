//! Signals: what ends, what is still answered, and what is printed.

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Process};
use crate::server::{Client, PROGRAM, Server, Transfers, post};

/// Waits until the service accepts no more connections: then it has seen the signal.
fn wait_until_closed(server: &Server) {
    while TcpStream::connect(server.address).is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Starts a transfer that does not end by itself, and waits until it is in the midst of it.
fn long_transfer(server: &Server) -> Client {
    let client = server.order("ada moon 5");
    server.wait_for_money("ada", 995);
    client
}

#[test]
fn signals_end_the_service() {
    for signal in ["INT", "TERM"] {
        let mut server = Server::start(&["--grace", "0.1", "--timeout", "600"]);
        let idle: Vec<_> = (0..20).map(|_| server.connect()).collect();
        let mut kept = server.order("bob ada 5");
        assert_eq!(kept.answer(), (200, "transferred".to_owned()));
        let mut client = server.order("bob moon 5");
        server.wait_for_money("bob", 990);
        server.process.signal(signal);
        assert_eq!(client.answer(), (503, format!("rolled back: SIG{signal}")));
        let expected = Transfers {
            committed: 1,
            rolled_back: 1,
        };
        assert_eq!(server.ended(&format!("SIG{signal}")), expected);
        for mut connection in [client, kept] {
            connection.expect_end();
        }
        for mut connection in idle {
            // A connection that was not accepted yet is reset.
            assert_eq!(connection.try_answer(), None);
        }
        assert!(TcpStream::connect(server.address).is_err(), "the port is free");
    }
}

#[test]
fn requests_have_some_time_at_the_end() {
    let mut server = Server::start(&["--grace", "600", "--timeout", "600"]);
    let mut half = server.connect();
    let whole = post("bob ada 5");
    half.send(&whole[..whole.len() - 1]);
    server.wait_for_requests("POST /transfers", 1);
    let client = long_transfer(&server);
    server.process.signal("INT");
    wait_until_closed(&server);
    // The service waits for the request that it is serving.
    half.send(&whole[whole.len() - 1..]);
    assert_eq!(half.answer(), (200, "transferred".to_owned()));
    half.expect_end();
    // And for this one, until its client has left.
    drop(client);
    let expected = Transfers {
        committed: 1,
        rolled_back: 1,
    };
    assert_eq!(server.ended("SIGINT"), expected);
}

/// The word of the tree for a task that waits.
const WAITS: &str = if cfg!(feature = "inspect") {
    "waiting"
} else {
    "running"
};

#[test]
fn a_second_signal_ends_the_service_at_once() {
    let mut server = Server::start(&["--grace", "600", "--timeout", "600"]);
    let _client = long_transfer(&server);
    server.process.signal("INT");
    wait_until_closed(&server);
    // The tree tells what the end waits for.
    server.process.signal("USR1");
    server.process.expect_in_tree(&format!("\"POST /transfers\": {WAITS}"));
    server.process.signal("TERM");
    server.process.wait_for_code(1);
    server.process.expect_error("bank: stopped at once by a second SIGTERM");
}

#[test]
fn a_client_that_takes_no_answers_delays_the_end_by_a_limited_time() {
    let mut server = Server::start(&["--grace", "0.1"]);
    let mut client = server.connect();
    client.0.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Until the service reads no more, since its answers find no room.
    while client
        .0
        .write_all(&b"GET /accounts/ada HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100))
        .is_ok()
    {}
    let mut half = server.connect();
    half.send("POST /trans");
    server.end("INT");
}

#[test]
fn a_signal_during_the_start() {
    for delay in 0..20 {
        let mut process = Process::start(PROGRAM, &["--port", "0"]);
        thread::sleep(Duration::from_micros(delay * 300));
        process.signal("TERM");
        let status = process.wait();
        // Before the handlers are installed the signal kills the process. After that it ends as always.
        if status.signal() == Some(15) {
            assert!(!process.stdout().contains("listening"), "{}", process.stdout());
        } else {
            assert_eq!(status.code(), Some(0), "{}", process.stderr());
            assert!(process.stdout().contains("0 transfers: "), "{}", process.stdout());
        }
    }
}

#[test]
fn the_tree_of_tasks_is_printed() {
    let mut server = Server::start(&["--timeout", "600"]);
    let client = long_transfer(&server);
    let connection = format!(" from {}\": {WAITS}", client.0.local_addr().unwrap());
    let line = server.process.expect_in_tree(&connection);
    assert!(
        line.starts_with("    task "),
        "it is below the task that accepts: {line:?}"
    );
    server.process.expect_in_tree(&format!("\"accept\": {WAITS}"));
    server.process.expect_in_tree(&format!("\"POST /transfers\": {WAITS}"));
    server.end("INT");
}

/// Clients that order, leave, stall and are killed at random, until a signal ends the service in the middle of it. No money is lost.
#[test]
fn no_money_is_lost() {
    let seed = std::env::var("BANK_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().expect("a number"));
    println!("BANK_SEED={seed}");
    let mut server = Server::start(&[
        "--timeout",
        "0.1",
        "--read-timeout",
        "0.1",
        "--grace",
        "0.05",
        "--max-requests",
        "8",
    ]);
    let is_ending = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|number| {
                let (server, is_ending, answered) = (&server, &is_ending, &answered);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed ^ number);
                    while let Ok(socket) = TcpStream::connect(server.address) {
                        let mut client = Client(socket);
                        let _ = talk(&mut client, &mut random, answered);
                    }
                    assert!(is_ending.load(Relaxed), "the service accepts until its end");
                })
            })
            .collect();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) || answered.load(Relaxed) == 0 {
            assert!(begin.elapsed() < PATIENCE, "no transfer was answered");
            thread::sleep(Duration::from_millis(10));
        }
        is_ending.store(true, Relaxed);
        server.process.signal("INT");
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    let answered = answered.into_inner();
    let transfers = server.ended("SIGINT");
    println!("{answered} transfers were answered: {transfers:?}");
    assert!(transfers.committed >= answered);
}

/// Sends some orders, and leaves in one of several ways.
fn talk(client: &mut Client, random: &mut fastrand::Rng, answered: &AtomicUsize) -> std::io::Result<()> {
    for _ in 0..random.u32(5..20) {
        let accounts = ["ada", "bob", "moon"];
        let (from, to) = (random.usize(0..3), random.usize(0..3));
        // Most are quick.
        let far = random.u32(0..10) == 0;
        let (from, to) = if far { (from, to) } else { (from % 2, to % 2) };
        let request = post(&format!("{} {} {}", accounts[from], accounts[to], random.u32(1..100)));
        match random.u32(0..10) {
            0 => {
                // Half a request.
                client
                    .0
                    .write_all(&request.as_bytes()[..random.usize(0..request.len())])?;
                return Ok(());
            }
            1 => {
                // A client that does not wait for the answer.
                client.0.write_all(request.as_bytes())?;
                thread::sleep(Duration::from_micros(random.u64(0..5000)));
                return Ok(());
            }
            _ => {
                client.0.write_all(request.as_bytes())?;
                match client.try_answer() {
                    Some((200, _)) => _ = answered.fetch_add(1, Relaxed),
                    Some((409 | 503 | 504, _)) => {}
                    Some(other) => panic!("{other:?}"),
                    None => return Ok(()),
                }
            }
        }
    }
    Ok(())
}
