//! Environments: what is in one, how it is changed, and one of the user's own.

mod common;

use std::any::{Any, TypeId};
use std::convert::Infallible;

use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, RunLoopScheduler};
use bowline::stop::{NeverStop, SharedStopToken, StopSource};
use bowline::{EmptyEnv, NoScheduler, Patched};
use common::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Depth(u32);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Name(&'static str);

#[test]
fn the_empty_environment_knows_nothing() {
    assert_eq!(EmptyEnv.stop_token(), NeverStop);
    assert!(!EmptyEnv.stop_token().stop_possible());
    assert_eq!(EmptyEnv.scheduler(), NoScheduler);
    assert_eq!(EmptyEnv.get::<Depth>(), None);
}

#[test]
fn a_patch_changes_one_thing() {
    let source = StopSource::new();
    let stoppable = Patched::new(WithStopToken(source.token()), EmptyEnv);
    assert!(stoppable.stop_token() == source.token());
    assert_eq!(stoppable.scheduler(), NoScheduler);
    assert_eq!(stoppable.get::<Depth>(), None);

    let scheduled = Patched::new(WithScheduler(InlineScheduler), stoppable.clone());
    assert_eq!(scheduled.scheduler(), InlineScheduler);
    assert!(scheduled.stop_token() == source.token());

    let valued = Patched::new(With(Depth(1)), scheduled);
    assert_eq!(valued.get(), Some(Depth(1)));
    assert_eq!(valued.get::<Name>(), None);
    assert_eq!(valued.scheduler(), InlineScheduler);
    assert!(valued.stop_token() == source.token());
}

#[test]
fn the_patch_on_top_wins() {
    let env = Patched::new(
        With(Depth(2)),
        Patched::new(With(Name("beneath")), Patched::new(With(Depth(1)), EmptyEnv)),
    );
    assert_eq!(env.get(), Some(Depth(2)));
    assert_eq!(env.get(), Some(Name("beneath")));
    let mut shown = 0;
    env.visit(TypeId::of::<Depth>(), &mut |_| shown += 1);
    assert_eq!(shown, 1, "what is beneath is hidden");

    let (inner, outer) = (StopSource::new(), StopSource::new());
    let env = Patched::new(
        WithStopToken(inner.token()),
        Patched::new(WithStopToken(outer.token()), EmptyEnv),
    );
    assert!(env.stop_token() == inner.token());
    outer.request_stop();
    assert!(!env.stop_token().stop_requested());
}

#[test]
fn a_value_is_found_through_every_patch() {
    let source = StopSource::new();
    let env = Patched::new(
        WithStopToken(source.token()),
        Patched::new(WithScheduler(InlineScheduler), Patched::new(With(Depth(1)), EmptyEnv)),
    );
    assert_eq!(env.get(), Some(Depth(1)));
}

#[test]
fn sync_wait_offers_its_loop_and_no_stop() {
    struct Offered;
    impl bowline::Query for Offered {
        type Answer = (bool, bool);
        fn ask<E: Env>(self, env: &E) -> (bool, bool) {
            (E::Scheduler::INFALLIBLE, env.stop_token().stop_possible())
        }
    }
    assert_eq!(sync_wait(read_env(Offered)).unwrap(), (true, false));
    // What runs on that scheduler runs in the waiting thread.
    let there = sync_wait(
        just(())
            .continues_on(InlineScheduler)
            .affine()
            .then(|()| thread::current().id()),
    );
    assert_eq!(there.unwrap(), thread::current().id());
}

/// An environment of the user's own: a token, a scheduler and a value of its own, the rest from the one beneath.
#[derive(Clone)]
struct Session<E> {
    token: SharedStopToken,
    run_loop: &'static RunLoop,
    name: Name,
    beneath: E,
}

impl<E: Env> Env for Session<E> {
    type StopToken = SharedStopToken;
    type Scheduler = RunLoopScheduler<'static>;

    fn stop_token(&self) -> SharedStopToken {
        self.token.clone()
    }

    fn scheduler(&self) -> RunLoopScheduler<'static> {
        self.run_loop.scheduler()
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        if id == TypeId::of::<Name>() {
            found(&self.name);
        } else {
            self.beneath.visit(id, found);
        }
    }
}

impl Session<EmptyEnv> {
    fn new(source: &StopSource, run_loop: &'static RunLoop) -> Session<impl Env + use<>> {
        Session {
            token: source.token(),
            run_loop,
            name: Name("mine"),
            beneath: Patched::new(With(Depth(1)), EmptyEnv),
        }
    }
}

#[test]
fn an_environment_of_ones_own_is_read_from() {
    static LOOP: RunLoop = RunLoop::new();
    let source = StopSource::new();
    let (receiver, reports) = Record::in_env(Session::new(&source, &LOOP));
    let work = when_all((
        read_env(Get::<Name>::new()),
        read_env(Get::<Depth>::new()),
        read_env(StopRequested),
    ));
    submit(work, receiver);
    assert!(matches!(
        reports.try_recv(),
        Ok(Recorded::Value((Some(Name("mine")), Some(Depth(1)), false)))
    ));
}

#[test]
fn an_environment_of_ones_own_is_patched() {
    static LOOP: RunLoop = RunLoop::new();
    let source = StopSource::new();
    let (receiver, reports) = Record::in_env(Session::new(&source, &LOOP));
    submit(read_env(Get::<Name>::new()).write_env(With(Name("written"))), receiver);
    assert!(matches!(reports.try_recv(), Ok(Recorded::Value(Some(Name("written"))))));
}

#[test]
fn the_token_of_an_environment_of_ones_own_stops() {
    static LOOP: RunLoop = RunLoop::new();
    let source = StopSource::new();
    let (receiver, reports) = Record::<(), Infallible, _>::in_env(Session::new(&source, &LOOP));
    submit(never(), receiver);
    assert!(reports.try_recv().is_err());
    source.request_stop();
    assert!(matches!(reports.try_recv(), Ok(Recorded::Stopped)));
}

#[test]
fn the_scheduler_of_an_environment_of_ones_own_is_come_back_to() {
    static LOOP: RunLoop = RunLoop::new();
    let source = StopSource::new();
    let (receiver, reports) = Record::in_env(Session::new(&source, &LOOP));
    submit(just(7).on(InlineScheduler), receiver);
    assert!(reports.try_recv().is_err());
    assert_eq!(LOOP.run_ready(), 1);
    assert!(matches!(reports.try_recv(), Ok(Recorded::Value(7))));
}

#[test]
fn asking_does_not_allocate() {
    let env = Patched::new(With(Name("n")), Patched::new(With(Depth(1)), EmptyEnv));
    assert_eq!(
        allocations(|| (env.get::<Depth>(), env.get::<u8>())),
        ((Some(Depth(1)), None), 0)
    );
}

#[test]
fn a_clone_that_panics_where_nobody_can_be_told_ends_the_process() {
    #[derive(Debug)]
    struct Unclonable;
    impl Clone for Unclonable {
        fn clone(&self) -> Self {
            panic!("in the clone");
        }
    }
    if std::env::var_os("BOWLINE_ENDS_HERE").is_some() {
        let _ = sync_wait(never::<(), ()>().write_env(With(Unclonable)));
        return;
    }
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_clone_that_panics_where_nobody_can_be_told_ends_the_process",
            "--nocapture",
        ])
        .env("BOWLINE_ENDS_HERE", "1")
        .output()
        .unwrap();
    assert!(!ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("panicked inside a job"), "{said}");
}
