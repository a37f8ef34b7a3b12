//! `split`: one run, for any number of receivers.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

use crate::common::hostile::{Hostile, Trick};
use crate::common::*;
use bowline::EmptyEnv;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::{InplaceStopSource, StopSource};

/// Returns a sender that counts its runs, and completes with their number when the loop is driven.
fn counted_run(
    run_loop: &'static RunLoop,
    runs: &Arc<AtomicUsize>,
) -> impl Sender<Value = usize, Error = Infallible> + Send + use<> {
    let runs = runs.clone();
    run_loop
        .scheduler()
        .schedule()
        .then(move |()| runs.fetch_add(1, SeqCst) + 1)
}

#[test]
fn many_receivers_share_one_run() {
    static LOOP: RunLoop = RunLoop::new();
    let runs = Arc::default();
    let shared = counted_run(&LOOP, &runs).split();
    let all = LOOP
        .run_until(when_all((shared.clone(), shared.clone(), shared)))
        .unwrap();
    assert_eq!((all, runs.load(SeqCst)), ((1, 1, 1), 1));
}

#[test]
fn nothing_runs_before_the_first_receiver_starts() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let shared = just_from(move || counted.fetch_add(1, SeqCst)).split();
    let mut slot = WaitSlot::new();
    let prepared = prepare(shared.clone(), &mut slot);
    assert_eq!(runs.load(SeqCst), 0);
    assert_eq!(prepared.wait().unwrap(), 0);
    assert_eq!(runs.load(SeqCst), 1);
}

#[test]
fn late_receivers_get_the_stored_result() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let shared = just_from(move || counted.fetch_add(1, SeqCst))
        .then(|_| "loaded".to_owned())
        .split();
    for _ in 0..3 {
        assert_eq!(sync_wait(shared.clone()).unwrap(), "loaded");
    }
    assert_eq!(runs.load(SeqCst), 1);
}

#[test]
fn every_receiver_gets_the_error_or_the_stop() {
    let failed = just_error::<i32, _>("no".to_owned()).split();
    assert_eq!(sync_wait(failed.clone()).err().as_deref(), Some("no"));
    assert_eq!(sync_wait(failed).err().as_deref(), Some("no"));
    let stopped = just_stopped::<i32, Infallible>().split();
    assert!(sync_wait(stopped.clone()).is_stopped());
    assert!(sync_wait(stopped).is_stopped());
}

#[test]
fn every_receiver_gets_the_message_of_a_panic() {
    let shared = just_from(|| -> i32 { panic!("number {}", 7) }).split();
    assert_eq!(panic_message(|| sync_wait(shared.clone())), "number 7");
    assert_eq!(panic_message(|| sync_wait(shared)), "number 7");
    let odd = just_from(|| -> i32 { std::panic::panic_any(7) }).split();
    assert!(panic_message(|| sync_wait(odd)).contains("not text"));
}

#[test]
fn a_panic_of_clone_arrives_at_the_receiver_it_was_for() {
    #[derive(Debug)]
    struct Touchy(Arc<AtomicUsize>);
    impl Clone for Touchy {
        fn clone(&self) -> Self {
            assert!(self.0.fetch_add(1, SeqCst) != 1, "the second clone");
            Touchy(self.0.clone())
        }
    }
    let value = just(Touchy(Arc::default())).split();
    sync_wait(value.clone()).unwrap();
    assert_eq!(panic_message(|| sync_wait(value.clone())), "the second clone");
    sync_wait(value).unwrap();
    let error = just_error::<(), _>(Touchy(Arc::new(AtomicUsize::new(1)))).split();
    assert_eq!(panic_message(|| sync_wait(error.clone())), "the second clone");
    assert!(sync_wait(error).is_error());
}

#[test]
fn a_receiver_that_is_stopped_leaves_the_others_waiting() {
    static LOOP: RunLoop = RunLoop::new();
    let runs = Arc::default();
    let shared = counted_run(&LOOP, &runs).split();
    let source = InplaceStopSource::new();
    let leaving = || shared.clone().write_env(WithStopToken(source.token())).into_outcome();
    let staying = || shared.clone().into_outcome();
    let all = when_all((
        staying(),
        leaving(),
        staying(),
        leaving(),
        just_from(|| (source.request_stop(), source.request_stop())),
        staying(),
        // It comes after the stop.
        leaving(),
    ));
    let (a, b, c, d, _, e, f) = LOOP.run_until(all).unwrap();
    assert_eq!((a, c, e), (Outcome::Value(1), Outcome::Value(1), Outcome::Value(1)));
    assert!(b.is_stopped() && d.is_stopped() && f.is_stopped());
}

#[test]
fn a_receiver_that_is_stopped_before_its_start_does_not_begin_the_run() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let shared = just_from(|| panic!("run")).split();
    assert!(sync_wait(shared.write_env(WithStopToken(source.token()))).is_stopped());
}

#[test]
fn the_sender_is_asked_to_stop_when_the_last_handle_and_receiver_are_gone() {
    let stopped = Arc::new(AtomicBool::new(false));
    let shared = notes_its_stop(&stopped).split();
    let handle = shared.clone();
    let source = StopSource::new();
    start_detached(shared.clone().write_env(WithStopToken(source.token())).then(|_| ()));
    start_detached(shared.write_env(WithStopToken(source.token())).then(|_| ()));
    source.request_stop();
    assert!(!stopped.load(SeqCst), "there is a handle");
    drop(handle.clone());
    assert!(!stopped.load(SeqCst), "there is a handle");
    drop(handle);
    assert!(stopped.load(SeqCst));

    // The reverse: the receiver is the last.
    let stopped = Arc::new(AtomicBool::new(false));
    let shared = notes_its_stop(&stopped).split();
    let source = StopSource::new();
    start_detached(shared.clone().write_env(WithStopToken(source.token())).then(|_| ()));
    drop(shared);
    assert!(!stopped.load(SeqCst), "there is a receiver");
    source.request_stop();
    assert!(stopped.load(SeqCst));
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let value = census.value();
    let shared = just_from(move || panic!("called with {value:?}")).split();
    let mut slot = WaitSlot::new();
    drop(prepare(shared.clone(), &mut slot));
    assert_eq!(census.alive(), 1);
    drop(shared);
    assert_eq!(census.alive(), 0);
}

/// `split` in a box in `split`, and on.
fn nest(leaf: BoxedSender<'static, i32, &'static str>) -> BoxedSender<'static, i32, &'static str> {
    (0..100_000).fold(leaf, |inside, _| inside.split().boxed())
}

#[test]
fn a_deep_nest_is_dropped_unstarted_in_a_small_stack() {
    let census = Census::new();
    let leaf = || Hostile::new(Trick::None, &census).boxed();
    with_stack(DEEP_STACK, || {
        drop(nest(leaf()));
        assert_eq!(census.alive(), 0);
        drop(nest(leaf()).split());
        assert_eq!(census.alive(), 0);
        let mut slot = WaitSlot::new();
        drop(prepare(nest(leaf()).split(), &mut slot));
        assert_eq!(census.alive(), 0);
        assert_eq!(sync_wait(nest(leaf())).unwrap(), 1);
        assert_eq!(census.alive(), 0);
    });
}

#[test]
fn a_handle_keeps_its_part_of_a_nest_that_is_dropped() {
    let census = Census::new();
    let kept = Hostile::new(Trick::None, &census).split();
    let nest = kept.clone().boxed().split().boxed();
    drop(nest);
    assert_eq!(census.alive(), 1);
    assert_eq!(sync_wait(kept).unwrap(), 1);
    assert_eq!(census.alive(), 0);
    // A run that has begun is not destroyed but asked to stop.
    static LOOP: RunLoop = RunLoop::new();
    let stopped = Arc::default();
    let running = notes_its_stop(&stopped).split();
    let (record, seen) = Record::in_env(EmptyEnv);
    let source = StopSource::new();
    submit(running.clone().write_env(WithStopToken(source.token())), record);
    let nest = running.boxed().boxed();
    source.request_stop();
    assert_eq!(seen.recv().unwrap(), Recorded::Stopped);
    assert!(!stopped.load(SeqCst), "a handle is left");
    drop(nest);
    LOOP.run_ready();
    assert!(stopped.load(SeqCst));
}

#[test]
fn a_panic_in_connect_arrives_at_every_receiver() {
    let census = Census::new();
    for trick in [Trick::ConnectPanics, Trick::ConnectDropsAndPanics] {
        let shared = Hostile::new(trick, &census).split();
        for _ in 0..2 {
            assert_eq!(panic_message(|| sync_wait(shared.clone())), "in connect");
        }
        assert_eq!(census.alive(), 0);
        let running = Hostile::new(trick, &census).ensure_started();
        assert_eq!(panic_message(|| sync_wait(running)), "in connect");
        assert_eq!(census.alive(), 0);
    }
}

#[test]
fn a_panic_in_start_ends_the_process() {
    let said = aborts("a_panic_in_start_ends_the_process", || {
        drop(Hostile::new(Trick::StartPanics, &Census::new()).ensure_started());
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

#[test]
fn the_result_goes_with_the_last_handle() {
    let census = Census::new();
    let shared = just(Arc::new(census.value())).split();
    drop(sync_wait(shared.clone()).unwrap());
    assert_eq!(census.alive(), 1);
    drop(shared);
    assert_eq!(census.alive(), 0);
}

#[test]
fn the_operation_is_destroyed_when_it_completes() {
    let census = Census::new();
    let value = census.value();
    let shared = just(1).then(move |x| (x, drop(value)).0).split();
    sync_wait(shared.clone()).unwrap();
    assert_eq!(census.alive(), 0);
    drop(shared);
}

#[test]
fn receivers_start_stop_and_leave_on_many_threads() {
    static LOOP: RunLoop = RunLoop::new();
    thread::scope(|scope| {
        scope.spawn(|| LOOP.run());
        for _ in 0..300 {
            let runs = Arc::default();
            let shared = counted_run(&LOOP, &runs).split();
            let source = InplaceStopSource::new();
            let together = Barrier::new(3);
            thread::scope(|scope| {
                let leaving = shared.clone().write_env(WithStopToken(source.token()));
                let (staying, together, source) = (shared.clone(), &together, &source);
                scope.spawn(move || {
                    together.wait();
                    let outcome = sync_wait(leaving);
                    assert!(matches!(outcome, Outcome::Value(1) | Outcome::Stopped), "{outcome:?}");
                });
                scope.spawn(move || {
                    together.wait();
                    source.request_stop();
                });
                together.wait();
                assert_eq!(sync_wait(staying).unwrap(), 1);
            });
            drop(shared);
            assert_eq!(runs.load(SeqCst), 1);
        }
        LOOP.finish();
    });
}

#[test]
fn losing_the_last_interest_races_with_the_completion() {
    static LOOP: RunLoop = RunLoop::new();
    let census = Census::new();
    thread::scope(|scope| {
        scope.spawn(|| LOOP.run());
        for _ in 0..2_000 {
            let source = StopSource::new();
            let value = census.value();
            let shared = LOOP.scheduler().schedule().then(move |()| Arc::new(value)).split();
            start_detached(shared.write_env(WithStopToken(source.token())).then(drop));
            source.request_stop();
        }
        LOOP.finish();
    });
    assert_eq!(census.alive(), 0);
}

#[test]
fn allocates_once() {
    let (values, allocated) = allocations(|| {
        let shared = just(7).then(|x| x + 1).split();
        (
            sync_wait(shared.clone()).unwrap(),
            sync_wait(when_all([shared.clone(), shared])).unwrap(),
        )
    });
    assert_eq!((values, allocated), ((8, [8, 8]), 1));
}

#[test]
fn a_hundred_thousand_receivers_take_constant_stack() {
    static LOOP: RunLoop = RunLoop::new();
    with_stack(SMALL_STACK, || {
        let runs = Arc::default();
        let shared = counted_run(&LOOP, &runs).split();
        let all = when_all_iter((0..100_000).map(|_| shared.clone()));
        assert!(LOOP.run_until(all).unwrap().into_iter().all(|run| run == 1));
    });
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut left = ROUNDS;
        let stored = just(1).split();
        let round = just(()).let_value(move |()| when_all((stored, just(2).split())));
        let last = sync_wait(round.repeat_until(|_| {
            left -= 1;
            left == 0
        }));
        assert_eq!(last.unwrap(), (1, 2));
    });
}
