//! The search, as a function and as a process.

#[allow(dead_code, reason = "each test binary uses some of it")]
#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bowline::prelude::*;
use bowline_programs::search::{self, Found};
use common::{Directory, Process};

/// Makes files with ten lines each. The line 1 + n % 10 of file n has the word "knot".
fn files(directory: &Directory, count: usize) -> Vec<PathBuf> {
    for number in 0..count {
        let below = directory.path().join(format!("{:02}", number / 100));
        fs::create_dir_all(&below).unwrap();
        let lines = (0..10).map(|line| {
            if line == number % 10 {
                format!("a knot, {number}\n")
            } else {
                "rope\n".to_owned()
            }
        });
        fs::write(below.join(format!("{number:04}")), lines.collect::<String>()).unwrap();
    }
    list(directory.path())
}

fn list(path: &Path) -> Vec<PathBuf> {
    let (mut files, mut errors) = (Vec::new(), Vec::new());
    search::list(path, &mut files, &mut errors).unwrap();
    assert!(errors.is_empty());
    files
}

fn texts(found: &Found<'_>) -> Vec<String> {
    found
        .matches
        .iter()
        .map(|found| format!("{}: {}", found.line, found.text))
        .collect()
}

#[test]
fn every_match_is_found_in_order() {
    let directory = Directory::new();
    let files = files(&directory, 1000);
    assert_eq!(files.len(), 1000);
    for threads in [1, 2, 7] {
        let found = search::search(&ThreadPool::new(threads), &files, b"knot", usize::MAX);
        let expected: Vec<_> = (0..1000)
            .map(|number| format!("{}: a knot, {number}", 1 + number % 10))
            .collect();
        assert_eq!(texts(&found), expected);
        assert_eq!(found.searched, 1000);
        assert!(found.errors.is_empty());
    }
}

#[test]
fn the_first_matches_are_the_same_on_any_number_of_threads() {
    let directory = Directory::new();
    let files = files(&directory, 1000);
    for threads in [1, 2, 7] {
        for limit in [0, 1, 2, 10, 999, 1000, 1001] {
            let found = search::search(&ThreadPool::new(threads), &files, b"knot", limit);
            let expected: Vec<_> = (0..limit.min(1000))
                .map(|number| format!("{}: a knot, {number}", 1 + number % 10))
                .collect();
            assert_eq!(texts(&found), expected, "{limit} matches on {threads} threads");
        }
    }
}

#[test]
fn the_rest_is_cancelled() {
    let directory = Directory::new();
    let files = files(&directory, 1000);
    // A thread searches the files in their order, so it is done after the first.
    let found = search::search(&ThreadPool::new(1), &files, b"knot", 1);
    assert_eq!(texts(&found), ["1: a knot, 0"]);
    assert_eq!(found.searched, 1);
}

#[test]
fn files_that_are_not_text_are_skipped() {
    let directory = Directory::new();
    fs::write(directory.path().join("binary"), b"knot \0 knot").unwrap();
    fs::write(directory.path().join("latin-1"), b"the kn\xf6t\r\nknot \xff\r\n").unwrap();
    fs::write(directory.path().join("long"), "knot".repeat(1_000_000)).unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    fs::write(directory.path().join("no end"), "knot").unwrap();
    symlink("no end", directory.path().join("a link")).unwrap();
    symlink("..", directory.path().join("a loop")).unwrap();
    let files = list(directory.path());
    let found = search::search(&ThreadPool::new(2), &files, b"knot", usize::MAX);
    assert_eq!(texts(&found), ["2: knot \u{fffd}", "1: knot"]);
}

#[test]
fn a_file_that_is_gone_is_an_error_and_the_others_are_searched() {
    let directory = Directory::new();
    let files = files(&directory, 20);
    fs::remove_file(&files[3]).unwrap();
    let found = search::search(&ThreadPool::new(2), &files, b"knot", usize::MAX);
    assert_eq!(found.matches.len(), 19);
    assert_eq!(found.errors.len(), 1);
    assert_eq!(found.errors[0].0, files[3]);
    // Not among the files up to the last match.
    let found = search::search(&ThreadPool::new(2), &files, b"knot", 3);
    assert!(found.errors.is_empty());
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let mut process = Process::start(env!("CARGO_BIN_EXE_search"), arguments);
    let code = process.wait().code().expect("no signal ends it");
    (code, process.stdout(), process.stderr())
}

#[test]
fn the_program_prints_paths_and_lines() {
    let directory = Directory::new();
    files(&directory, 30);
    let at = |name: &str| directory.join(name);
    let root = directory.join("");
    let root = root.trim_end_matches('/');
    let (code, output, errors) = run(&["--limit", "2", "--threads=3", "a knot", root]);
    let expected = format!("{}:1:a knot, 0\n{}:2:a knot, 1\n", at("00/0000"), at("00/0001"));
    assert_eq!((code, output, errors), (0, expected, String::new()));
    // Files may be named, too.
    let (code, output, _) = run(&["a knot", &at("00/0012"), &at("00/0007")]);
    let expected = format!("{}:3:a knot, 12\n{}:8:a knot, 7\n", at("00/0012"), at("00/0007"));
    assert_eq!((code, output), (0, expected));
    assert_eq!(run(&["bowline", root]), (1, String::new(), String::new()));
}

#[test]
fn the_program_says_what_is_wrong() {
    let directory = Directory::new();
    fs::write(directory.path().join("file"), "knot\n").unwrap();
    let missing = directory.join("missing");
    let (code, output, errors) = run(&["knot", &missing, &directory.join("file")]);
    assert_eq!((code, output), (2, format!("{}:1:knot\n", directory.join("file"))));
    assert_eq!(
        errors,
        format!("search: {missing}: No such file or directory (os error 2)\n")
    );
    let wrong: [(&[&str], &str); 3] = [
        (&[], "a string to search for is missing"),
        (
            &["--limit", "none", "knot"],
            "--limit none: invalid digit found in string",
        ),
        (&["-x", "knot"], "unknown option -x"),
    ];
    for (arguments, message) in wrong {
        assert_eq!(run(arguments), (2, String::new(), format!("{message}\nTry --help.\n")));
    }
    let (code, output, _) = run(&["--help"]);
    assert!(code == 0 && output.starts_with("Usage: search"));
}

/// Runs the program in a pipeline: `pipeline` is the shell's text after it. Returns what the shell prints to both outputs.
fn run_in_shell(pipeline: &str, arguments: &[&str]) -> (String, String) {
    let script = format!("{{ \"$0\" \"$@\"; echo \"code $?\" >&2; }} {pipeline}");
    let mut shell = Process::start(
        "sh",
        &[&["-c", &script, env!("CARGO_BIN_EXE_search")], arguments].concat(),
    );
    shell.wait();
    (shell.stdout(), shell.stderr())
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let directory = Directory::new();
    // More than a pipe and the buffers of both programs take.
    fs::write(
        directory.path().join("file"),
        "a knot in a long line of rope\n".repeat(100_000),
    )
    .unwrap();
    let first = format!("{}:1:a knot in a long line of rope\n", directory.join("file"));
    let (output, errors) = run_in_shell("| head -n 1", &["knot", &directory.join("file")]);
    assert_eq!((output, errors), (first, "code 0\n".to_owned()));
    // A reader that has left before the first line.
    let (output, errors) = run_in_shell("| true", &["knot", &directory.join("file")]);
    assert_eq!((output, errors), (String::new(), "code 0\n".to_owned()));
    let (output, errors) = run_in_shell("| true", &["--help"]);
    assert_eq!((output, errors), (String::new(), "code 0\n".to_owned()));
}

#[test]
#[cfg(target_os = "linux")]
fn an_output_that_takes_nothing_is_an_error() {
    let directory = Directory::new();
    fs::write(directory.path().join("file"), "knot\n").unwrap();
    let (output, errors) = run_in_shell(">/dev/full", &["knot", &directory.join("file")]);
    let expected = "search: standard output: No space left on device (os error 28)\ncode 2\n";
    assert_eq!((output.as_str(), errors.as_str()), ("", expected));
}
