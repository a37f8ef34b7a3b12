//! `upon_stopped`: turns a stop into a value.

use std::convert::Infallible;

use bowline::prelude::*;
use bowline::stop::InplaceStopSource;

#[test]
fn makes_a_value_of_the_stop() {
    assert_eq!(
        sync_wait(just_stopped::<i32, &str>().upon_stopped(|| 7)),
        Outcome::Value(7)
    );
}

#[test]
fn a_stop_that_was_requested_arrives_as_the_value() {
    let source = InplaceStopSource::new();
    let work = never::<_, Infallible>().upon_stopped(|| 7);
    let both = when_all((work, just_from(|| source.request_stop())));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (7, true)
    );
}
