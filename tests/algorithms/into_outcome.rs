//! `into_outcome`: value, error and stop become one value.

use std::convert::Infallible;

use bowline::prelude::*;
use bowline::stop::InplaceStopSource;

#[test]
fn every_channel_but_a_panic_lands_in_the_value() {
    let value = just(1).infallible_into::<&str>().into_outcome();
    assert_eq!(sync_wait(value), Outcome::Value(Outcome::Value(1)));
    let error = just_error::<i32, _>("no").into_outcome();
    assert_eq!(sync_wait(error), Outcome::Value(Outcome::Error("no")));
    let stopped = just_stopped::<i32, &str>().into_outcome();
    assert_eq!(sync_wait(stopped), Outcome::Value(Outcome::Stopped));
}

#[test]
fn the_result_cannot_fail() {
    fn infallible<S: Sender<Error = Infallible>>(sender: S) -> S {
        sender
    }
    assert!(sync_wait(infallible(just_error::<(), _>(1).into_outcome())).is_value());
}

#[test]
fn a_stop_that_was_requested_arrives_as_the_value() {
    let source = InplaceStopSource::new();
    let both = when_all((never::<(), i32>().into_outcome(), just_from(|| source.request_stop())));
    let arrived = sync_wait(both.write_env(WithStopToken(source.token()))).unwrap();
    assert_eq!(arrived, (Outcome::Stopped, true));
}
