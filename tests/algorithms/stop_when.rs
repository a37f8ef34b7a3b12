//! `stop_when`: asks a sender to stop when another completes.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;

#[test]
fn the_trigger_stops_the_sender() {
    let run_loop = RunLoop::new();
    let stopped = AtomicBool::new(false);
    let work = never::<i32, Infallible>().upon_stopped(|| {
        stopped.store(true, SeqCst);
        1
    });
    let trigger = run_loop.scheduler().schedule();
    assert_eq!(run_loop.run_until(work.stop_when(trigger)).unwrap(), 1);
    assert!(stopped.into_inner());
    assert!(sync_wait(never::<i32, Infallible>().stop_when(just(()))).is_stopped());
}

#[test]
fn every_completion_of_the_trigger_counts() {
    let work = || never::<i32, Infallible>();
    assert!(sync_wait(work().stop_when(just_error::<(), _>("failed"))).is_stopped());
    assert!(sync_wait(work().stop_when(just_stopped::<(), Infallible>())).is_stopped());
    let panics = || just_from(|| panic!("trigger"));
    assert_eq!(panic_message(|| sync_wait(work().stop_when(panics()))), "trigger");
}

#[test]
fn the_completion_is_that_of_the_sender() {
    let trigger = never::<(), Infallible>;
    assert_eq!(sync_wait(just(1).stop_when(trigger())).unwrap(), 1);
    assert_eq!(
        sync_wait(just_error::<i32, _>("no").stop_when(trigger())).err(),
        Some("no")
    );
    assert!(sync_wait(just_stopped::<i32, Infallible>().stop_when(trigger())).is_stopped());
    let panics = || just_from(|| -> i32 { panic!("work") });
    assert_eq!(panic_message(|| sync_wait(panics().stop_when(trigger()))), "work");
    // A value stays a value, even if the trigger has completed too.
    assert_eq!(sync_wait(just(1).stop_when(just(()))).unwrap(), 1);
}

#[test]
fn a_panic_of_the_trigger_is_not_lost_to_a_value_but_to_a_panic() {
    let trigger = || just_from(|| panic!("trigger"));
    assert_eq!(panic_message(|| sync_wait(just(1).stop_when(trigger()))), "trigger");
    let late = || never::<(), Infallible>().upon_stopped(|| panic!("trigger"));
    assert_eq!(panic_message(|| sync_wait(just(1).stop_when(late()))), "trigger");
    let both = || just_from(|| -> i32 { panic!("work") }).stop_when(trigger());
    assert_eq!(panic_message(|| sync_wait(both())), "work");
}

#[test]
fn the_trigger_is_stopped_and_awaited_when_the_sender_completes() {
    let run_loop = RunLoop::new();
    let ended = AtomicBool::new(false);
    let trigger = never::<(), Infallible>().let_stopped(|| {
        let hop = run_loop.scheduler().schedule().unstoppable();
        hop.then(|()| ended.store(true, SeqCst))
    });
    let work = just(1).stop_when(trigger).then(|x| (x, ended.load(SeqCst)));
    assert_eq!(run_loop.run_until(work).unwrap(), (1, true));
}

#[test]
fn the_sender_is_awaited_after_it_was_stopped() {
    let run_loop = RunLoop::new();
    let work = never::<i32, Infallible>().let_stopped(|| {
        let hop = run_loop.scheduler().schedule().unstoppable();
        hop.then(|()| 5)
    });
    assert_eq!(run_loop.run_until(work.stop_when(just(()))).unwrap(), 5);
}

#[test]
fn a_stop_of_the_parent_reaches_both() {
    let run_loop = RunLoop::new();
    let source = InplaceStopSource::new();
    let stopped = AtomicUsize::new(0);
    let child = || {
        never::<(), Infallible>().let_stopped(|| {
            stopped.fetch_add(1, SeqCst);
            just_stopped()
        })
    };
    let work = || {
        child()
            .stop_when(child())
            .write_env(WithStopToken(source.token()))
            .into_outcome()
    };
    let request = run_loop.scheduler().schedule().then(|()| source.request_stop());
    let (outcome, _) = run_loop.run_until(when_all((work(), request))).unwrap();
    assert!(outcome.is_stopped());
    assert_eq!(stopped.load(SeqCst), 2);
    // Requested before the start, and a second time.
    assert!(!source.request_stop());
    assert!(sync_wait(work()).unwrap().is_stopped());
    assert_eq!(stopped.load(SeqCst), 4);
}

#[test]
fn a_stop_during_the_start_reaches_both() {
    let source = InplaceStopSource::new();
    let work = just_from(|| source.request_stop()).let_value(|_| never::<(), Infallible>());
    let work = work
        .stop_when(never::<(), Infallible>())
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn the_triggers_stop_does_not_leave_it() {
    let source = InplaceStopSource::new();
    let work = never::<(), Infallible>()
        .stop_when(just(()))
        .write_env(WithStopToken(source.token()));
    assert!(sync_wait(work).is_stopped());
    assert!(!source.stop_requested());
}

#[test]
fn sender_trigger_and_stop_race_on_several_threads() {
    with_loop(|a| {
        with_loop(|b| {
            for _ in 0..2_000 {
                let source = InplaceStopSource::new();
                let work = starts_on(a, just(1)).stop_when(starts_on(b, just(())));
                let work = work.write_env(WithStopToken(source.token())).into_outcome();
                let request = starts_on(a, just_from(|| source.request_stop()));
                let (outcome, _) = sync_wait(when_all((work, request))).unwrap();
                assert!(matches!(outcome, Outcome::Value(1) | Outcome::Stopped));
            }
        });
    });
}
