//! `stopped_as_option`: turns a stop into `None`, and a value into `Some`.

use std::convert::Infallible;

use bowline::prelude::*;
use bowline::stop::InplaceStopSource;

#[test]
fn a_value_is_some_and_a_stop_none() {
    assert_eq!(sync_wait(just(1).stopped_as_option()), Outcome::Value(Some(1)));
    assert_eq!(
        sync_wait(just_stopped::<i32, &str>().stopped_as_option()),
        Outcome::Value(None)
    );
}

#[test]
fn an_error_stays_an_error() {
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").stopped_as_option()),
        Outcome::Error("no")
    );
}

#[test]
fn a_stop_that_was_requested_arrives_as_none() {
    let source = InplaceStopSource::new();
    let work = never::<i32, Infallible>().stopped_as_option();
    let both = when_all((work, just_from(|| source.request_stop())));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (None, true)
    );
}
