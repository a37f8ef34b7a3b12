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
fn completes_where_the_sender_does() {
    assert_eq!(completes(&just(1).unstoppable()), Completes::Inline);
    assert_eq!(
        completes(&from_future(std::future::ready(1)).unstoppable()),
        Completes::OnStartScheduler
    );
    assert_eq!(completes(&never::<(), ()>().unstoppable()), Completes::Anywhere);
}
