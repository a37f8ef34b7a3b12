//! The program `download` as a process, and a server that does not always do what it should.

#[allow(dead_code, reason = "each test binary uses some of it")]
#[path = "../common/mod.rs"]
mod common;

mod bars;
mod server;

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::{Directory, Process};
use server::Server;

fn start(directory: &Directory, options: &[&str], urls: &[String]) -> Process {
    let mut arguments = vec!["--output", directory.path().to_str().unwrap(), "--pause", "0.01"];
    arguments.extend(options);
    arguments.extend(urls.iter().map(String::as_str));
    Process::start(env!("CARGO_BIN_EXE_download"), &arguments)
}

/// Runs the program to its end. Returns its exit code, standard output and standard error.
fn run(directory: &Directory, options: &[&str], urls: &[String]) -> (i32, String, String) {
    let mut process = start(directory, options, urls);
    let code = process.wait().code().expect("no signal ends it");
    (code, process.stdout(), process.stderr())
}

fn content(directory: &Directory, name: &str) -> Vec<u8> {
    fs::read(directory.path().join(name)).expect("the file is there")
}

#[test]
fn files_are_downloaded() {
    let (server, directory) = (Server::start(), Directory::new());
    let urls = [
        server.url("/ok/0/empty"),
        server.url("/ok/1000000/large"),
        server.url("/chunked/30000/chunked?not=the&name"),
        server.url("/ok/10/"),
    ];
    let (code, output, errors) = run(&directory, &[], &urls);
    let expected = "empty: 0 bytes\nlarge: 1000000 bytes\nchunked: 30000 bytes\nindex.html: 10 bytes\n";
    assert_eq!((code, output.as_str(), errors.as_str()), (0, expected, ""));
    assert_eq!(directory.files(), ["chunked", "empty", "index.html", "large"]);
    for (name, length) in [
        ("empty", 0),
        ("large", 1_000_000),
        ("chunked", 30_000),
        ("index.html", 10),
    ] {
        assert!(content(&directory, name) == server::body(length), "{name}");
    }
}

#[test]
fn temporary_failures_are_tried_again() {
    let (server, directory) = (Server::start(), Directory::new());
    let requests = [
        "/busy/2/1000/a",
        "/cut/3/100000/b",
        "/reset/1/1000/c",
        "/garbage/1/1000/d",
    ];
    let (code, output, errors) = run(&directory, &[], &requests.map(|path| server.url(path)));
    let expected = "a: 1000 bytes\nb: 100000 bytes\nc: 1000 bytes\nd: 1000 bytes\n";
    assert_eq!((code, output.as_str(), errors.as_str()), (0, expected, ""));
    assert_eq!(requests.map(|path| server.requests(path)), [3, 4, 2, 2]);
    // On a busy machine the time may be over in a later attempt, too.
    let stall = "/stall/1/100000/e";
    let options = ["--stall-timeout", "0.3", "--retries", "999"];
    let (code, output, errors) = run(&directory, &options, &[server.url(stall)]);
    assert_eq!((code, output.as_str(), errors.as_str()), (0, "e: 100000 bytes\n", ""));
    assert!(server.requests(stall) >= 2);
    assert_eq!(directory.files(), ["a", "b", "c", "d", "e"]);
    // Nothing of an attempt that was cut short is in the file.
    assert!(content(&directory, "b") == server::body(100_000));
    assert!(content(&directory, "e") == server::body(100_000));
}

#[test]
fn retries_are_limited() {
    let (server, directory) = (Server::start(), Directory::new());
    let urls = [
        server.url("/busy/9/10/a"),
        server.url("/cut/9/10/b"),
        server.url("/ok/10/c"),
    ];
    let (code, output, _) = run(&directory, &["--retries", "2"], &urls);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(code, 1);
    assert_eq!(lines[0], "a: failed: the server answered 503 Service Unavailable");
    assert!(lines[1].starts_with("b: failed: "), "{}", lines[1]);
    assert_eq!(lines[2], "c: 10 bytes");
    assert_eq!(
        (server.requests("/busy/9/10/a"), server.requests("/cut/9/10/b")),
        (3, 3)
    );
    assert_eq!(directory.files(), ["c"]);
}

#[test]
fn other_failures_are_not_tried_again() {
    let (server, directory) = (Server::start(), Directory::new());
    // A directory where a file should be.
    fs::create_dir(directory.path().join("b")).unwrap();
    let urls = [server.url("/missing"), server.url("/ok/10/b"), server.url("/ok/10/c")];
    let (code, output, _) = run(&directory, &[], &urls);
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(code, 1);
    assert_eq!(lines[0], "missing: failed: the server answered 404 Not Found");
    assert!(
        lines[1].starts_with("b: failed: cannot write the file: "),
        "{}",
        lines[1]
    );
    assert_eq!(lines[2], "c: 10 bytes");
    assert_eq!((server.requests("/missing"), server.requests("/ok/10/b")), (1, 1));
    assert_eq!(directory.files(), ["b", "c"]);
}

#[test]
fn a_server_that_is_not_there() {
    let directory = Directory::new();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, output, _) = run(&directory, &["--retries", "1"], &[format!("http://{address}/a")]);
    assert_eq!(code, 1);
    assert!(
        output.starts_with("a: failed: cannot connect: Connection refused"),
        "{output}"
    );
    assert!(directory.files().is_empty());
}

#[test]
fn the_width_is_used_and_not_exceeded() {
    let (server, directory) = (Server::start(), Directory::new());
    // The server answers when three requests are waiting.
    let urls: Vec<_> = (0..9).map(|number| server.url(&format!("/gate/3/{number}"))).collect();
    let (code, _, _) = run(&directory, &["--width", "3"], &urls);
    assert_eq!((code, server.most_at_a_time()), (0, 3));
    assert_eq!(directory.files().len(), 9);
}

#[test]
fn a_file_has_a_deadline() {
    for timeout in MORE_AND_MORE_TIME {
        let (server, directory) = (Server::start(), Directory::new());
        let urls = [
            server.url("/stall/999/1000/a"),
            server.url("/silent/b"),
            server.url("/ok/10/c"),
            // The deadline is that of all attempts and pauses.
            server.url("/busy/999999/10/d"),
        ];
        let (code, output, _) = run(&directory, &["--item-timeout", timeout, "--retries", "999999"], &urls);
        let expected = |c: &str| {
            let late = "failed: deadline exceeded";
            format!("a: {late}\nb: {late}\nc: {c}\nd: {late}\n")
        };
        assert_eq!(code, 1);
        if output == expected("10 bytes") {
            assert_eq!(directory.files(), ["c"]);
            return;
        }
        assert_eq!(output, expected("failed: deadline exceeded"));
    }
    panic!("no file has arrived in time");
}

/// Times for a test in which something is late and something is not. A busy machine needs a later one.
const MORE_AND_MORE_TIME: [&str; 4] = ["0.5", "1", "4", "16"];

#[test]
fn all_files_have_a_deadline() {
    for timeout in MORE_AND_MORE_TIME {
        let (server, directory) = (Server::start(), Directory::new());
        let paths = ["/ok/10/a", "/stall/999/1000/b", "/silent/c", "/ok/10/d"];
        let urls = paths.map(|path| server.url(path));
        let (code, output, errors) = run(&directory, &["--timeout", timeout, "--width", "2"], &urls);
        assert_eq!((code, errors.as_str()), (1, "download: deadline exceeded\n"));
        assert!(output.ends_with("d: failed: not started\n"), "{output}");
        assert_eq!(server.requests("/ok/10/d"), 0);
        let expected = "a: 10 bytes\nb: failed: cancelled: deadline exceeded\n\
                        c: failed: cancelled: deadline exceeded\nd: failed: not started\n";
        if output == expected {
            assert_eq!(directory.files(), ["a"]);
            return;
        }
    }
    panic!("no file has arrived in time");
}

#[test]
fn a_signal_leaves_no_partial_files() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let (server, directory) = (Server::start(), Directory::new());
        // A file of an earlier run is replaced by a whole one only.
        fs::write(directory.path().join("b"), "old").unwrap();
        let paths = [
            "/ok/10/a",
            "/stall/999/200000/b",
            "/silent/c",
            "/busy/999999/10/d",
            "/stall/999/300000/e",
            "/ok/10/f",
        ];
        let urls = paths.map(|path| server.url(path));
        let mut process = start(&directory, &["--width", "4", "--retries", "999999"], &urls);
        // The first file is whole, four downloads are in the midst of it, and one waits.
        wait_for(|| directory.files().contains(&"a".to_owned()) && partial_bytes(&directory) > 0);
        wait_for(|| server.requests("/silent/c") > 0 && server.requests("/busy/999999/10/d") > 2);
        wait_for(|| directory.files().contains(&".e.part".to_owned()));
        process.signal(signal);
        process.wait_for_code(code);
        let line = |name: &str| format!("{name}: failed: cancelled: SIG{signal}\n");
        let expected = format!(
            "a: 10 bytes\n{}{}{}{}f: failed: not started\n",
            line("b"),
            line("c"),
            line("d"),
            line("e")
        );
        assert_eq!(process.stdout(), expected);
        assert_eq!(process.stderr(), format!("download: stopped by SIG{signal}\n"));
        assert_eq!(directory.files(), ["a", "b"]);
        assert_eq!(content(&directory, "b"), b"old");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start();
    let (first, second) = (
        "download: stopped by SIGINT\n",
        "download: stopped at once by a second SIGTERM\n",
    );
    let mut ended_at_once = false;
    for _ in 0..100 {
        let directory = Directory::new();
        // Opening a pipe that has no reader blocks, like a file of a file system that does not answer.
        let pipe = Command::new("mkfifo").arg(directory.join(".b.part")).status();
        assert!(pipe.expect("mkfifo runs").success());
        let urls = [server.url("/stall/999/200000/a"), server.url("/stall/999/200000/b")];
        let mut process = start(&directory, &[], &urls);
        wait_for(|| directory.files().contains(&".a.part".to_owned()));
        // Most likely the other one opens its file by then. If it does not, the first signal ends it.
        thread::sleep(Duration::from_millis(50));
        process.signal("INT");
        wait_for(|| !directory.files().contains(&".a.part".to_owned()));
        thread::sleep(Duration::from_millis(50));
        process.signal("TERM");
        let code = process.wait().code();
        assert!(directory.files().is_empty(), "{:?}", directory.files());
        match code {
            Some(130) => assert_eq!(process.stderr(), first),
            Some(143) => {
                assert_eq!(process.stderr(), second);
                ended_at_once = true;
                break;
            }
            _ => panic!("exit code {code:?}: {}", process.stderr()),
        }
    }
    assert!(ended_at_once);
}

fn wait_for(is_so: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < common::PATIENCE, "it does not happen");
        thread::sleep(Duration::from_millis(2));
    }
}

fn partial_bytes(directory: &Directory) -> u64 {
    fs::metadata(directory.path().join(".b.part")).map_or(0, |file| file.len())
}

#[test]
fn a_signal_at_any_time_leaves_no_partial_files() {
    let server = Server::start();
    for delay in 0..30 {
        let directory = Directory::new();
        let urls: Vec<_> = (0..20)
            .map(|number| server.url(&format!("/ok/200000/{number}")))
            .collect();
        let mut process = start(&directory, &["--width", "8"], &urls);
        thread::sleep(Duration::from_millis(delay));
        process.signal("INT");
        let status = process.wait();
        // Before the handlers are installed, the signal kills the process, which has made no files.
        let whole = directory.files();
        match status.code() {
            None => assert!(whole.is_empty()),
            Some(0) => assert_eq!(whole.len(), 20),
            Some(130) => assert_eq!(whole.len(), process.stdout().matches(": 200000 bytes\n").count()),
            Some(code) => panic!("exit code {code}: {}", process.stderr()),
        }
        for name in whole {
            assert!(content(&directory, &name) == server::body(200_000), "{name}");
        }
    }
}

#[test]
fn command_lines() {
    let directory = Directory::new();
    let wrong: [(&[&str], &str); 8] = [
        (&[], "a URL is missing"),
        (
            &["https://host/a"],
            "https://host/a: only URLs such as http://host:port/path are supported",
        ),
        (&["a b"], "a b: invalid uri character"),
        (
            &["http://host/a", "http://host/b/a"],
            "two URLs have the same file name: a",
        ),
        (&["--width", "0", "http://host/a"], "--width 0: must be at least 1"),
        (
            &["--timeout", "0", "http://host/a"],
            "--timeout 0: must be a positive number of seconds",
        ),
        (
            &["--max-size", "0", "http://host/a"],
            "--max-size 0: must be at least 1",
        ),
        (&["--speed", "http://host/a"], "unknown option --speed"),
    ];
    for (arguments, message) in wrong {
        let (code, output, errors) = run(&directory, arguments, &[]);
        assert_eq!(
            (code, output.as_str(), errors),
            (2, "", format!("{message}\nTry --help.\n"))
        );
    }
    let (code, output, _) = run(&directory, &["--help"], &[]);
    assert!(code == 0 && output.starts_with("Usage: download"));
}

#[test]
fn a_file_that_is_too_large() {
    let (server, directory) = (Server::start(), Directory::new());
    let urls = [
        server.url("/endless/a"),
        server.url("/ok/100001/b"),
        server.url("/chunked/100001/c"),
        server.url("/ok/100000/d"),
        server.url("/chunked/100000/e"),
        server.url("/stall/999/9999999/f"),
    ];
    let (code, output, errors) = run(&directory, &["--max-size", "100000"], &urls);
    let line = |name: &str| format!("{name}: failed: larger than 100000 bytes\n");
    let expected = format!(
        "{}{}{}d: 100000 bytes\ne: 100000 bytes\n{}",
        line("a"),
        line("b"),
        line("c"),
        line("f")
    );
    assert_eq!((code, output, errors.as_str()), (1, expected, ""));
    assert_eq!(directory.files(), ["d", "e"]);
    // Another attempt would not help.
    assert_eq!((server.requests("/endless/a"), server.requests("/ok/100001/b")), (1, 1));
}

#[test]
fn the_tree_of_tasks_is_printed() {
    let (server, directory) = (Server::start(), Directory::new());
    let paths = ["/silent/a", "/silent/b", "/silent/c"];
    let mut process = start(&directory, &["--width", "2"], &paths.map(|path| server.url(path)));
    wait_for(|| paths[..2].iter().all(|path| server.requests(path) > 0));
    let state = if cfg!(feature = "inspect") {
        "waiting"
    } else {
        "running"
    };
    // Each file that is being downloaded is a task of its name, below the task of all downloads.
    let line = process.expect_in_tree(&format!("\"downloads\": {state}, priority Default"));
    assert!(line.starts_with("  task "), "it is a child of the program: {line:?}");
    for name in ["a", "b"] {
        let line = process.expect_in_tree(&format!("\"{name}\": {state}, priority Default"));
        assert!(line.starts_with("    task "), "it is below the downloads: {line:?}");
    }
    assert!(
        !process.stderr().contains("\"c\""),
        "it waits for room: {}",
        process.stderr()
    );
    process.signal("INT");
    process.wait_for_code(130);
}

#[test]
fn a_directory_that_is_not_there() {
    let (server, directory) = (Server::start(), Directory::new());
    let (missing, url) = (directory.join("missing"), server.url("/ok/1/a"));
    let mut process = Process::start(env!("CARGO_BIN_EXE_download"), &["--output", &missing, &url]);
    process.wait_for_code(1);
    let expected = "a: failed: cannot write the file: No such file or directory (os error 2)\n";
    assert_eq!(process.stdout(), expected);
}
