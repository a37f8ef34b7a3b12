//! `Outcome`, `Completion` and `Panic`: the completion of a sender, as a value.

use std::convert::Infallible;

use crate::common::*;
use bowline::prelude::*;
use bowline::{Completion, Panic};

const VALUE: Outcome<i32, &str> = Outcome::Value(1);
const ERROR: Outcome<i32, &str> = Outcome::Error("no");
const STOPPED: Outcome<i32, &str> = Outcome::Stopped;

#[test]
fn unwrap_gives_the_value_or_says_what_there_is() {
    assert_eq!(VALUE.unwrap(), 1);
    assert_eq!(
        panic_message(|| ERROR.unwrap()),
        "called `Outcome::unwrap()` on an `Error`: \"no\""
    );
    assert_eq!(
        panic_message(|| STOPPED.unwrap()),
        "called `Outcome::unwrap()` on a `Stopped`"
    );
}

#[test]
fn unwrap_err_gives_the_error_or_says_what_there_is() {
    assert_eq!(ERROR.unwrap_err(), "no");
    assert_eq!(
        panic_message(|| VALUE.unwrap_err()),
        "called `Outcome::unwrap_err()` on a `Value`: 1"
    );
    assert_eq!(
        panic_message(|| STOPPED.unwrap_err()),
        "called `Outcome::unwrap_err()` on a `Stopped`"
    );
}

#[test]
fn ok_and_err_give_the_value_and_the_error_if_there_is_one() {
    assert_eq!((VALUE.ok(), VALUE.err()), (Some(1), None));
    assert_eq!((ERROR.ok(), ERROR.err()), (None, Some("no")));
    assert_eq!((STOPPED.ok(), STOPPED.err()), (None, None));
}

#[test]
fn expect_says_what_was_expected() {
    assert_eq!(VALUE.expect("a number"), 1);
    assert_eq!(panic_message(|| ERROR.expect("a number")), "a number: \"no\"");
    assert_eq!(panic_message(|| STOPPED.expect("a number")), "a number: stopped");
}

#[test]
fn what_is_no_value_may_be_replaced_by_one() {
    assert_eq!([VALUE, ERROR, STOPPED].map(|outcome| outcome.unwrap_or(7)), [1, 7, 7]);
    assert_eq!(VALUE.unwrap_or_else(|_| panic!("called")), 1);
    assert_eq!(ERROR.unwrap_or_else(|error| error.map_or(0, str::len) as i32), 2);
    assert_eq!(STOPPED.unwrap_or_else(|error| if error.is_none() { 7 } else { 8 }), 7);
}

#[test]
fn as_ref_borrows() {
    let value: Outcome<String, String> = Outcome::Value("one".to_owned());
    assert_eq!(value.as_ref().map(|text| text.len()), Outcome::Value(3));
    assert_eq!(value.map_err(|text| text.len()), Outcome::Value("one".to_owned()));
    let error: Outcome<String, String> = Outcome::Error("no".to_owned());
    assert_eq!(error.as_ref().err(), Some(&"no".to_owned()));
    assert_eq!(STOPPED.as_ref(), Outcome::Stopped);
}

#[test]
fn tells_which_it_is() {
    let which = |outcome: Outcome<i32, &str>| (outcome.is_value(), outcome.is_error(), outcome.is_stopped());
    assert_eq!(which(VALUE), (true, false, false));
    assert_eq!(which(ERROR), (false, true, false));
    assert_eq!(which(STOPPED), (false, false, true));
}

#[test]
fn becomes_a_result() {
    assert_eq!(VALUE.into_result(), Some(Ok(1)));
    assert_eq!(ERROR.into_result(), Some(Err("no")));
    assert_eq!(STOPPED.into_result(), None);
    assert_eq!(VALUE.ok_or_stopped(|| panic!("called")), Ok(1));
    assert_eq!(ERROR.ok_or_stopped(|| panic!("called")), Err("no"));
    assert_eq!(STOPPED.ok_or_stopped(|| "cancelled"), Err("cancelled"));
}

#[test]
fn is_made_of_a_result() {
    assert_eq!(Outcome::from(Ok::<_, &str>(1)), VALUE);
    assert_eq!(Outcome::from(Err::<i32, _>("no")), ERROR);
}

#[test]
fn map_applies_to_the_value_alone() {
    assert_eq!(VALUE.map(|x| x + 1), Outcome::Value(2));
    assert_eq!(ERROR.map(|_| -> i32 { panic!("called") }), ERROR);
    assert_eq!(STOPPED.map(|_| -> i32 { panic!("called") }), STOPPED);
}

#[test]
fn map_err_applies_to_the_error_alone() {
    assert_eq!(ERROR.map_err(str::len), Outcome::Error(2));
    assert_eq!(VALUE.map_err(|_| -> usize { panic!("called") }), Outcome::Value(1));
    assert_eq!(STOPPED.map_err(|_| -> usize { panic!("called") }), Outcome::Stopped);
}

#[test]
fn a_sender_that_cannot_fail_is_matched_without_an_error() {
    let outcome: Outcome<i32, Infallible> = sync_wait(just(1));
    let value = match outcome {
        Outcome::Value(value) => value,
        Outcome::Stopped => 0,
    };
    assert_eq!(value, 1);
}

#[test]
fn a_completion_is_delivered_on_its_own_channel() {
    let deliver = |completion: Completion<i32, &'static str>| {
        let (receiver, reports) = Record::new();
        completion.deliver(receiver).run();
        reports.try_recv().expect("completed")
    };
    assert_eq!(deliver(Completion::Value(1)), Recorded::Value(1));
    assert_eq!(deliver(Completion::Error("no")), Recorded::Error("no"));
    assert_eq!(deliver(Completion::Stopped), Recorded::Stopped);
    let panicked = deliver(Completion::Panicked(Panic::new(Box::new("boom"))));
    assert_eq!(panicked, Recorded::Panicked("boom".to_owned()));
}

#[test]
fn a_completion_becomes_an_outcome_or_unwinds() {
    assert_eq!(Completion::<_, &str>::Value(1).into_outcome(), VALUE);
    assert_eq!(Completion::<i32, _>::Error("no").into_outcome(), ERROR);
    assert_eq!(Completion::<i32, &str>::Stopped.into_outcome(), STOPPED);
    let panicked = Completion::<i32, &str>::Panicked(Panic::new(Box::new("boom")));
    assert_eq!(panic_message(|| panicked.into_outcome()), "boom");
}

#[test]
fn a_panic_is_caught_with_its_payload() {
    assert_eq!(Panic::catch(|| 1).unwrap(), 1);
    let caught = Panic::catch(|| panic!("plain")).unwrap_err();
    assert_eq!(caught.message(), Some("plain"));
    let caught = Panic::catch(|| panic!("number {}", 7)).unwrap_err();
    assert_eq!(caught.message(), Some("number 7"));
    assert_eq!(panic_message(|| caught.resume()), "number 7");
}

#[test]
fn a_payload_that_is_no_message_arrives_whole() {
    let census = Census::new();
    let value = census.value();
    let work = just_from(move || -> () { std::panic::resume_unwind(Box::new(value)) });
    let payload = Panic::catch(|| sync_wait(work)).unwrap_err();
    assert_eq!(payload.message(), None);
    assert_eq!(format!("{payload:?}"), "Panic(\"..\")");
    assert!(payload.into_payload().downcast::<Counted>().is_ok());
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_panic_shows_its_message() {
    assert_eq!(format!("{:?}", Panic::new(Box::new("boom"))), "Panic(\"boom\")");
}

#[test]
fn a_panic_is_shown_and_is_an_error() {
    let caught = |payload: Box<dyn std::any::Any + Send>| Panic::new(payload).to_string();
    assert_eq!(caught(Box::new("boom")), "panicked: boom");
    assert_eq!(caught(Box::new("boom".to_owned())), "panicked: boom");
    assert_eq!(caught(Box::new(7)), "panicked");
    let error: Box<dyn std::error::Error + Send + Sync> = Box::new(Panic::new(Box::new("boom")));
    assert!(error.source().is_none());
}
