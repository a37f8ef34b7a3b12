//! `continues_on`: carries the completion over to a scheduler.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::touchy::Touchy;
use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::StopSource;

#[test]
fn every_completion_arrives_on_the_scheduler() {
    with_loop(|there| {
        let id = sync_wait(starts_on(there, just_from(|| thread::current().id()))).unwrap();
        let seen = Mutex::new(Vec::new());
        // A clean-up runs where the completion arrives, on every channel.
        let note = || just_from(|| seen.lock().unwrap().push(thread::current().id()));
        assert_eq!(sync_wait(just(1).continues_on(there).finally(note())).unwrap(), 1);
        let failed = just_error::<i32, _>("no").continues_on(there).finally(note());
        assert_eq!(sync_wait(failed).err(), Some("no"));
        let stopped = just_stopped::<i32, Infallible>().continues_on(there).finally(note());
        assert!(sync_wait(stopped).is_stopped());
        let panics = just_from(|| panic!("here")).continues_on(there).finally(note());
        assert_eq!(panic_message(|| sync_wait(panics)), "here");
        assert_eq!(seen.into_inner().unwrap(), [id; 4]);
    });
}

#[test]
fn the_sender_itself_runs_where_it_is_started() {
    with_loop(|there| {
        let work = just_from(|| thread::current().id()).continues_on(there);
        assert_eq!(sync_wait(work).unwrap(), thread::current().id());
    });
}

#[test]
fn the_sender_is_destroyed_before_the_hop_and_its_value_is_moved() {
    let census = Census::new();
    let (held, value) = (census.value(), census.value());
    let run_loop = RunLoop::new();
    // The operation of a loop holds its predicate for as long as it exists.
    let first = just(()).repeat_until(move |()| {
        let _held = &held;
        true
    });
    let work = first.then(move |()| value).continues_on(run_loop.scheduler());
    let value = run_loop.run_until(work.then(|value| (census.alive(), value))).unwrap();
    assert_eq!(value.0, 1);
    drop(value);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_stop_during_the_hop_drops_the_value_before_it_completes_stopped() {
    let census = Census::new();
    let value = census.value();
    let source = StopSource::new();
    let run_loop = RunLoop::new();
    let after = AtomicUsize::new(usize::MAX);
    let work = just(value)
        .then(|value| {
            source.request_stop();
            value
        })
        .continues_on(run_loop.scheduler())
        .finally(just_from(|| after.store(census.alive(), SeqCst)))
        .write_env(WithStopToken(source.token()));
    assert!(run_loop.run_until(work).is_stopped());
    assert_eq!(after.into_inner(), 0);
}

#[test]
fn an_error_or_a_panic_is_not_lost_to_a_stop() {
    let source = StopSource::new();
    source.request_stop();
    let run_loop = RunLoop::new();
    let failed = just_error::<i32, _>("no").continues_on(run_loop.scheduler());
    let failed = failed.write_env(WithStopToken(source.token()));
    assert_eq!(run_loop.run_until(failed).err(), Some("no"));
    let panics = just_from(|| panic!("here")).continues_on(run_loop.scheduler());
    let panics = panics.write_env(WithStopToken(source.token()));
    assert_eq!(panic_message(|| run_loop.run_until(panics)), "here");
}

#[test]
fn a_panic_in_schedule_is_the_completion() {
    let census = Census::new();
    let touchy = || Touchy::<0>::new("schedule", &census);
    let value = just(census.value()).continues_on(touchy());
    assert_eq!(panic_message(|| sync_wait(value)), "in schedule");
    let error = just_error::<(), _>(census.value()).continues_on(touchy());
    assert_eq!(panic_message(|| sync_wait(error)), "in schedule");
    let stopped = just_stopped::<(), Infallible>().continues_on(touchy());
    assert_eq!(panic_message(|| sync_wait(stopped)), "in schedule");
    // The first panic is reported.
    let panics = just_from(|| panic!("before")).continues_on(touchy());
    assert_eq!(panic_message(|| sync_wait(panics)), "before");
    // Among others, which are awaited.
    with_loop(|there| {
        let both = when_all((
            just(census.value()).continues_on(there),
            just(census.value()).continues_on(there).continues_on(touchy()),
        ));
        assert_eq!(panic_message(|| sync_wait(both)), "in schedule");
    });
    assert_eq!(census.alive(), 0);
}
