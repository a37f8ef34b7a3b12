//! `starts_on`: starts a sender on a scheduler.

use std::convert::Infallible;
use std::sync::Arc;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use bowline::stop::StopSource;

#[test]
fn starts_there_and_stays_there() {
    with_loop(|there| {
        let here = thread::current().id();
        let (started, went_on) = sync_wait(
            starts_on(there, just_from(|| thread::current().id())).then(|started| (started, thread::current().id())),
        )
        .unwrap();
        assert_ne!(started, here);
        assert_eq!(went_on, started);
    });
}

#[test]
fn the_environment_inside_has_the_scheduler() {
    with_loop(|first| {
        with_loop(|second| {
            let id = sync_wait(starts_on(first, just_from(|| thread::current().id()))).unwrap();
            // `affine` returns to the scheduler of its environment.
            let back = just(()).continues_on(second).affine().then(|()| thread::current().id());
            assert_eq!(sync_wait(starts_on(first, back)).unwrap(), id);
        });
    });
}

#[test]
fn every_completion_passes() {
    with_loop(|there| {
        assert_eq!(sync_wait(just(1).starts_on(there)).unwrap(), 1);
        assert_eq!(sync_wait(just_error::<i32, _>("no").starts_on(there)).err(), Some("no"));
        assert!(sync_wait(just_stopped::<i32, Infallible>().starts_on(there)).is_stopped());
        let panics = just_from(|| panic!("there")).starts_on(there);
        assert_eq!(panic_message(|| sync_wait(panics)), "there");
    });
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = census.value();
    let kept = with_loop(|there| sync_wait(starts_on(there, just(value))).unwrap());
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let words = ["a".to_owned(), "bc".to_owned()];
    let work = just_from(|| words.iter().map(String::len).sum::<usize>());
    assert_eq!(with_loop(|there| sync_wait(starts_on(there, work)).unwrap()), 3);
}

#[test]
fn a_stop_before_its_turn_leaves_it_unstarted() {
    let source = StopSource::new();
    let run_loop = RunLoop::new();
    // The first is queued before the second, and stops it.
    let work = when_all((
        starts_on(run_loop.scheduler(), just_from(|| source.request_stop())),
        starts_on(run_loop.scheduler(), just_from(|| panic!("started"))).upon_stopped(|| ()),
    ))
    .write_env(WithStopToken(source.token()));
    assert!(run_loop.run_until(work).unwrap().0);

    let work =
        starts_on(run_loop.scheduler(), just_from(|| panic!("started"))).write_env(WithStopToken(source.token()));
    assert!(run_loop.run_until(work).is_stopped());
}

#[test]
fn the_scheduler_is_dropped_before_the_completion() {
    let handle = Arc::new(());
    let work = starts_on(HandleScheduler(handle.clone()), just(())).then(|()| Arc::strong_count(&handle));
    assert_eq!(sync_wait(work).unwrap(), 1);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let run_loop = RunLoop::new();
    let mut slot = WaitSlot::new();
    drop(prepare(
        starts_on(run_loop.scheduler(), just_from(move || drop(value))),
        &mut slot,
    ));
    assert_eq!((run_loop.run_ready(), census.alive()), (0, 0));
}

#[test]
fn does_not_allocate() {
    let run_loop = RunLoop::new();
    let (value, allocated) = allocations(|| run_loop.run_until(starts_on(run_loop.scheduler(), just(1))).unwrap());
    assert_eq!((value, allocated), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just(1).starts_on(InlineScheduler).starts_on(InlineScheduler);
        let last = sync_wait(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let mut left = ROUNDS;
        let round = just(1).starts_on(run_loop.scheduler());
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}
