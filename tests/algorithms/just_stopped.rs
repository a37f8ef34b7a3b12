//! `just_stopped`: a sender that completes stopped.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
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

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let mut slot = WaitSlot::new();
    drop(prepare(
        just_stopped::<(), Infallible>().upon_stopped(|| panic!("called")),
        &mut slot,
    ));
}

#[test]
fn completes_inline() {
    assert_eq!(completes(&just_stopped::<(), ()>()), Completes::Inline);
}

#[test]
fn does_not_allocate() {
    let (outcome, allocated) = allocations(|| sync_wait(just_stopped::<i32, i32>()));
    assert_eq!((outcome, allocated), (Outcome::Stopped, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_stopped::<i32, Infallible>().upon_stopped(|| 7);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 7);
    });
}
