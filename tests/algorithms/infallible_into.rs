//! `infallible_into`: converts a sender that cannot fail to the error type of its neighbours.

use crate::common::*;
use bowline::prelude::*;

#[test]
fn passes_the_value() {
    assert_eq!(sync_wait(just(1).infallible_into::<String>()), Outcome::Value(1));
}

#[test]
fn lines_up_with_a_sender_that_can_fail() {
    let both = when_all((just(1).infallible_into(), just_error::<i32, _>("no")));
    assert_eq!(sync_wait(both).unwrap_err(), "no");
    let chain = just(1).infallible_into().let_value(|x| just_error::<(), _>(x + 1));
    assert_eq!(sync_wait(chain).unwrap_err(), 2);
}

#[test]
fn takes_an_error_that_nothing_converts_into() {
    struct Opaque;
    assert_eq!(sync_wait(just(1).infallible_into::<Opaque>()).ok(), Some(1));
}

#[test]
fn a_copy_needs_no_copy_of_the_error() {
    let sender = just("again".to_owned()).infallible_into::<Counted>();
    assert_eq!(sync_wait(sender.clone()).ok().unwrap(), "again");
    assert_eq!(sync_wait(sender).ok().unwrap(), "again");
    let copied = just(1).infallible_into::<Counted>();
    assert_eq!((sync_wait(copied).ok(), sync_wait(copied).ok()), (Some(1), Some(1)));
}
