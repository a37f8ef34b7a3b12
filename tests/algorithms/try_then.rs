//! `try_then`: maps the value with a function that may fail.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;

#[test]
fn ok_is_the_value_and_err_is_the_error() {
    let parse = |text: &'static str| just(text).infallible_into().try_then(str::parse::<u8>);
    assert_eq!(sync_wait(parse("7")).unwrap(), 7);
    assert!(sync_wait(parse("seven")).is_error());
}

#[test]
fn is_not_called_for_an_error_or_a_stop() {
    let failed = just_error::<i32, _>("no").try_then(|_| -> Result<i32, _> { panic!("called") });
    assert_eq!(sync_wait(failed).err(), Some("no"));
    let stopped = just_stopped::<i32, &str>().try_then(|_| -> Result<i32, _> { panic!("called") });
    assert!(sync_wait(stopped).is_stopped());
}

#[test]
fn is_not_called_for_a_panic() {
    let called = AtomicBool::new(false);
    let message = panic_message(|| {
        sync_wait(just_panic::<i32, ()>("first").try_then(|_| {
            called.store(true, SeqCst);
            Ok(())
        }))
    });
    assert_eq!(message, "first");
    assert!(!called.into_inner());
}

#[test]
fn a_panic_of_the_function_arrives_and_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    let message = panic_message(|| {
        sync_wait(just(()).infallible_into::<()>().try_then(move |()| -> Result<(), ()> {
            let _value = &value;
            panic!("in try_then");
        }))
    });
    assert_eq!(message, "in try_then");
    assert_eq!(census.alive(), 0);
}

#[test]
fn moves_and_borrows() {
    let census = Census::new();
    let names = [String::from("a")];
    let work = just(census.value())
        .infallible_into::<&str>()
        .try_then(|value| names.first().map(|name| (value, name.as_str())).ok_or("none"));
    let (value, name) = sync_wait(work).unwrap();
    assert_eq!((name, census.alive()), ("a", 1));
    drop(value);
    assert_eq!(census.alive(), 0);
}

#[test]
fn an_error_drops_the_value() {
    let census = Census::new();
    let work = just(census.value()).infallible_into().try_then(|_| Err::<(), _>("no"));
    assert_eq!(sync_wait(work).unwrap_err(), "no");
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    let work = just(value)
        .infallible_into::<()>()
        .try_then(|_| -> Result<(), ()> { panic!("called") });
    drop(prepare(work, &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn does_not_allocate() {
    let (value, allocated) =
        allocations(|| sync_wait(just(1).infallible_into::<()>().try_then(|x| Ok(x + 1))).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just(1).infallible_into::<()>().try_then(|x| Ok(x + 1));
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 2);
    });
}
