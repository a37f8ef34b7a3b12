//! `write_env`: changes one value of the environment that a sender sees.

use std::convert::Infallible;
use std::sync::Arc;

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::stop::{InplaceStopSource, StopSource};
use bowline::{Completes, Query};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Depth(u32);

/// A query of everything that can be written.
#[derive(Clone, Copy)]
struct Everything;

impl Query for Everything {
    type Answer = (Option<Depth>, bool, bool);

    fn ask<E: Env>(self, env: &E) -> Self::Answer {
        (
            env.get(),
            env.stop_token().stop_requested(),
            completes(&env.scheduler().schedule()).is_inline(),
        )
    }
}

#[test]
fn changes_one_thing_and_leaves_the_rest() {
    let source = StopSource::new();
    source.request_stop();
    let read = || read_env(Everything);
    assert_eq!(sync_wait(read()).unwrap(), (None, false, false));
    assert_eq!(
        sync_wait(read().write_env(With(Depth(1)))).unwrap(),
        (Some(Depth(1)), false, false)
    );
    assert_eq!(
        sync_wait(read().write_env(WithStopToken(source.token()))).unwrap(),
        (None, true, false)
    );
    assert_eq!(
        sync_wait(read().write_env(WithScheduler(InlineScheduler))).unwrap(),
        (None, false, true)
    );
}

#[test]
fn what_is_written_is_seen_inside_only() {
    let work = read_env(Everything)
        .write_env(With(Depth(1)))
        .let_value(|inside| read_env(Everything).then(move |outside| (inside.0, outside.0)));
    assert_eq!(sync_wait(work).unwrap(), (Some(Depth(1)), None));
}

#[test]
fn the_token_that_was_written_hides_the_one_outside() {
    let (inner, outer) = (InplaceStopSource::new(), InplaceStopSource::new());
    outer.request_stop();
    let read = read_env(StopRequested).write_env(WithStopToken(inner.token()));
    assert!(!sync_wait(read.write_env(WithStopToken(outer.token()))).unwrap());
}

#[test]
fn the_token_that_was_written_stops() {
    let source = InplaceStopSource::new();
    thread::scope(|scope| {
        scope.spawn(|| source.request_stop());
        assert!(sync_wait(never::<(), ()>().write_env(WithStopToken(source.token()))).is_stopped());
    });
}

#[test]
fn the_scheduler_that_was_written_is_the_one_that_is_come_back_to() {
    with_loop(|scheduler| {
        let hop = just(()).on(InlineScheduler).then(|()| thread::current().id());
        let there = sync_wait(hop.write_env(WithScheduler(scheduler))).unwrap();
        assert_ne!(there, thread::current().id());
    });
}

#[test]
fn with_scheduler_and_with_env_are_short_for_it() {
    with_loop(|scheduler| {
        let hop = just(()).on(InlineScheduler).then(|()| thread::current().id());
        let there = sync_wait(hop.with_scheduler(scheduler)).unwrap();
        assert_ne!(there, thread::current().id());
    });
    assert_eq!(sync_wait(read_env(Get::<u8>::new()).with_env(7_u8)).unwrap(), Some(7));
    // The innermost counts.
    let nested = read_env(Get::<u8>::new()).with_env(1_u8).with_env(2_u8);
    assert_eq!(sync_wait(nested).unwrap(), Some(1));
    assert_eq!(
        format!("{:?}", just(1).with_env(2)),
        "WriteEnv { sender: Just { value: 1 }, patch: With(2) }"
    );
}

#[test]
fn what_was_written_is_dropped_before_the_completion() {
    let value = Arc::new(());
    let count = || Arc::strong_count(&value);
    let written = || With(value.clone());
    assert_eq!(sync_wait(just(0).write_env(written()).then(|_| count())).unwrap(), 1);
    let failed = just_error::<usize, _>(0).write_env(written());
    assert_eq!(sync_wait(failed.upon_error(|_| count())).unwrap(), 1);
    let stopped = just_stopped::<usize, Infallible>().write_env(written());
    assert_eq!(sync_wait(stopped.upon_stopped(count)).unwrap(), 1);
    panic_message(|| sync_wait(just_panic::<(), ()>("boom").write_env(written())));
    assert_eq!(count(), 1);
}

#[test]
fn what_is_promised_about_a_written_scheduler_does_not_hold_outside() {
    let on_its_scheduler = from_future(std::future::ready(1));
    assert_eq!(
        completes(&on_its_scheduler.clone().write_env(With(Depth(1)))),
        Completes::OnStartScheduler
    );
    assert_eq!(
        completes(&on_its_scheduler.write_env(WithScheduler(InlineScheduler))),
        Completes::Anywhere
    );
    assert_eq!(
        completes(&just(1).write_env(WithScheduler(InlineScheduler))),
        Completes::Inline
    );
}

#[test]
fn does_not_allocate() {
    let (value, allocated) = allocations(|| {
        let source = InplaceStopSource::new();
        let work = just(1)
            .write_env(With(Depth(1)))
            .write_env(WithScheduler(InlineScheduler));
        sync_wait(work.write_env(WithStopToken(source.token()))).unwrap()
    });
    assert_eq!((value, allocated), (1, 0));
}
