//! `upon_error`: turns an error into a value.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;

#[test]
fn makes_a_value_of_the_error() {
    assert_eq!(
        sync_wait(just_error::<usize, _>("late").upon_error(str::len)),
        Outcome::Value(4)
    );
}

#[test]
fn the_result_cannot_fail() {
    fn infallible<S: Sender<Error = Infallible>>(sender: S) -> S {
        sender
    }
    assert_eq!(
        sync_wait(infallible(just_error::<i32, _>(1).upon_error(|error| error))).unwrap(),
        1
    );
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just_error(census.value()).upon_error(|error| error)).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let mut seen = Vec::new();
    sync_wait(just_error::<(), _>("no").upon_error(|error| seen.push(error))).unwrap();
    assert_eq!(seen, ["no"]);
}

#[test]
fn is_not_called_for_a_value_or_a_stop() {
    let value = just(1).infallible_into::<&str>().upon_error(|_| panic!("called"));
    assert_eq!(sync_wait(value), Outcome::Value(1));
    let stopped = just_stopped::<i32, &str>().upon_error(|_| panic!("called"));
    assert!(sync_wait(stopped).is_stopped());
}

#[test]
fn is_not_called_for_a_panic() {
    let mut called = false;
    let work = just_panic::<(), &str>("first").upon_error(|_| called = true);
    assert_eq!(panic_message(|| sync_wait(work)), "first");
    assert!(!called);
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    let work = just_error::<(), _>(census.value()).upon_error(move |_error| {
        let _value = &value;
        panic!("in upon_error");
    });
    assert_eq!(panic_message(|| sync_wait(work)), "in upon_error");
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_function_that_is_not_called_is_dropped_before_the_completion() {
    let census = Census::new();
    let value = census.value();
    let work = just(1).infallible_into::<&str>().upon_error(move |_| {
        let _value = &value;
        0
    });
    assert_eq!(sync_wait(work.then(|_| census.alive())).unwrap(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let work = just_error::<(), _>(census.value()).upon_error(|_| panic!("called"));
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    let run_loop = RunLoop::new();
    assert_eq!(completes(&just(1).upon_error(|_| 2)), Completes::Inline);
    assert_eq!(
        completes(&run_loop.scheduler().schedule().upon_error(|_| ())),
        Completes::Anywhere
    );
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just_error::<i32, _>(1).upon_error(|error| error + 1)).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_error::<i32, _>(1).upon_error(|error| error + 1);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 2);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let failed = run_loop.scheduler().schedule().infallible_into();
        let round = failed
            .let_value(|()| just_error::<i32, _>(1))
            .upon_error(|error| error + 1);
        assert_eq!(run_loop.run_until(round.repeat_until(million())).unwrap(), 2);
    });
}
