//! `into_option`: keeps the value, and turns an error or a stop into `None`.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn a_value_is_some_and_an_error_or_a_stop_none() {
    assert_eq!(sync_wait(just(1).into_option()), Outcome::Value(Some(1)));
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").into_option()),
        Outcome::Value(None)
    );
    assert_eq!(
        sync_wait(just_stopped::<i32, &str>().into_option()),
        Outcome::Value(None)
    );
}

#[test]
fn a_panic_passes() {
    let mut called = false;
    let work = just_panic::<i32, &str>("first").into_option().then(|_| called = true);
    assert_eq!(panic_message(|| sync_wait(work)), "first");
    assert!(!called);
}

#[test]
fn the_result_cannot_fail() {
    fn infallible<S: Sender<Error = Infallible>>(sender: S) -> S {
        sender
    }
    assert!(sync_wait(infallible(just_error::<(), _>(1).into_option())).is_value());
}

#[test]
fn a_stop_that_was_requested_arrives_as_none() {
    let source = InplaceStopSource::new();
    let both = when_all((never::<i32, i32>().into_option(), just_from(|| source.request_stop())));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (None, true)
    );
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just(census.value()).into_option()).unwrap();
    assert_eq!((kept.is_some(), census.alive()), (true, 1));
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn the_error_is_dropped_before_the_completion() {
    let census = Census::new();
    let work = just_error::<(), _>(census.value()).into_option();
    assert_eq!(sync_wait(work.then(|_| census.alive())).unwrap(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let text = "borrowed".to_owned();
    assert_eq!(sync_wait(just(text.as_str()).into_option()).unwrap(), Some("borrowed"));
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    drop(prepare(
        just(census.value()).then(|_| panic!("called")).into_option(),
        &mut slot,
    ));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).into_option()), Completes::Inline);
    assert_eq!(completes(&never::<(), ()>().into_option()), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (option, allocated) = allocations(|| sync_wait(just_error::<i32, _>(1).into_option()).unwrap());
    assert_eq!((option, allocated), (None, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_stopped::<i32, i32>().into_option();
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), None);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let there = run_loop.scheduler().schedule().infallible_into();
        let round = there.let_value(|()| just_error::<i32, i32>(1)).into_option();
        assert_eq!(run_loop.run_until(round.repeat_until(million())).unwrap(), None);
    });
}
