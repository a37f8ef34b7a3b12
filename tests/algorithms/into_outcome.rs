//! `into_outcome`: value, error and stop become one value.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn every_channel_but_a_panic_lands_in_the_value() {
    let value = just(1).infallible_into::<&str>().into_outcome();
    assert_eq!(sync_wait(value), Outcome::Value(Outcome::Value(1)));
    let error = just_error::<i32, _>("no").into_outcome();
    assert_eq!(sync_wait(error), Outcome::Value(Outcome::Error("no")));
    let stopped = just_stopped::<i32, &str>().into_outcome();
    assert_eq!(sync_wait(stopped), Outcome::Value(Outcome::Stopped));
}

#[test]
fn a_panic_passes() {
    let mut called = false;
    let work = just_panic::<i32, &str>("first").into_outcome().then(|_| called = true);
    assert_eq!(panic_message(|| sync_wait(work)), "first");
    assert!(!called);
}

#[test]
fn the_result_cannot_fail() {
    fn infallible<S: Sender<Error = Infallible>>(sender: S) -> S {
        sender
    }
    assert!(sync_wait(infallible(just_error::<(), _>(1).into_outcome())).is_value());
}

#[test]
fn a_stop_that_was_requested_arrives_as_the_value() {
    let source = InplaceStopSource::new();
    let both = when_all((never::<(), i32>().into_outcome(), just_from(|| source.request_stop())));
    let arrived = sync_wait(both.write_env(WithStopToken(source.token()))).unwrap();
    assert_eq!(arrived, (Outcome::Stopped, true));
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = sync_wait(just(census.value()).into_outcome()).unwrap();
    let error = sync_wait(just_error::<(), _>(census.value()).into_outcome()).unwrap();
    assert_eq!((value.is_value(), error.is_error(), census.alive()), (true, true, 2));
    drop((value, error));
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let text = "borrowed".to_owned();
    assert_eq!(sync_wait(just(&text).into_outcome()).unwrap().unwrap(), "borrowed");
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    drop(prepare(
        just(census.value()).then(|_| panic!("called")).into_outcome(),
        &mut slot,
    ));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).into_outcome()), Completes::Inline);
    assert_eq!(completes(&never::<(), ()>().into_outcome()), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (outcome, allocated) = allocations(|| sync_wait(just_error::<i32, _>(1).into_outcome()).unwrap());
    assert_eq!((outcome, allocated), (Outcome::Error(1), 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_stopped::<i32, i32>().into_outcome();
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), Outcome::Stopped);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let there = run_loop.scheduler().schedule().infallible_into();
        let round = there.let_value(|()| just_error::<i32, i32>(1)).into_outcome();
        assert_eq!(
            run_loop.run_until(round.repeat_until(million())).unwrap(),
            Outcome::Error(1)
        );
    });
}
