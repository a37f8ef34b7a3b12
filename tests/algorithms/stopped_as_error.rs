//! `stopped_as_error`: turns a stop into an error.

use bowline::prelude::*;
use bowline::stop::InplaceStopSource;

#[test]
fn a_stop_is_the_given_error() {
    let stopped = just_stopped::<i32, _>().stopped_as_error("cancelled");
    assert_eq!(sync_wait(stopped), Outcome::Error("cancelled"));
}

#[test]
fn a_value_and_an_error_pass() {
    let value = just(1).infallible_into().stopped_as_error("cancelled");
    assert_eq!(sync_wait(value), Outcome::Value(1));
    let error = just_error::<i32, _>("no").stopped_as_error("cancelled");
    assert_eq!(sync_wait(error), Outcome::Error("no"));
}

#[test]
fn a_stop_that_was_requested_arrives_as_the_error() {
    let source = InplaceStopSource::new();
    let work = never::<(), _>().stopped_as_error("cancelled");
    let both = when_all((work, just_from(|| source.request_stop()).infallible_into()));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))),
        Outcome::Error("cancelled")
    );
}
