//! `finally`: a clean-up after every kind of completion.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

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
