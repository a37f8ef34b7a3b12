//! `then`: maps the value.

use std::cell::Cell;

use crate::common::*;
use bowline::prelude::*;

#[test]
fn maps_the_value() {
    assert_eq!(sync_wait(just(20).then(|x| x + 1).then(|x| x * 2)).unwrap(), 42);
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
