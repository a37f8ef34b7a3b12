//! `upon_stopped`: turns a stop into a value.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn makes_a_value_of_the_stop() {
    assert_eq!(
        sync_wait(just_stopped::<i32, &str>().upon_stopped(|| 7)),
        Outcome::Value(7)
    );
}

#[test]
fn a_stop_that_was_requested_arrives_as_the_value() {
    let source = InplaceStopSource::new();
    let work = never::<_, Infallible>().upon_stopped(|| 7);
    let both = when_all((work, just_from(|| source.request_stop())));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (7, true)
    );
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = census.value();
    let kept = sync_wait(just_stopped::<Counted, Infallible>().upon_stopped(move || value)).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let mut stopped = false;
    sync_wait(just_stopped::<(), Infallible>().upon_stopped(|| stopped = true)).unwrap();
    assert!(stopped);
}

#[test]
fn is_not_called_for_a_value_or_an_error() {
    assert_eq!(sync_wait(just(1).upon_stopped(|| panic!("called"))).unwrap(), 1);
    let failed = just_error::<i32, _>("no").upon_stopped(|| panic!("called"));
    assert_eq!(sync_wait(failed).err(), Some("no"));
}

#[test]
fn is_not_called_for_a_panic() {
    let mut called = false;
    let work = just_panic::<(), &str>("first").upon_stopped(|| called = true);
    assert_eq!(panic_message(|| sync_wait(work)), "first");
    assert!(!called);
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    let work = just_stopped::<(), Infallible>().upon_stopped(move || {
        let _value = &value;
        panic!("in upon_stopped");
    });
    assert_eq!(panic_message(|| sync_wait(work)), "in upon_stopped");
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_function_that_is_not_called_is_dropped_before_the_completion() {
    let census = Census::new();
    let value = census.value();
    let work = just(1).upon_stopped(move || {
        let _value = &value;
        0
    });
    assert_eq!(sync_wait(work.then(|_| census.alive())).unwrap(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    let work = just_stopped::<(), Infallible>().upon_stopped(move || {
        let _value = &value;
        panic!("called");
    });
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).upon_stopped(|| 2)), Completes::Inline);
    assert_eq!(completes(&never::<i32, ()>().upon_stopped(|| 2)), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just_stopped::<i32, Infallible>().upon_stopped(|| 2)).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_stopped::<i32, Infallible>().upon_stopped(|| 2);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 2);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let stopped = run_loop
            .scheduler()
            .schedule()
            .let_value(|()| just_stopped::<i32, Infallible>());
        assert_eq!(
            run_loop
                .run_until(stopped.upon_stopped(|| 2).repeat_until(million()))
                .unwrap(),
            2
        );
    });
}
