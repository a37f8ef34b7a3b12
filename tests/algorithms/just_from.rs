//! `just_from`: a sender of a function's result, called at the start.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::StopSource;

#[test]
fn sends_what_the_function_returns() {
    assert_eq!(sync_wait(just_from(|| 6 * 7)), Outcome::Value(42));
}

#[test]
fn calls_the_function_once_and_only_when_started() {
    let calls = Cell::new(0);
    let mut slot = WaitSlot::new();
    let prepared = prepare(just_from(|| calls.set(calls.get() + 1)), &mut slot);
    assert_eq!(calls.get(), 0);
    prepared.wait().unwrap();
    assert_eq!(calls.get(), 1);
}

#[test]
fn the_function_need_not_be_send_where_nothing_crosses_threads() {
    let shared = Rc::new(5);
    assert_eq!(sync_wait(just_from(|| *shared)).unwrap(), 5);
}

#[test]
fn ignores_a_stop() {
    let source = StopSource::new();
    source.request_stop();
    let work = just_from(|| 1).write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work).unwrap(), 1);
}

#[test]
fn runs_on_the_thread_that_starts_it() {
    with_loop(|scheduler| {
        let there = sync_wait(starts_on(scheduler, just_from(|| thread::current().id()))).unwrap();
        assert_ne!(there, thread::current().id());
    });
    let here = sync_wait(just_from(|| thread::current().id())).unwrap();
    assert_eq!(here, thread::current().id());
}
