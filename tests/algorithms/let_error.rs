//! `let_error`: a second sender, created from the first one's error.

use std::convert::Infallible;

use crate::common::*;
use bowline::factories::Just;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn runs_the_sender_that_the_function_makes() {
    let work = just_error::<usize, _>("three").let_error(|error| just(error.len()));
    assert_eq!(sync_wait(work).unwrap(), 5);
}

#[test]
fn the_first_operation_is_destroyed_before_the_function_runs() {
    let census = Census::new();
    let held = census.value();
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just_error::<usize, _>("no").retry_if(move |_| {
        let _held = &held;
        false
    });
    let alive = sync_wait(first.let_error(|_| just(census.alive()))).unwrap();
    assert_eq!(alive, 0);
}

#[test]
fn a_stop_before_the_start_reaches_the_first() {
    let source = StopSource::new();
    source.request_stop();
    let work = never::<i32, &str>()
        .let_error(|_| -> Just<i32> { panic!("called") })
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn a_stop_during_the_first_reaches_the_second() {
    let source = StopSource::new();
    let work = just_from(|| source.request_stop())
        .infallible_into()
        .let_value(just_error::<bool, _>)
        .let_error(|first| never::<bool, Infallible>().upon_stopped(move || first))
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).unwrap());
}
