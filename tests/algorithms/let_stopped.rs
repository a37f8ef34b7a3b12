//! `let_stopped`: a second sender in place of a stop.

use std::convert::Infallible;

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn runs_the_sender_that_the_function_makes() {
    assert_eq!(
        sync_wait(just_stopped().let_stopped(|| just("default"))).unwrap(),
        "default"
    );
}

#[test]
fn the_first_operation_is_destroyed_before_the_function_runs() {
    let census = Census::new();
    let held = census.value();
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just_stopped::<usize, Infallible>().repeat_until(move |_| {
        let _held = &held;
        true
    });
    let alive = sync_wait(first.let_stopped(|| just(census.alive()))).unwrap();
    assert_eq!(alive, 0);
}

#[test]
fn a_stop_before_the_start_calls_the_function_and_is_still_seen_by_the_second() {
    let source = StopSource::new();
    source.request_stop();
    let work = never::<bool, Infallible>()
        .let_stopped(|| read_env(StopRequested))
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).unwrap());
}

#[test]
fn a_stop_during_the_first_and_again_calls_the_function_once() {
    let source = StopSource::new();
    let mut calls = 0;
    let work = when_all((
        never::<&str, Infallible>().let_stopped(|| {
            calls += 1;
            just("default")
        }),
        just_from(|| (source.request_stop(), source.request_stop())),
    ))
    .write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work).unwrap(), ("default", (true, false)));
    assert_eq!(calls, 1);
}
