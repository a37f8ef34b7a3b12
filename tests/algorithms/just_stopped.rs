//! `just_stopped`: a sender that completes stopped.

use crate::common::*;
use bowline::prelude::*;

#[test]
fn completes_stopped() {
    assert_eq!(sync_wait(just_stopped::<i32, String>()), Outcome::Stopped);
}

#[test]
fn ends_a_chain_without_its_functions() {
    let chain = just_stopped::<i32, &str>()
        .then(|_| panic!("called"))
        .let_value(|()| just_error::<(), _>("called"));
    assert!(sync_wait(chain).is_stopped());
}

#[test]
fn a_copy_needs_no_copy_of_the_types() {
    let sender = just_stopped::<Counted, Counted>();
    let copy = sender;
    assert!(sync_wait(copy).is_stopped());
    assert!(sync_wait(sender).is_stopped());
}
