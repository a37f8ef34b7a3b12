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
