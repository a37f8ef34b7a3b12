//! `never`: completes only when it is asked to stop.

use std::convert::Infallible;
use std::sync::mpsc::TryRecvError;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Completes, EmptyEnv, Patched};

#[test]
fn completes_when_the_stop_is_requested_and_not_before() {
    let source = StopSource::new();
    let (receiver, reports) = Record::<i32, &str, _>::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(never(), receiver);
    assert_eq!(reports.try_recv().err(), Some(TryRecvError::Empty));
    assert!(source.request_stop());
    assert!(matches!(reports.try_recv(), Ok(Recorded::Stopped)));
}

#[test]
fn a_stop_before_the_start_completes_it_at_once() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let work = never::<i32, &str>().write_env(WithStopToken(source.token()));
    assert_eq!(sync_wait(work), Outcome::Stopped);
}

#[test]
fn a_stop_during_the_start_completes_it() {
    let source = InplaceStopSource::new();
    let work = when_all((never::<(), Infallible>(), just_from(|| assert!(source.request_stop()))));
    assert!(sync_wait(work.write_env(WithStopToken(source.token()))).is_stopped());
}

#[test]
fn a_second_stop_changes_nothing() {
    let source = StopSource::new();
    let (receiver, reports) = Record::<i32, &str, _>::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(never(), receiver);
    assert!(source.request_stop());
    assert!(!source.request_stop());
    assert_eq!(reports.iter().count(), 1);
}

#[test]
fn completes_on_the_thread_that_requests_the_stop() {
    let source = StopSource::new();
    let (receiver, reports) = Record::<_, Infallible, _>::in_env(Patched::new(WithStopToken(source.token()), EmptyEnv));
    submit(never().upon_stopped(|| thread::current().id()), receiver);
    let requester = thread::spawn(move || {
        source.request_stop();
        thread::current().id()
    });
    let requester = requester.join().unwrap();
    assert!(matches!(reports.recv(), Ok(Recorded::Value(at)) if at == requester));
}

#[test]
fn no_stop_is_lost_when_it_races_with_the_start() {
    for _ in 0..500 {
        let source = InplaceStopSource::new();
        thread::scope(|scope| {
            scope.spawn(|| source.request_stop());
            assert!(sync_wait(never::<(), ()>().write_env(WithStopToken(source.token()))).is_stopped());
        });
    }
}

#[test]
fn dropped_unstarted_it_listens_to_nothing() {
    let source = InplaceStopSource::new();
    let mut slot = WaitSlot::new();
    let work = never::<(), Infallible>().upon_stopped(|| panic!("called"));
    drop(prepare(work.write_env(WithStopToken(source.token())), &mut slot));
    assert!(source.request_stop());
}

#[test]
fn a_copy_needs_no_copy_of_the_types() {
    let sender = never::<Counted, Counted>();
    let copy = sender;
    let source = InplaceStopSource::new();
    source.request_stop();
    assert!(sync_wait(when_all((sender, copy)).write_env(WithStopToken(source.token()))).is_stopped());
}

#[test]
fn promises_nothing_about_where_it_completes() {
    assert_eq!(completes(&never::<(), ()>()), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    let (outcome, allocated) = allocations(|| {
        let source = InplaceStopSource::new();
        let work = when_all((never::<(), Infallible>(), just_from(|| assert!(source.request_stop()))));
        sync_wait(work.write_env(WithStopToken(source.token())))
    });
    assert_eq!((outcome.is_stopped(), allocated), (true, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let source = InplaceStopSource::new();
        source.request_stop();
        let round = never::<_, Infallible>().write_env(WithStopToken(source.token()));
        assert_eq!(sync_wait(round.upon_stopped(|| 7).repeat_until(million())).unwrap(), 7);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let round = never::<_, Infallible>().stop_when(run_loop.scheduler().schedule());
        let last = run_loop.run_until(round.upon_stopped(|| 7).repeat_until(million()));
        assert_eq!(last.unwrap(), 7);
    });
}
