//! `just_from`: a sender of a function's result, called at the start.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn sends_what_the_function_returns() {
    assert_eq!(sync_wait(just_from(|| 6 * 7)), Outcome::Value(42));
}

#[test]
fn calls_the_function_once_and_only_when_started() {
    let calls = Cell::new(0);
    let mut slot = WaitSlot::new();
    let prepared = prepare(just_from(|| calls.set(calls.get() + 1)), &mut slot);
    assert_eq!(calls.get(), 0);
    prepared.wait().unwrap();
    assert_eq!(calls.get(), 1);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = census.value();
    let kept = sync_wait(just_from(move || value)).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let mut log = vec![1];
    sync_wait(just_from(|| log.push(2))).unwrap();
    assert_eq!(log, [1, 2]);
}

#[test]
fn the_function_need_not_be_send_where_nothing_crosses_threads() {
    let shared = Rc::new(5);
    assert_eq!(sync_wait(just_from(|| *shared)).unwrap(), 5);
}

#[test]
fn a_panic_of_the_function_arrives() {
    assert_eq!(
        panic_message(|| sync_wait(just_from(|| -> i32 { panic!("in just_from") }))),
        "in just_from"
    );
}

#[test]
fn a_panic_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    panic_message(|| {
        sync_wait(just_from(move || {
            let _value = &value;
            panic!("boom");
        }))
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn ignores_a_stop() {
    let source = StopSource::new();
    source.request_stop();
    let work = just_from(|| 1).write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work).unwrap(), 1);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    drop(prepare(
        just_from(move || {
            let _value = &value;
            panic!("called");
        }),
        &mut slot,
    ));
    assert_eq!(census.alive(), 0);
}

#[test]
fn runs_on_the_thread_that_starts_it() {
    with_loop(|scheduler| {
        let there = sync_wait(starts_on(scheduler, just_from(|| thread::current().id()))).unwrap();
        assert_ne!(there, thread::current().id());
    });
    let here = sync_wait(just_from(|| thread::current().id())).unwrap();
    assert_eq!(here, thread::current().id());
}

#[test]
fn completes_inline() {
    assert_eq!(completes(&just_from(|| 1)), Completes::Inline);
}

#[test]
fn does_not_allocate() {
    assert_eq!(allocations(|| sync_wait(just_from(|| 1)).unwrap()), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        assert_eq!(sync_wait(just_from(|| 7).repeat_until(million())).unwrap(), 7);
    });
}
