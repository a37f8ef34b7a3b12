//! `prepare`: connects now, to be started and waited for later.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::hostile::{Hostile, Trick};
use crate::common::*;
use bowline::prelude::*;
use bowline::stop::InplaceStopSource;

#[test]
fn nothing_runs_before_it_is_waited_for() {
    let runs = AtomicUsize::new(0);
    let mut slot = WaitSlot::new();
    let prepared = prepare(just_from(|| runs.fetch_add(1, SeqCst)), &mut slot);
    assert_eq!(runs.load(SeqCst), 0);
    assert_eq!(prepared.wait().unwrap(), 0);
    assert_eq!(runs.load(SeqCst), 1);
}

#[test]
fn every_channel_arrives() {
    assert_eq!(prepare(just(1), &mut WaitSlot::new()).wait(), Outcome::Value(1));
    assert_eq!(
        prepare(just_error::<i32, _>("no"), &mut WaitSlot::new()).wait(),
        Outcome::Error("no")
    );
    assert!(
        prepare(just_stopped::<i32, &str>(), &mut WaitSlot::new())
            .wait()
            .is_stopped()
    );
    let panics = || prepare(just_from(|| -> i32 { panic!("late") }), &mut WaitSlot::new()).wait();
    assert_eq!(panic_message(panics), "late");
}

#[test]
fn a_slot_can_be_moved_after_what_was_prepared_in_it_is_dropped() {
    let mut slots: Vec<WaitSlot<i32, &'static str>> = (0..8).map(|_| WaitSlot::new()).collect();
    let census = Census::new();
    for slot in &mut slots {
        drop(prepare(Hostile::new(Trick::None, &census), slot));
        let connects = || prepare(Hostile::new(Trick::ConnectPanics, &census), slot).wait();
        assert_eq!(panic_message(connects), "in connect");
    }
    let mut moved: Vec<_> = slots.drain(..).rev().map(Box::new).collect();
    drop(slots);
    for slot in &mut moved {
        let sender = Hostile::new(Trick::None, &census);
        assert_eq!(prepare(sender, slot).wait().unwrap(), 1);
    }
    assert_eq!(census.alive(), 0);
}

#[test]
fn dropped_unstarted_it_runs_nothing_and_the_slot_can_be_used_again() {
    let census = Census::new();
    with_loop(|scheduler| {
        let mut slot = WaitSlot::new();
        for round in 0..3 {
            let value = census.value();
            drop(prepare(
                starts_on(scheduler, just(value)).then(|value| panic!("called with {value:?}")),
                &mut slot,
            ));
            assert_eq!(census.alive(), 0);
            // Also on a slot whose receiver was dropped.
            let prepared = prepare(starts_on(scheduler, just(round)).then(|_| ()), &mut slot);
            prepared.wait().unwrap();
        }
    });
}

#[test]
fn it_is_kept_moved_and_sent_before_it_is_started() {
    let mut slot = WaitSlot::new();
    let words = vec!["a", "b"];
    let prepared = Box::new(prepare(when_all((just(&words), just(2))).boxed(), &mut slot));
    let (seen, two) = thread::scope(|scope| scope.spawn(move || prepared.wait().unwrap()).join().unwrap());
    assert_eq!((seen, two), (&words, 2));
}

#[test]
fn a_stop_requested_in_between_is_seen() {
    let source = InplaceStopSource::new();
    let mut slot = WaitSlot::new();
    let prepared = prepare(never::<(), ()>().write_env(WithStopToken(source.token())), &mut slot);
    source.request_stop();
    assert!(prepared.wait().is_stopped());
}

#[test]
fn the_slot_keeps_nothing_of_the_result() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    let kept = prepare(just(census.value()), &mut slot).wait().unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
    drop(slot);
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| {
        let mut slot = WaitSlot::new();
        let prepared = prepare(just(1).then(|x| x + 1), &mut slot);
        prepared.wait().unwrap()
    });
    assert_eq!((value, allocated), (2, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut slot = WaitSlot::new();
        for round in 0..ROUNDS {
            assert_eq!(prepare(just(round), &mut slot).wait().unwrap(), round);
        }
    });
}
