//! `just`: a sender of a value.

use std::rc::Rc;

use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn sends_the_value() {
    assert_eq!(sync_wait(just(42)), Outcome::Value(42));
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
