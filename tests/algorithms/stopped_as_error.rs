//! `stopped_as_error`: turns a stop into an error.

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
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
fn a_panic_passes() {
    let mut called = false;
    let work = just_panic::<(), &str>("first").stopped_as_error("cancelled");
    assert_eq!(panic_message(|| sync_wait(work.upon_error(|_| called = true))), "first");
    assert!(!called);
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

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let error = sync_wait(just_stopped::<(), _>().stopped_as_error(census.value())).unwrap_err();
    assert_eq!(census.alive(), 1);
    drop(error);
    assert_eq!(census.alive(), 0);
}

#[test]
fn an_error_that_is_not_needed_is_dropped_before_the_completion() {
    let census = Census::new();
    let work = just(1).infallible_into().stopped_as_error(census.value());
    assert_eq!(sync_wait(work.then(|_| census.alive())).ok(), Some(0));
}

#[test]
fn borrows_from_the_caller() {
    let reason = "shutting down".to_owned();
    let stopped = just_stopped::<(), &str>().stopped_as_error(&reason);
    assert_eq!(sync_wait(stopped).unwrap_err(), "shutting down");
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let work = just_stopped::<(), _>().stopped_as_error(census.value());
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(
        completes(&just_error::<(), _>(1).stopped_as_error(2)),
        Completes::Inline
    );
    assert_eq!(completes(&never::<(), i32>().stopped_as_error(2)), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (error, allocated) = allocations(|| sync_wait(just_stopped::<i32, _>().stopped_as_error(1)).unwrap_err());
    assert_eq!((error, allocated), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_stopped::<i32, _>().stopped_as_error(1).upon_error(|error| error);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let there = run_loop.scheduler().schedule().infallible_into();
        let stopped = there.let_value(|()| just_stopped::<i32, i32>()).stopped_as_error(1);
        let last = run_loop.run_until(stopped.upon_error(|error| error).repeat_until(million()));
        assert_eq!(last.unwrap(), 1);
    });
}
