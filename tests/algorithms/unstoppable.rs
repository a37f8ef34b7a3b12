//! `unstoppable`: hides every stop from a sender.

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use bowline::stop::InplaceStopSource;
use bowline::{Completes, Query};

#[test]
fn a_stop_before_the_start_is_not_seen() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let work = read_env(StopRequested).unstoppable();
    assert!(!sync_wait(work.write_env(WithStopToken(source.token()))).unwrap());
}

#[test]
fn a_stop_while_it_runs_does_not_reach_it() {
    let source = InplaceStopSource::new();
    let run_loop = RunLoop::new();
    // The loop checks the token when the job runs; stopped, it would not return the value.
    let hop = || run_loop.scheduler().schedule().then(|()| "ran");
    let both = when_all((hop().unstoppable(), just_from(|| source.request_stop())));
    let ran = run_loop.run_until(both.write_env(WithStopToken(source.token())));
    assert_eq!(ran.unwrap(), ("ran", true));
    let stopped = run_loop.run_until(hop().write_env(WithStopToken(source.token())));
    assert!(stopped.is_stopped());
}

#[test]
fn a_token_written_inside_still_stops() {
    let source = InplaceStopSource::new();
    source.request_stop();
    let work = never::<(), ()>().write_env(WithStopToken(source.token())).unstoppable();
    assert!(sync_wait(work).is_stopped());
}

#[test]
fn the_sender_learns_that_no_stop_can_come() {
    struct Stoppable;
    impl Query for Stoppable {
        type Answer = bool;
        fn ask<E: Env>(self, _: &E) -> bool {
            <E::StopToken as StopToken>::STOPPABLE
        }
    }
    let source = InplaceStopSource::new();
    let both = when_all((read_env(Stoppable).unstoppable(), read_env(Stoppable)));
    assert_eq!(
        sync_wait(both.write_env(WithStopToken(source.token()))).unwrap(),
        (false, true)
    );
}

#[test]
fn the_rest_of_the_environment_is_seen() {
    #[derive(Clone, Debug, PartialEq)]
    struct Depth(u32);
    let work = read_env(Get::<Depth>::new()).unstoppable().write_env(With(Depth(1)));
    assert_eq!(sync_wait(work).unwrap(), Some(Depth(1)));
}

#[test]
fn every_completion_passes() {
    assert_eq!(sync_wait(just(1).unstoppable()), Outcome::Value(1));
    assert_eq!(sync_wait(just_error::<(), _>("no").unstoppable()), Outcome::Error("no"));
    assert!(sync_wait(just_stopped::<(), ()>().unstoppable()).is_stopped());
    assert_eq!(
        panic_message(|| sync_wait(just_panic::<(), ()>("first").unstoppable())),
        "first"
    );
}

#[test]
fn moves_what_cannot_be_copied_and_borrows() {
    let census = Census::new();
    let kept = sync_wait(just(census.value()).unstoppable()).unwrap();
    assert_eq!(census.alive(), 1);
    drop(kept);
    assert_eq!(census.alive(), 0);
    let text = "borrowed".to_owned();
    assert_eq!(sync_wait(just(&text).unstoppable()).unwrap(), "borrowed");
}

#[test]
fn dropped_unstarted_it_runs_nothing() {
    let census = Census::new();
    let mut slot = WaitSlot::new();
    drop(prepare(
        just(census.value()).then(|_| panic!("called")).unstoppable(),
        &mut slot,
    ));
    assert_eq!(census.alive(), 0);
}

#[test]
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).unstoppable()), Completes::Inline);
    assert_eq!(
        completes(&from_future(std::future::ready(1)).unstoppable()),
        Completes::OnStartScheduler
    );
    assert_eq!(completes(&never::<(), ()>().unstoppable()), Completes::Anywhere);
}

#[test]
fn does_not_allocate() {
    assert_eq!(allocations(|| sync_wait(just(1).unstoppable()).unwrap()), (1, 0));
}

#[test]
fn a_million_rounds_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        assert_eq!(sync_wait(just(1).unstoppable().repeat_until(million())).unwrap(), 1);
    });
}

#[test]
fn a_million_rounds_on_a_run_loop_take_constant_stack() {
    with_stack(SMALL_STACK, || {
        let run_loop = RunLoop::new();
        let round = run_loop.scheduler().schedule().unstoppable();
        assert_eq!(run_loop.run_until(round.repeat_until(million())), Outcome::Value(()));
    });
}
