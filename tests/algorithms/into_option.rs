//! `into_option`: keeps the value, and turns an error or a stop into `None`.

use std::convert::Infallible;

use bowline::prelude::*;
use bowline::stop::InplaceStopSource;

#[test]
fn a_value_is_some_and_an_error_or_a_stop_none() {
    assert_eq!(sync_wait(just(1).into_option()), Outcome::Value(Some(1)));
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").into_option()),
        Outcome::Value(None)
    );
    assert_eq!(
        sync_wait(just_stopped::<i32, &str>().into_option()),
        Outcome::Value(None)
    );
}

#[test]
fn the_result_cannot_fail() {
    fn infallible<S: Sender<Error = Infallible>>(sender: S) -> S {
        sender
    }
    assert!(sync_wait(infallible(just_error::<(), _>(1).into_option())).is_value());
}

#[test]
fn a_stop_that_was_requested_arrives_as_none() {
    let source = InplaceStopSource::new();
    let both = when_all((never::<i32, i32>().into_option(), just_from(|| source.request_stop())));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (None, true)
    );
}
