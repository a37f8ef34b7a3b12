//! `upon_error`: turns an error into a value.

use std::convert::Infallible;

use bowline::prelude::*;

#[test]
fn makes_a_value_of_the_error() {
    assert_eq!(
        sync_wait(just_error::<usize, _>("late").upon_error(str::len)),
        Outcome::Value(4)
    );
}

#[test]
fn the_result_cannot_fail() {
    fn infallible<S: Sender<Error = Infallible>>(sender: S) -> S {
        sender
    }
    assert_eq!(
        sync_wait(infallible(just_error::<i32, _>(1).upon_error(|error| error))).unwrap(),
        1
    );
}
