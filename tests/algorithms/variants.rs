//! Alternatives: an enum replaces `into_variant`, `when_all_with_variant` and `sync_wait_with_variant`.
//!
//! A sender has one value type and one error type. For one of several values, use an enum, whose variants are functions that
//! `then` takes.

use std::convert::Infallible;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;

#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Number(i32),
    Text(&'static str),
    Nothing,
}

#[derive(Debug, PartialEq)]
enum Failure {
    Code(i32),
    Timeout,
}

impl From<i32> for Failure {
    fn from(code: i32) -> Self {
        Failure::Code(code)
    }
}

/// Returns work with one of two values: the result of `into_variant` for a sender with two value completions.
fn ask(text: bool) -> impl Sender<Value = Answer, Error = Infallible> {
    just(text).let_value(|text| {
        if text {
            just("seven").then(Answer::Text).boxed()
        } else {
            just(7).then(Answer::Number).boxed()
        }
    })
}

#[test]
fn a_sender_of_alternatives_gives_one_of_them() {
    assert_eq!(sync_wait(ask(true)).unwrap(), Answer::Text("seven"));
    assert_eq!(sync_wait(ask(false)).unwrap(), Answer::Number(7));
}

#[test]
fn waiting_for_alternatives_is_a_match() {
    // `sync_wait_with_variant`.
    let answer = match sync_wait(ask(true)) {
        Outcome::Value(Answer::Number(number)) => number.to_string(),
        Outcome::Value(Answer::Text(text)) => text.to_owned(),
        Outcome::Value(Answer::Nothing) | Outcome::Stopped => unreachable!("it gives a text"),
    };
    assert_eq!(answer, "seven");
}

#[test]
fn several_senders_of_alternatives_are_awaited_together() {
    // `when_all_with_variant`.
    let all = when_all((ask(true), just(1), ask(false)));
    assert_eq!(sync_wait(all).unwrap(), (Answer::Text("seven"), 1, Answer::Number(7)));
}

#[test]
fn the_first_of_several_kinds_wins() {
    let first = when_any((
        never().then(Answer::Number),
        just("first").then(Answer::Text),
        never().then(|()| Answer::Nothing),
    ));
    assert_eq!(sync_wait(first).unwrap(), Answer::Text("first"));
}

#[test]
fn every_channel_becomes_a_variant() {
    fn sorted<S: Sender<Value = i32, Error = &'static str>>(
        sender: S,
    ) -> impl Sender<Value = Answer, Error = Infallible> {
        sender
            .then(Answer::Number)
            .upon_error(Answer::Text)
            .upon_stopped(|| Answer::Nothing)
    }
    assert_eq!(sync_wait(sorted(just(1).infallible_into())).unwrap(), Answer::Number(1));
    assert_eq!(sync_wait(sorted(just_error("no"))).unwrap(), Answer::Text("no"));
    assert_eq!(sync_wait(sorted(just_stopped())).unwrap(), Answer::Nothing);
}

#[test]
fn errors_of_several_kinds_are_an_enum_too() {
    let both = when_all((
        just_error::<(), _>(404).err_into::<Failure>(),
        just_stopped::<(), _>().stopped_as_error(Failure::Timeout),
    ));
    assert_eq!(sync_wait(both).unwrap_err(), Failure::Code(404));
    let alone = just_stopped::<(), _>().stopped_as_error(Failure::Timeout);
    assert_eq!(sync_wait(alone).unwrap_err(), Failure::Timeout);
}

#[test]
fn a_variant_moves_what_cannot_be_copied() {
    enum Either {
        Left(Counted),
        Right(Counted),
    }
    let census = Census::new();
    let both = when_all((
        just(census.value()).then(Either::Left),
        just(census.value()).then(Either::Right),
    ));
    let (left, right) = sync_wait(both).unwrap();
    let (Either::Left(left), Either::Right(right)) = (left, right) else {
        panic!("each in its own variant");
    };
    assert_eq!(census.alive(), 2);
    drop((left, right));
    assert_eq!(census.alive(), 0);
}

#[test]
fn does_not_allocate() {
    let (first, allocated) = allocations(|| {
        let first = when_any((never().then(Answer::Number), just("first").then(Answer::Text)));
        sync_wait(first).unwrap()
    });
    assert_eq!((first, allocated), (Answer::Text("first"), 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let round = when_all((just(1).then(Answer::Number), just("x").then(Answer::Text)));
        let last = sync_wait(round.repeat_until(million())).unwrap();
        assert_eq!(last, (Answer::Number(1), Answer::Text("x")));
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let late = run_loop.scheduler().schedule().then(|()| Answer::Nothing);
        let round = when_any((never().then(Answer::Number), late));
        assert_eq!(
            run_loop.run_until(round.repeat_until(million())).unwrap(),
            Answer::Nothing
        );
    });
}
