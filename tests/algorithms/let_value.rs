//! `let_value`: a second sender, created from the first one's value.

use std::convert::Infallible;

use crate::common::*;
use bowline::factories::Just;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn runs_the_sender_that_the_function_makes() {
    let work = just(20).let_value(|x| just(x + 1).then(|x| x * 2));
    assert_eq!(sync_wait(work).unwrap(), 42);
}

#[test]
fn the_first_operation_is_destroyed_before_the_function_runs() {
    let census = Census::new();
    let held = census.value();
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just(1).repeat_until(move |_| {
        let _held = &held;
        true
    });
    let alive = sync_wait(first.let_value(|_| just(census.alive()))).unwrap();
    assert_eq!(alive, 0);
}

#[test]
fn the_value_lives_until_the_second_has_completed() {
    let census = Census::new();
    let during = with_loop(|scheduler| {
        let value = census.value();
        let census = &census;
        sync_wait(just(value).let_value(move |value| {
            scheduler.schedule().then(move |()| {
                let _value = &value;
                census.alive()
            })
        }))
        .unwrap()
    });
    assert_eq!((during, census.alive()), (1, 0));
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just(census.value()).let_value(just)).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let words = ["a".to_owned(), "bc".to_owned()];
    let work = just(&words).let_value(|words| just_from(move || words.iter().map(String::len).sum::<usize>()));
    assert_eq!(sync_wait(work).unwrap(), 3);
}

#[test]
fn the_function_is_not_called_for_an_error_a_stop_or_a_panic() {
    fn called<T, E>(_: T) -> BoxedSender<'static, i32, E>
    where
        E: Send + 'static,
    {
        panic!("called")
    }
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").let_value(called)).err(),
        Some("no")
    );
    assert!(sync_wait(just_stopped::<i32, &str>().let_value(called)).is_stopped());
    let panics = just_from(|| -> i32 { panic!("first") }).let_value(called);
    assert_eq!(panic_message(|| sync_wait(panics)), "first");
}

#[test]
fn every_completion_of_the_second_arrives() {
    let first = || just(1).infallible_into::<&str>();
    assert_eq!(
        sync_wait(first().let_value(|_| just_error::<i32, _>("no"))).err(),
        Some("no")
    );
    assert!(sync_wait(first().let_value(|_| just_stopped::<i32, &str>())).is_stopped());
    let panics = just(1).let_value(|_| just_from(|| -> i32 { panic!("second") }));
    assert_eq!(panic_message(|| sync_wait(panics)), "second");
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let (value, captured) = (census.value(), census.value());
    let work = just(value).let_value(move |_value| -> Just<i32> {
        let _captured = &captured;
        panic!("in let_value")
    });
    assert_eq!(panic_message(|| sync_wait(work)), "in let_value");
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let (value, captured) = (census.value(), census.value());
    let mut slot = WaitSlot::new();
    let work = just_from(move || drop(value)).let_value(move |()| -> Just<i32> {
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
    let work = never::<i32, Infallible>()
        .let_value(|_| -> Just<i32> { panic!("called") })
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn a_stop_during_the_first_reaches_the_second() {
    let source = StopSource::new();
    let work = just_from(|| source.request_stop())
        .let_value(|first| never::<(), Infallible>().upon_stopped(move || assert!(first)))
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_value());
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just(1).let_value(|x| just(x + 1))).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just(1).let_value(|x| just(x + 1)).let_value(|x| just(x * 2));
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
        let round = scheduler
            .schedule()
            .let_value(move |()| scheduler.schedule())
            .let_value(|()| just(1));
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}

#[test]
fn a_chain_that_builds_its_successor_a_million_times_takes_constant_stack() {
    fn countdown(left: usize) -> BoxedSender<'static, &'static str, Infallible> {
        match left {
            0 => just("lift-off").boxed(),
            left => just(left - 1).let_value(countdown).boxed(),
        }
    }
    with_stack(SMALL_STACK, || {
        assert_eq!(sync_wait(countdown(ROUNDS)).unwrap(), "lift-off");
    });
}

#[test]
fn a_chain_that_builds_its_successor_on_a_run_loop_takes_constant_stack() {
    fn countdown(run_loop: &RunLoop, left: usize) -> BoxedSender<'_, &'static str, Infallible> {
        match left {
            0 => just("lift-off").boxed(),
            left => run_loop
                .scheduler()
                .schedule()
                .let_value(move |()| countdown(run_loop, left - 1))
                .boxed(),
        }
    }
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        assert_eq!(run_loop.run_until(countdown(&run_loop, ROUNDS)).unwrap(), "lift-off");
    });
}
