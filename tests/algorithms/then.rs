//! `then`: maps the value.

use std::cell::Cell;

use crate::common::*;
use bowline::prelude::*;

#[test]
fn maps_the_value() {
    assert_eq!(sync_wait(just(20).then(|x| x + 1).then(|x| x * 2)).unwrap(), 42);
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let value = census.value();
    let kept = sync_wait(just(value).then(|value| (value, 1))).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    let words = vec!["a".to_owned(), "bc".to_owned()];
    let lengths = sync_wait(just(&words).then(|words| words.iter().map(String::len).sum::<usize>())).unwrap();
    assert_eq!(lengths, 3);
}

#[test]
fn is_not_called_for_an_error_or_a_stop() {
    let failed = just_error::<i32, _>("no").then(|_| panic!("called"));
    assert_eq!(sync_wait(failed).err(), Some("no"));
    let stopped = just_stopped::<i32, &str>().then(|_| panic!("called"));
    assert!(sync_wait(stopped).is_stopped());
}

#[test]
fn is_not_called_for_a_panic() {
    let called = std::sync::atomic::AtomicBool::new(false);
    let message = panic_message(|| {
        sync_wait(
            just_from(|| -> i32 { panic!("first") }).then(|_| called.store(true, std::sync::atomic::Ordering::SeqCst)),
        )
    });
    assert_eq!(message, "first");
    assert!(!called.into_inner());
}

#[test]
fn a_panic_of_the_function_arrives() {
    assert_eq!(
        panic_message(|| sync_wait(just(1).then(|_| -> i32 { panic!("in then") }))),
        "in then"
    );
}

#[test]
fn a_panic_drops_what_was_captured() {
    let census = Census::new();
    let value = census.value();
    panic_message(|| {
        sync_wait(just(()).then(move |()| {
            let _value = &value;
            panic!("boom");
        }))
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let mut slot = WaitSlot::new();
    drop(prepare(just(value).then(|_| panic!("called")), &mut slot));
    assert_eq!(census.alive(), 0);
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| sync_wait(just(1).then(|x| x + 1)).unwrap());
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let round = just(1).then(|x| x + 1).then(|x| x * 2);
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
        let run_loop = bowline::scheduler::RunLoop::new();
        let mut left = ROUNDS;
        let round = run_loop.scheduler().schedule().then(|()| 1).then(|x| x + 1);
        let last = run_loop.run_until(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), 2);
    });
}

#[test]
fn runs_on_the_thread_that_completes() {
    thread_local!(static HERE: Cell<bool> = const { Cell::new(false) });
    with_loop(|scheduler| {
        HERE.set(true);
        let here = sync_wait(just(()).continues_on(scheduler).then(|()| HERE.get())).unwrap();
        assert!(!here);
    });
}
