//! `let_stopped`: a second sender in place of a stop.

use std::convert::Infallible;

use crate::common::*;
use bowline::factories::Just;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn runs_the_sender_that_the_function_makes() {
    assert_eq!(
        sync_wait(just_stopped().let_stopped(|| just("default"))).unwrap(),
        "default"
    );
}

#[test]
fn the_first_operation_is_destroyed_before_the_function_runs() {
    let census = Census::new();
    let held = census.value();
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just_stopped::<usize, Infallible>().repeat_until(move |_| {
        let _held = &held;
        true
    });
    let alive = sync_wait(first.let_stopped(|| just(census.alive()))).unwrap();
    assert_eq!(alive, 0);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let captured = census.value();
    let kept = sync_wait(just_stopped().let_stopped(move || just(captured))).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let words = ["a".to_owned(), "bc".to_owned()];
    let work = just_stopped().let_stopped(|| just_from(|| words.iter().map(String::len).sum::<usize>()));
    assert_eq!(sync_wait(work).unwrap(), 3);
}

#[test]
fn the_function_is_not_called_for_a_value_an_error_or_a_panic() {
    fn called<E: Send + 'static>() -> BoxedSender<'static, i32, E> {
        panic!("called")
    }
    assert_eq!(sync_wait(just(1).let_stopped(called)).unwrap(), 1);
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").let_stopped(called)).err(),
        Some("no")
    );
    let panics = just_from(|| -> i32 { panic!("first") }).let_stopped(called);
    assert_eq!(panic_message(|| sync_wait(panics)), "first");
}

#[test]
fn every_completion_of_the_second_arrives() {
    let first = just_stopped::<i32, &str>;
    assert_eq!(sync_wait(first().let_stopped(|| just_error("no"))).err(), Some("no"));
    assert!(sync_wait(first().let_stopped(just_stopped)).is_stopped());
    let panics = first().let_stopped(|| just_from(|| -> i32 { panic!("second") }).infallible_into());
    assert_eq!(panic_message(|| sync_wait(panics)), "second");
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let captured = census.value();
    let work = just_stopped().let_stopped(move || -> Just<i32> {
        let _captured = &captured;
        panic!("in let_stopped")
    });
    assert_eq!(panic_message(|| sync_wait(work)), "in let_stopped");
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let captured = census.value();
    let mut slot = WaitSlot::new();
    let work = just_stopped().let_stopped(move || -> Just<i32> {
        let _captured = &captured;
        panic!("called")
    });
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_before_the_start_calls_the_function_and_is_still_seen_by_the_second() {
    let source = StopSource::new();
    source.request_stop();
    let work = never::<bool, Infallible>()
        .let_stopped(|| read_env(StopRequested))
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).unwrap());
}

#[test]
fn a_stop_during_the_first_and_again_calls_the_function_once() {
    let source = StopSource::new();
    let mut calls = 0;
    let work = when_all((
        never::<&str, Infallible>().let_stopped(|| {
            calls += 1;
            just("default")
        }),
        just_from(|| (source.request_stop(), source.request_stop())),
    ))
    .write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work).unwrap(), ("default", (true, false)));
    assert_eq!(calls, 1);
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just_stopped().let_stopped(|| just(2))).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just_stopped().let_stopped(just_stopped).let_stopped(|| just(4));
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
        let round = just_stopped()
            .continues_on(scheduler)
            .let_stopped(move || scheduler.schedule().then(|()| 2));
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 2);
    });
}
