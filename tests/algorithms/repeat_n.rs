//! `repeat_n`: repeats a number of times.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn runs_as_often_as_told() {
    for rounds in [1, 2, 10] {
        let count = AtomicUsize::new(0);
        sync_wait(just_from(|| count.fetch_add(1, SeqCst)).repeat_n(rounds)).unwrap();
        assert_eq!(count.into_inner(), rounds);
    }
}

#[test]
fn zero_rounds_complete_at_once_and_run_nothing() {
    sync_wait(just_from(|| panic!("called")).repeat_n(0)).unwrap();
    let run_loop = RunLoop::new();
    run_loop.run_until(run_loop.scheduler().schedule().repeat_n(0)).unwrap();
    sync_wait(never::<(), Infallible>().repeat_n(0)).unwrap();
}

#[test]
fn an_error_a_stop_or_a_panic_of_a_round_ends_the_loop() {
    let rounds = AtomicUsize::new(0);
    let third = || rounds.fetch_add(1, SeqCst) % 3 == 2;
    let fails = just_from(third).infallible_into().let_value(|third| match third {
        true => just_error("third").boxed(),
        false => just(()).infallible_into().boxed(),
    });
    assert_eq!(sync_wait(fails.repeat_n(10)).err(), Some("third"));
    let stops = just_from(third).let_value(|third| match third {
        true => just_stopped().boxed(),
        false => just(()).boxed(),
    });
    assert!(sync_wait(stops.repeat_n(10)).is_stopped());
    let panics = just_from(third).then(|third| assert!(!third, "third"));
    assert_eq!(panic_message(|| sync_wait(panics.repeat_n(10))), "third");
    assert_eq!(rounds.into_inner(), 9);
}

#[test]
fn values_are_dropped_between_rounds() {
    let census = Census::new();
    let most = AtomicUsize::new(0);
    let work = just_from(|| {
        most.fetch_max(census.alive(), SeqCst);
        census.value()
    });
    sync_wait(work.repeat_n(5)).unwrap();
    assert_eq!((most.into_inner(), census.alive()), (0, 0));
}

#[test]
fn a_panic_of_the_clone_arrives() {
    struct Unclonable;
    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("in clone")
        }
    }
    assert_eq!(panic_message(|| sync_wait(just(Unclonable).repeat_n(1))), "in clone");
    assert!(sync_wait(just(Unclonable).repeat_n(0)).is_value());
}

#[test]
fn a_stop_is_seen_between_two_rounds_and_not_after_the_last() {
    for (rounds, ran, stopped) in [(10, 3, true), (3, 3, false)] {
        let source = StopSource::new();
        let count = AtomicUsize::new(0);
        let work = just_from(|| {
            if count.fetch_add(1, SeqCst) == 2 {
                source.request_stop();
                source.request_stop();
            }
        })
        .repeat_n(rounds)
        .write_env(WithStopToken(source.token()));
        assert_eq!(sync_wait(work).is_stopped(), stopped);
        assert_eq!(count.into_inner(), ran);
    }
}

#[test]
fn does_not_allocate() {
    let (outcome, allocated) = allocations(|| sync_wait(just(1).repeat_n(10)));
    assert!(outcome.is_value());
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let count = AtomicUsize::new(0);
        let inner = just_from(|| count.fetch_add(1, SeqCst)).repeat_n(1000);
        sync_wait(inner.repeat_n(ROUNDS / 1000)).unwrap();
        assert_eq!(count.into_inner(), ROUNDS);
    });
}

#[test]
fn a_million_rounds_inside_repeat_until_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let last = sync_wait(just(1).repeat_n(2).repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let count = AtomicUsize::new(0);
        let round = run_loop.scheduler().schedule().then(|()| count.fetch_add(1, SeqCst));
        run_loop.run_until(round.repeat_n(ROUNDS)).unwrap();
        assert_eq!(count.load(SeqCst), ROUNDS);
    });
}

#[test]
fn stays_on_the_scheduler_and_is_never_inline() {
    assert_eq!(completes(&just(1).repeat_n(1)), Completes::OnStartScheduler);
    assert_eq!(completes(&never::<(), ()>().repeat_n(1)), Completes::Anywhere);
}
