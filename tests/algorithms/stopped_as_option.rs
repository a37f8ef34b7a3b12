//! `stopped_as_option`: turns a stop into `None`, and a value into `Some`.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn a_value_is_some_and_a_stop_none() {
    assert_eq!(sync_wait(just(1).stopped_as_option()), Outcome::Value(Some(1)));
    assert_eq!(
        sync_wait(just_stopped::<i32, &str>().stopped_as_option()),
        Outcome::Value(None)
    );
}

#[test]
fn an_error_stays_an_error() {
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").stopped_as_option()),
        Outcome::Error("no")
    );
}

#[test]
fn a_panic_passes() {
    let mut called = false;
    let work = just_panic::<i32, &str>("first")
        .stopped_as_option()
        .then(|_| called = true);
    assert_eq!(panic_message(|| sync_wait(work)), "first");
    assert!(!called);
}

#[test]
fn a_stop_that_was_requested_arrives_as_none() {
    let source = InplaceStopSource::new();
    let work = never::<i32, Infallible>().stopped_as_option();
    let both = when_all((work, just_from(|| source.request_stop())));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (None, true)
    );
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = sync_wait(just(census.value()).stopped_as_option()).unwrap();
    let error = sync_wait(just_error::<(), _>(census.value()).stopped_as_option()).unwrap_err();
    assert_eq!((value.is_some(), census.alive()), (true, 2));
    drop((value, error));
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let text = "borrowed".to_owned();
    assert_eq!(
        sync_wait(just(text.as_str()).stopped_as_option()).unwrap(),
        Some("borrowed")
    );
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let work = just(census.value()).then(|_| panic!("called")).stopped_as_option();
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).stopped_as_option()), Completes::Inline);
    assert_eq!(completes(&never::<(), ()>().stopped_as_option()), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (option, allocated) = allocations(|| sync_wait(just_stopped::<i32, i32>().stopped_as_option()).unwrap());
    assert_eq!((option, allocated), (None, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_stopped::<i32, i32>().stopped_as_option();
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), None);
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
        let last = run_loop.run_until(stopped.stopped_as_option().repeat_until(million()));
        assert_eq!(last.unwrap(), None);
    });
}
