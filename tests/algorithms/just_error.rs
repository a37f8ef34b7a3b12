//! `just_error`: a sender of an error.

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn sends_the_error() {
    assert_eq!(sync_wait(just_error::<i32, _>("no")), Outcome::Error("no"));
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just_error::<(), _>(census.value())).unwrap_err();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let reason = "no such key".to_owned();
    assert_eq!(
        sync_wait(just_error::<(), _>(reason.as_str())).unwrap_err(),
        "no such key"
    );
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

#[test]
fn dropped_unstarted_it_drops_the_error() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let prepared = prepare(just_error::<(), _>(census.value()), &mut slot);
    assert_eq!(census.alive(), 1);
    drop(prepared);
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_inline() {
    assert_eq!(completes(&just_error::<(), _>(1)), Completes::Inline);
}

#[test]
fn does_not_allocate() {
    assert_eq!(allocations(|| sync_wait(just_error::<(), _>(1)).unwrap_err()), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_error::<i32, _>(7).upon_error(|error| error);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 7);
    });
}
