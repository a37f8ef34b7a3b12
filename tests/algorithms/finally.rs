//! `finally`: a clean-up after every kind of completion.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn cleans_up_after_a_value_an_error_a_stop_and_a_panic() {
    let cleaned = AtomicUsize::new(0);
    let cleanup = || {
        just_from(|| {
            cleaned.fetch_add(1, SeqCst);
        })
    };
    assert_eq!(sync_wait(just(1).finally(cleanup())).unwrap(), 1);
    assert_eq!(cleaned.load(SeqCst), 1);
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").finally(cleanup())).err(),
        Some("no")
    );
    assert_eq!(cleaned.load(SeqCst), 2);
    assert!(sync_wait(just_stopped::<i32, Infallible>().finally(cleanup())).is_stopped());
    assert_eq!(cleaned.load(SeqCst), 3);
    let panics = just_from(|| -> i32 { panic!("first") }).finally(cleanup());
    assert_eq!(panic_message(|| sync_wait(panics)), "first");
    assert_eq!(cleaned.load(SeqCst), 4);
}

#[test]
fn the_first_operation_is_destroyed_before_the_clean_up_and_its_value_is_kept() {
    let census = Census::new();
    let (held, value) = (census.value(), census.value());
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just(()).repeat_until(move |_| {
        let _held = &held;
        true
    });
    let during = AtomicUsize::new(0);
    let work = first
        .then(move |()| value)
        .finally(just_from(|| during.store(census.alive(), SeqCst)));
    let value = sync_wait(work).unwrap();
    assert_eq!((during.into_inner(), census.alive()), (1, 1));
    drop(value);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let log = std::sync::Mutex::new(Vec::new());
    let work = just_from(|| log.lock().unwrap().push("work")).finally(just_from(|| log.lock().unwrap().push("clean")));
    sync_wait(work).unwrap();
    assert_eq!(log.into_inner().unwrap(), ["work", "clean"]);
}

#[test]
fn a_stopped_clean_up_changes_nothing() {
    assert_eq!(sync_wait(just(1).finally(just_stopped::<(), Infallible>())).unwrap(), 1);
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").finally(just_stopped::<(), Infallible>())).err(),
        Some("no")
    );
}

#[test]
fn a_panic_of_the_clean_up_arrives_and_drops_the_value_before() {
    let census = Census::new();
    let value = census.value();
    let after = AtomicUsize::new(usize::MAX);
    let work = just(value)
        .finally(just_from(|| panic!("in the clean-up")))
        .finally(just_from(|| after.store(census.alive(), SeqCst)));
    assert_eq!(panic_message(|| sync_wait(work)), "in the clean-up");
    assert_eq!(after.into_inner(), 0);
}

#[test]
fn of_two_panics_the_first_arrives() {
    let work = just_from(|| -> i32 { panic!("first") }).finally(just_from(|| panic!("second")));
    assert_eq!(panic_message(|| sync_wait(work)), "first");
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let (value, captured) = (census.value(), census.value());
    let mut slot = WaitSlot::new();
    let work = just(value).finally(just_from(move || {
        drop(captured);
        panic!("called");
    }));
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_ends_the_work_and_not_the_clean_up() {
    let source = StopSource::new();
    source.request_stop();
    let seen = AtomicUsize::new(0);
    let cleanup = read_env(StopRequested).then(|requested| {
        seen.fetch_add(if requested { 100 } else { 1 }, SeqCst);
    });
    let work = never::<i32, Infallible>()
        .finally(cleanup)
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
    assert_eq!(seen.into_inner(), 1);
}

#[test]
fn a_stop_during_the_work_leaves_its_value() {
    let source = StopSource::new();
    let run_loop = RunLoop::new();
    let work = just_from(|| source.request_stop())
        .finally(run_loop.scheduler().schedule())
        .write_env(WithStopToken(source.token()));
    assert!(run_loop.run_until(work).unwrap());
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just(1).finally(just(()))).unwrap());
    assert_eq!((value, allocated), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just(1).finally(just(())).finally(just_stopped::<(), Infallible>());
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
        let scheduler = run_loop.scheduler();
        let mut left = ROUNDS;
        let round = scheduler.schedule().then(|()| 1).finally(scheduler.schedule());
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 1);
    });
}
