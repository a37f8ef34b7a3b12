//! The messages that a user reads when something does not compile.
//!
//! After a change that is meant, `TRYBUILD=overwrite cargo test --test ui` writes the messages anew.

#[test]
fn messages_say_what_to_write() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/ui/pass.rs");
    tests.compile_fail("tests/ui/*_*.rs");
}
