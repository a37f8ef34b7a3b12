//! `err_into`: converts the error with `From`.

use bowline::prelude::*;

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
fn a_copy_needs_no_copy_of_the_error() {
    let copied = just_error::<(), _>(4).err_into::<Failure>();
    assert_eq!(sync_wait(copied).unwrap_err(), Failure::Code(4));
    assert_eq!(sync_wait(copied).unwrap_err(), Failure::Code(4));
    let sender = just("again".to_owned()).infallible_into::<i32>().err_into::<Failure>();
    assert_eq!(sync_wait(sender.clone()).unwrap(), "again");
    assert_eq!(sync_wait(sender).unwrap(), "again");
}
