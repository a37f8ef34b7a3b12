//! An algorithm drops what it does not hand on before it completes: afterwards, borrows of it may be invalid.
//!
//! `continues_on`, `finally`, `starts_on` and `or_inline` are tested in files of their own.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::stop::StopSource;

/// Returns how many values are alive when `work` completes, on any channel.
fn alive_at_completion<S: Sender<Value: Send, Error: Send>>(census: &Census, work: S) -> usize {
    let alive = AtomicUsize::new(usize::MAX);
    let noted = work.finally(just_from(|| alive.store(census.alive(), SeqCst)));
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(sync_wait(noted))));
    alive.into_inner()
}

#[test]
fn the_function_of_bulk() {
    let census = Census::new();
    let held = || {
        let held = census.value();
        move |_: usize, _: &()| {
            let _held = &held;
        }
    };
    assert_eq!(alive_at_completion(&census, just(()).bulk(2, held())), 0);
    assert_eq!(
        alive_at_completion(&census, just_error::<(), _>("no").bulk(2, held())),
        0
    );
    assert_eq!(
        alive_at_completion(&census, just_stopped::<(), Infallible>().bulk(2, held())),
        0
    );
    assert_eq!(
        alive_at_completion(&census, just_from(|| panic!("first")).bulk(2, held())),
        0
    );
}

#[test]
fn the_value_that_bulk_stops_or_panics_with() {
    let census = Census::new();
    let source = StopSource::new();
    source.request_stop();
    let stopped = just(census.value())
        .bulk(2, |_, _| ())
        .write_env(WithStopToken(source.token()));
    assert_eq!(alive_at_completion(&census, stopped), 0);
    let panics = just(census.value()).bulk(2, |_, _| panic!("in bulk"));
    assert_eq!(alive_at_completion(&census, panics), 0);
}

#[test]
fn the_value_and_the_error_of_the_trigger_of_stop_when() {
    let census = Census::new();
    let triggered = never::<(), Infallible>().stop_when(just(census.value()));
    assert_eq!(alive_at_completion(&census, triggered), 0);
    let triggered = just(()).stop_when(just_error::<(), _>(census.value()));
    assert_eq!(alive_at_completion(&census, triggered), 0);
}

#[test]
fn the_value_of_the_work_when_the_trigger_of_stop_when_panics() {
    let census = Census::new();
    let panics = just(census.value()).stop_when(just_from(|| panic!("in the trigger")));
    assert_eq!(alive_at_completion(&census, panics), 0);
}

#[test]
fn the_losers_of_when_any_and_the_errors_that_when_all_does_not_report() {
    let census = Census::new();
    let raced = when_any((just(1).then(|_| None), just(census.value()).then(Some)));
    assert_eq!(alive_at_completion(&census, raced), 0);
    let failed = when_all((just_error::<(), _>(None), just_error::<(), _>(Some(census.value()))));
    assert_eq!(alive_at_completion(&census, failed), 0);
}
