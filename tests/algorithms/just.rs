//! `just`: a sender of a value.

use std::rc::Rc;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn sends_the_value() {
    assert_eq!(sync_wait(just(42)), Outcome::Value(42));
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just(census.value())).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let words = vec!["a", "b"];
    assert_eq!(sync_wait(just(&words)).unwrap(), &["a", "b"]);
    let mut count = 0;
    sync_wait(just(&mut count).then(|count| *count += 1)).unwrap();
    assert_eq!(count, 1);
}

#[test]
fn a_value_that_cannot_be_sent_passes_in_place() {
    assert_eq!(sync_wait(just(Rc::new(1)).then(|shared| *shared + 1)).unwrap(), 2);
}

#[test]
fn ignores_a_stop() {
    let source = StopSource::new();
    source.request_stop();
    assert_eq!(sync_wait(just(1).write_env(WithStopToken(source.token()))).unwrap(), 1);
}

#[test]
fn a_copy_sends_the_same() {
    let sender = just("again".to_owned());
    assert_eq!(sync_wait(sender.clone()).unwrap(), "again");
    assert_eq!(sync_wait(sender).unwrap(), "again");
}

#[test]
fn dropped_unstarted_it_drops_the_value() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let prepared = prepare(just(census.value()), &mut slot);
    assert_eq!(census.alive(), 1);
    drop(prepared);
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_inline() {
    assert_eq!(completes(&just(1)), Completes::Inline);
}

#[test]
fn does_not_allocate() {
    assert_eq!(allocations(|| sync_wait(just(1)).unwrap()), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        assert_eq!(sync_wait(just(7).repeat_until(million())).unwrap(), 7);
    });
}
