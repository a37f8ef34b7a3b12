//! `ensure_started`: starts now, and keeps the result.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::{InplaceStopSource, StopSource};

#[test]
fn starts_before_anyone_waits() {
    let started = Arc::new(AtomicBool::new(false));
    let flag = started.clone();
    let running = just_from(move || flag.store(true, SeqCst))
        .then(|()| 7)
        .ensure_started();
    assert!(started.load(SeqCst));
    assert_eq!(sync_wait(running).unwrap(), 7);
}

#[test]
fn the_result_may_come_before_or_after_the_receiver() {
    static LOOP: RunLoop = RunLoop::new();
    let hop = || LOOP.scheduler().schedule().then(|()| 7).ensure_started();
    let before = hop();
    LOOP.run_ready();
    assert_eq!(sync_wait(before).unwrap(), 7);
    assert_eq!(LOOP.run_until(hop()).unwrap(), 7);
}

#[test]
fn every_channel_arrives() {
    assert_eq!(sync_wait(just_error::<i32, _>("no").ensure_started()).err(), Some("no"));
    assert!(sync_wait(just_stopped::<i32, Infallible>().ensure_started()).is_stopped());
    let panicked = just_from(|| -> i32 { std::panic::panic_any(7u8) }).ensure_started();
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(panicked))).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&7u8), "the payload itself");
}

#[test]
fn dropping_it_asks_the_sender_to_stop() {
    let stopped = Arc::new(AtomicBool::new(false));
    let running = notes_its_stop(&stopped).ensure_started();
    assert!(!stopped.load(SeqCst));
    drop(running);
    assert!(stopped.load(SeqCst));
}

#[test]
fn dropping_what_was_made_of_it_unstarted_asks_the_sender_to_stop() {
    let stopped = Arc::new(AtomicBool::new(false));
    let running = notes_its_stop(&stopped).ensure_started();
    let mut slot = WaitSlot::new();
    let prepared = prepare(running.then(|_| panic!("called")), &mut slot);
    assert!(!stopped.load(SeqCst));
    drop(prepared);
    assert!(stopped.load(SeqCst));
}

#[test]
fn dropping_it_after_the_sender_has_completed_drops_the_result() {
    let census = Census::new();
    let running = just(census.value()).ensure_started();
    assert_eq!(census.alive(), 1);
    drop(running);
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_dropped_one_ends_on_its_own() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    let value = census.value();
    drop(
        LOOP.scheduler()
            .schedule()
            .unstoppable()
            .then(move |()| value)
            .ensure_started(),
    );
    assert_eq!(census.alive(), 1, "it is still queued");
    LOOP.run_ready();
    assert_eq!(census.alive(), 0);
}

#[test]
fn a_receiver_that_is_stopped_leaves_at_once_and_stops_the_sender() {
    let stopped = Arc::new(AtomicBool::new(false));
    let source = StopSource::new();
    let left = Arc::new(AtomicBool::new(false));
    let flag = left.clone();
    start_detached(
        notes_its_stop(&stopped)
            .ensure_started()
            .then(|_| ())
            .upon_stopped(move || flag.store(true, SeqCst))
            .write_env(WithStopToken(source.token())),
    );
    assert!(!left.load(SeqCst));
    source.request_stop();
    source.request_stop();
    assert!(left.load(SeqCst) && stopped.load(SeqCst));
}

#[test]
fn a_receiver_that_is_stopped_before_or_during_its_start_leaves() {
    let source = InplaceStopSource::new();
    let stopped = Arc::new(AtomicBool::new(false));
    let request = just_from(|| source.request_stop());
    let running = notes_its_stop(&stopped).ensure_started();
    let during = when_all((running, request)).write_env(WithStopToken(source.token()));
    assert!(sync_wait(during).is_stopped());
    assert!(stopped.swap(false, SeqCst));
    let running = notes_its_stop(&stopped).ensure_started();
    assert!(sync_wait(running.write_env(WithStopToken(source.token()))).is_stopped());
    assert!(stopped.load(SeqCst));
}

#[test]
fn dropping_it_races_with_the_completion() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    thread::scope(|scope| {
        scope.spawn(|| LOOP.run());
        for round in 0..2_000 {
            let value = census.value();
            let running = LOOP.scheduler().schedule().then(move |()| value).ensure_started();
            if round % 2 == 0 {
                drop(running);
            } else {
                drop(sync_wait(running).unwrap());
            }
        }
        LOOP.finish();
    });
    assert_eq!(census.alive(), 0);
}
