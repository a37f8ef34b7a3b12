//! `err_into`: converts the error with `From`.

use crate::common::*;
use bowline::Completes;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;

/// The common error of several fallible steps.
#[derive(Debug, PartialEq)]
enum Failure {
    Code(i32),
    Text(&'static str),
}

impl From<i32> for Failure {
    fn from(code: i32) -> Self {
        Failure::Code(code)
    }
}

impl From<&'static str> for Failure {
    fn from(text: &'static str) -> Self {
        Failure::Text(text)
    }
}

#[test]
fn converts_the_error() {
    assert_eq!(
        sync_wait(just_error::<(), _>(4).err_into::<Failure>()).unwrap_err(),
        Failure::Code(4)
    );
}

#[test]
fn makes_one_error_of_several() {
    let both = when_all((
        just(1).infallible_into::<i32>().err_into(),
        just_error::<i32, _>("no").err_into::<Failure>(),
    ));
    assert_eq!(sync_wait(both).unwrap_err(), Failure::Text("no"));
    let chain = just_error::<i32, _>(4)
        .err_into()
        .let_value(|_| just_error::<(), _>("no").err_into::<Failure>());
    assert_eq!(sync_wait(chain).unwrap_err(), Failure::Code(4));
}

#[test]
fn moves_what_cannot_be_copied() {
    let census = Census::new();
    let kept = sync_wait(just_error::<(), _>(census.value()).err_into::<Box<Counted>>()).unwrap_err();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
}

#[test]
fn borrows_from_the_caller() {
    struct Seen<'a>(&'a str);
    impl<'a> From<&'a String> for Seen<'a> {
        fn from(text: &'a String) -> Self {
            Seen(text)
        }
    }
    let text = "borrowed".to_owned();
    let seen = sync_wait(just_error::<(), _>(&text).err_into::<Seen<'_>>())
        .err()
        .unwrap();
    assert_eq!(seen.0, "borrowed");
}

/// An error whose conversion panics.
#[derive(Debug)]
struct Refused;

impl From<Counted> for Refused {
    fn from(_: Counted) -> Self {
        panic!("in from");
    }
}

#[test]
fn the_conversion_is_not_called_for_the_rest() {
    let value = just(1).infallible_into::<Counted>().err_into::<Refused>();
    assert_eq!(sync_wait(value).unwrap(), 1);
    let stopped = just_stopped::<(), Counted>().err_into::<Refused>();
    assert!(sync_wait(stopped).is_stopped());
    let panicked = just_panic::<(), Counted>("first").err_into::<Refused>();
    assert_eq!(panic_message(|| sync_wait(panicked)), "first");
}

#[test]
fn a_panic_of_the_conversion_arrives_and_drops_the_error() {
    let census = Census::new();
    let work = just_error::<(), _>(census.value()).err_into::<Refused>();
    assert_eq!(panic_message(|| sync_wait(work)), "in from");
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_copy_needs_no_copy_of_the_error() {
    let copied = just_error::<(), _>(4).err_into::<Failure>();
    assert_eq!(sync_wait(copied).unwrap_err(), Failure::Code(4));
    assert_eq!(sync_wait(copied).unwrap_err(), Failure::Code(4));
    let sender = just("again".to_owned()).infallible_into::<i32>().err_into::<Failure>();
    assert_eq!(sync_wait(sender.clone()).unwrap(), "again");
    assert_eq!(sync_wait(sender).unwrap(), "again");
}

#[test]
fn dropped_unstarted_it_converts_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    drop(prepare(
        just_error::<(), _>(census.value()).err_into::<Refused>(),
        &mut slot,
    ));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(
        completes(&just_error::<(), _>(1).err_into::<Failure>()),
        Completes::Inline
    );
    assert_eq!(
        completes(&never::<(), i32>().err_into::<Failure>()),
        Completes::Anywhere
    );
}

#[test]
fn does_not_allocate() {
    let (error, allocated) = allocations(|| sync_wait(just_error::<(), _>(1).err_into::<i64>()).unwrap_err());
    assert_eq!((error, allocated), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = just_error::<i64, _>(1i32).err_into::<i64>().upon_error(|x| x);
        assert_eq!(sync_wait(round.repeat_until(million())).unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let there = run_loop.scheduler().schedule().infallible_into();
        let round = there
            .let_value(|()| just_error::<i64, i32>(1))
            .err_into::<i64>()
            .upon_error(|x| x);
        assert_eq!(run_loop.run_until(round.repeat_until(million())).unwrap(), 1);
    });
}
