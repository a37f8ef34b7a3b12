//! `infallible_into`: converts a sender that cannot fail to the error type of its neighbours.

use std::convert::Infallible;

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;

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
fn passes_a_stop_and_a_panic() {
    assert!(sync_wait(just_stopped::<(), Infallible>().infallible_into::<i32>()).is_stopped());
    let panicked = just_from(|| -> i32 { panic!("first") }).infallible_into::<i32>();
    assert_eq!(panic_message(|| sync_wait(panicked)), "first");
}

#[test]
fn moves_what_cannot_be_copied_and_borrows() {
    let census = Census::new();
    let kept = sync_wait(just(census.value()).infallible_into::<i32>()).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
    let text = "borrowed".to_owned();
    assert_eq!(sync_wait(just(&text).infallible_into::<i32>()).unwrap(), "borrowed");
}

#[test]
fn a_copy_needs_no_copy_of_the_error() {
    let sender = just("again".to_owned()).infallible_into::<Counted>();
    assert_eq!(sync_wait(sender.clone()).ok().unwrap(), "again");
    assert_eq!(sync_wait(sender).ok().unwrap(), "again");
    let copied = just(1).infallible_into::<Counted>();
    assert_eq!((sync_wait(copied).ok(), sync_wait(copied).ok()), (Some(1), Some(1)));
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    let work = just_from(move || {
        let _value = &value;
        panic!("called");
    });
    drop(prepare(work.infallible_into::<i32>(), &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).infallible_into::<i32>()), Completes::Inline);
    assert_eq!(
        completes(&never::<(), Infallible>().infallible_into::<i32>()),
        Completes::Anywhere
    );
}

#[test]
fn does_not_allocate() {
    assert_eq!(
        allocations(|| sync_wait(just(1).infallible_into::<i32>()).unwrap()),
        (1, 0)
    );
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        assert_eq!(
            sync_wait(just(1).infallible_into::<i32>().repeat_until(million())).unwrap(),
            1
        );
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let round = run_loop.scheduler().schedule().infallible_into::<i32>();
        assert_eq!(run_loop.run_until(round.repeat_until(million())), Outcome::Value(()));
    });
}
