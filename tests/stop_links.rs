//! Long lines of linked stop sources.

mod common;

use bowline::stop::StopSource;
use common::*;

const LINKS: usize = 100_000;

/// A source, and the last of a long line of sources linked to it, each kept only by the next.
fn line() -> (StopSource, StopSource) {
    let first = StopSource::new();
    let mut last = StopSource::linked_to(&first.token());
    for _ in 1..LINKS {
        last = StopSource::linked_to(&last.token());
    }
    (first, last)
}

#[test]
fn a_stop_runs_down_a_long_line_in_constant_stack() {
    with_stack(SMALL_STACK, || {
        let (first, last) = line();
        assert!(first.request_stop());
        assert!(last.stop_requested());
    });
}

#[test]
fn a_long_line_is_dropped_in_constant_stack() {
    with_stack(SMALL_STACK, || {
        let (first, last) = line();
        drop(first);
        drop(last);
    });
}

#[test]
fn the_end_of_a_long_line_knows_whether_a_stop_can_come() {
    with_stack(SMALL_STACK, || {
        let (first, last) = line();
        let token = last.token();
        drop(last);
        assert!(token.stop_possible(), "the first source is still there");
        drop(first);
        assert!(!token.stop_possible());
    });
}
