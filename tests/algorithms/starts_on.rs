//! `starts_on`: starts a sender on a scheduler.

use std::convert::Infallible;
use std::sync::Arc;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
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
