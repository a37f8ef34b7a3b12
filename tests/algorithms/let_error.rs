//! `let_error`: a second sender, created from the first one's error.

use std::convert::Infallible;

use crate::common::*;
use bowline::factories::Just;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn runs_the_sender_that_the_function_makes() {
    let work = just_error::<usize, _>("three").let_error(|error| just(error.len()));
    assert_eq!(sync_wait(work).unwrap(), 5);
}

#[test]
fn the_first_operation_is_destroyed_before_the_function_runs() {
    let census = Census::new();
    let held = census.value();
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just_error::<usize, _>("no").retry_if(move |_| {
        let _held = &held;
        false
    });
    let alive = sync_wait(first.let_error(|_| just(census.alive()))).unwrap();
    assert_eq!(alive, 0);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let error = census.value();
    let kept = sync_wait(just_error::<i32, _>(error).let_error(|error| just_error::<i32, _>((error, 1)))).err();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let reasons = ["late".to_owned(), "lost".to_owned()];
    let reasons = &reasons;
    let work = just_error::<&str, _>(1).let_error(|index: usize| just_from(move || reasons[index].as_str()));
    assert_eq!(sync_wait(work).unwrap(), "lost");
}

#[test]
fn the_function_is_not_called_for_a_value_a_stop_or_a_panic() {
    fn called<E>(_: E) -> Just<i32> {
        panic!("called")
    }
    assert_eq!(
        sync_wait(just(1).infallible_into::<&str>().let_error(called)).unwrap(),
        1
    );
    assert!(sync_wait(just_stopped::<i32, &str>().let_error(called)).is_stopped());
    let panics = just_from(|| -> i32 { panic!("first") }).infallible_into::<&str>();
    assert_eq!(panic_message(|| sync_wait(panics.let_error(called))), "first");
}

#[test]
fn every_completion_of_the_second_arrives() {
    let first = || just_error::<i32, _>("no");
    assert_eq!(
        sync_wait(first().let_error(|_| just_error::<i32, _>(404))).err(),
        Some(404)
    );
    assert!(sync_wait(first().let_error(|_| just_stopped::<i32, &str>())).is_stopped());
    let panics = first().let_error(|_| just_from(|| -> i32 { panic!("second") }));
    assert_eq!(panic_message(|| sync_wait(panics)), "second");
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let (error, captured) = (census.value(), census.value());
    let work = just_error::<i32, _>(error).let_error(move |_error| -> Just<i32> {
        let _captured = &captured;
        panic!("in let_error")
    });
    assert_eq!(panic_message(|| sync_wait(work)), "in let_error");
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let (error, captured) = (census.value(), census.value());
    let mut slot = WaitSlot::new();
    let work = just_error::<i32, _>(error).let_error(move |_| -> Just<i32> {
        let _captured = &captured;
        panic!("called")
    });
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_before_the_start_reaches_the_first() {
    let source = StopSource::new();
    source.request_stop();
    let work = never::<i32, &str>()
        .let_error(|_| -> Just<i32> { panic!("called") })
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn a_stop_during_the_first_reaches_the_second() {
    let source = StopSource::new();
    let work = just_from(|| source.request_stop())
        .infallible_into()
        .let_value(just_error::<bool, _>)
        .let_error(|first| never::<bool, Infallible>().upon_stopped(move || first))
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).unwrap());
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just_error(1).let_error(|x| just(x + 1))).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just_error::<i32, _>(1)
            .let_error(|x| just_error(x + 1))
            .let_error(|x| just(x * 2));
        let last = sync_wait(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 4);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let scheduler = run_loop.scheduler();
        let mut left = ROUNDS;
        let round = just_error::<i32, _>(1)
            .continues_on(scheduler)
            .let_error(move |x| scheduler.schedule().then(move |()| x + 1));
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 2);
    });
}
