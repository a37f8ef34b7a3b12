//! `just_error`: a sender of an error.

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn sends_the_error() {
    assert_eq!(sync_wait(just_error::<i32, _>("no")), Outcome::Error("no"));
}

#[test]
fn ignores_a_stop() {
    let source = StopSource::new();
    source.request_stop();
    let failed = just_error::<(), _>(1).write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(failed), Outcome::Error(1));
}

#[test]
fn a_copy_needs_no_copy_of_the_value_type() {
    let sender = just_error::<Counted, _>("again".to_owned());
    assert_eq!(sync_wait(sender.clone()).err().unwrap(), "again");
    assert_eq!(sync_wait(sender).err().unwrap(), "again");
    let copied = just_error::<Counted, _>(1);
    assert_eq!((sync_wait(copied).err(), sync_wait(copied).err()), (Some(1), Some(1)));
}
