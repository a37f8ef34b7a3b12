//! The messages that the compiler prints for a wrong `#[bowline_tokio::main]`.
//!
//! After an intended change, `TRYBUILD=overwrite cargo test -p bowline-tokio --test ui` updates the messages.
#![cfg(feature = "macros")]

use std::process::Command;

#[test]
fn messages_say_what_to_write() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/ui/pass.rs");
    // The rest of a message is the compiler's, and may change with each nightly.
    if is_nightly() {
        eprintln!("the messages are those of a stable compiler; only what must compile was tried");
    } else {
        tests.compile_fail("tests/ui/main_*.rs");
    }
}

fn is_nightly() -> bool {
    let version = Command::new("rustc").arg("--version").output().expect("a compiler");
    String::from_utf8_lossy(&version.stdout).contains("nightly")
}
