//! `try_then`: maps the value with a function that may fail.

use crate::common::*;
use bowline::prelude::*;

#[test]
fn ok_is_the_value_and_err_is_the_error() {
    let parse = |text: &'static str| just(text).infallible_into().try_then(str::parse::<u8>);
    assert_eq!(sync_wait(parse("7")).unwrap(), 7);
    assert!(sync_wait(parse("seven")).is_error());
}

#[test]
fn an_error_drops_the_value() {
    let census = Census::new();
    let work = just(census.value()).infallible_into().try_then(|_| Err::<(), _>("no"));
    assert_eq!(sync_wait(work).unwrap_err(), "no");
    assert_eq!(census.alive(), 0);
}
