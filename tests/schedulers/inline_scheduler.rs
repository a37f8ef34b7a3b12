//! `InlineScheduler`: runs in place.

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler, RunLoop};
use bowline::stop::StopSource;

#[test]
fn completes_inside_start_on_the_same_thread() {
    const { assert!(<InlineSchedule as Sender>::COMPLETES.is_inline()) };
    const { assert!(<InlineScheduler as Scheduler>::INFALLIBLE) };
    let here = thread::current().id();
    let there = sync_wait(InlineScheduler.schedule().then(|()| thread::current().id())).unwrap();
    assert_eq!(there, here);
}

#[test]
fn changes_nothing_about_where_a_sender_completes() {
    with_loop(|there| {
        let id = sync_wait(there.schedule().then(|()| thread::current().id())).unwrap();
        let work = there
            .schedule()
            .continues_on(InlineScheduler)
            .then(|()| thread::current().id());
        assert_eq!(sync_wait(work).unwrap(), id);
    });
}

#[test]
fn ignores_a_stop() {
    let source = StopSource::new();
    source.request_stop();
    let work = InlineScheduler.schedule().write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_value());
}

#[test]
fn one_equals_another() {
    let other: InlineScheduler = Default::default();
    assert_eq!(InlineScheduler, other);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    drop(prepare(
        InlineScheduler.schedule().then(move |()| drop(value)),
        &mut slot,
    ));
    assert_eq!(census.alive(), 0);
}

#[test]
fn does_not_allocate() {
    let (outcome, allocated) = allocations(|| sync_wait(InlineScheduler.schedule()));
    assert!(outcome.is_value());
    assert_eq!(allocated, 0);
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let last = sync_wait(InlineScheduler.schedule().repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}

#[test]
fn a_million_rounds_between_those_of_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let round = run_loop.scheduler().schedule().sequence(InlineScheduler.schedule());
        let last = run_loop.run_until(round.repeat_until(|()| {
            left -= 1;
            left == 0
        }));
        assert!(last.is_value());
    });
}
