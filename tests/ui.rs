//! The messages that a user reads when something does not compile.
//!
//! After a change that is meant, `TRYBUILD=overwrite cargo test --test ui` writes the messages anew.

use std::process::Command;

#[test]
fn messages_say_what_to_write() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/ui/pass.rs");
    // The words around ours are the compiler's, and a nightly one is free to change them from day to day.
    if is_nightly() {
        eprintln!("the messages are those of a stable compiler; only what must compile was tried");
    } else {
        tests.compile_fail("tests/ui/*_*.rs");
    }
}

fn is_nightly() -> bool {
    let version = Command::new("rustc").arg("--version").output().expect("a compiler");
    String::from_utf8_lossy(&version.stdout).contains("nightly")
}
