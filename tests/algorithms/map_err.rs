//! `map_err`: maps the error.

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;

#[test]
fn maps_the_error() {
    let work = just_error::<(), _>(20).map_err(|x| x + 1).map_err(|x| format!("{x}"));
    assert_eq!(sync_wait(work).unwrap_err(), "21");
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just_error::<(), _>(census.value()).map_err(|error| (error, 1))).unwrap_err();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let names = ["zero", "one"];
    let work = just_error::<(), _>(1).map_err(|index: usize| names[index]);
    assert_eq!(sync_wait(work).unwrap_err(), "one");
}

#[test]
fn is_not_called_for_a_value_or_a_stop() {
    let value = just(1)
        .infallible_into::<i32>()
        .map_err(|_| -> i32 { panic!("called") });
    assert_eq!(sync_wait(value).unwrap(), 1);
    let stopped = just_stopped::<(), i32>().map_err(|_| -> i32 { panic!("called") });
    assert!(sync_wait(stopped).is_stopped());
}

#[test]
fn is_not_called_for_a_panic() {
    let mut called = false;
    let work = just_panic::<(), i32>("first").map_err(|_| called = true);
    assert_eq!(panic_message(|| sync_wait(work)), "first");
    assert!(!called);
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    let work = just_error::<(), _>(census.value()).map_err(move |_error| -> i32 {
        let _value = &value;
        panic!("in map_err");
    });
    assert_eq!(panic_message(|| sync_wait(work)), "in map_err");
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_function_that_is_not_called_is_dropped_before_the_completion() {
    let census = Census::new();
    let value = census.value();
    let work = just(1).infallible_into::<i32>().map_err(move |error| {
        let _value = &value;
        error
    });
    assert_eq!(sync_wait(work.then(|_| census.alive())).unwrap(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let work = just_error::<(), _>(census.value()).map_err(|_| -> i32 { panic!("called") });
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just_error::<(), _>(1).map_err(|_| 2)), Completes::Inline);
    assert_eq!(completes(&never::<(), i32>().map_err(|_| 2)), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (error, allocated) = allocations(|| sync_wait(just_error::<(), _>(1).map_err(|x| x + 1)).unwrap_err());
    assert_eq!((error, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_error::<i32, _>(1).map_err(|x| x + 1).upon_error(|x| x);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 2);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let there = run_loop.scheduler().schedule().infallible_into();
        let round = there
            .let_value(|()| just_error::<i32, i32>(1))
            .map_err(|x| x + 1)
            .upon_error(|x| x);
        assert_eq!(run_loop.run_until(round.repeat_until(million())).unwrap(), 2);
    });
}
