//! Environments: queries, changes, and a user-defined one.

use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::common::*;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop, RunLoopScheduler, TaskScheduler, ThreadPool};
use bowline::stop::{NeverStop, SharedStopToken, StopSource};
use bowline::{EmptyEnv, NoScheduler, Patched};

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
    // Work on that scheduler runs on the waiting thread.
    let there = sync_wait(
        just(())
            .continues_on(InlineScheduler)
            .affine()
            .then(|()| thread::current().id()),
    );
    assert_eq!(there.unwrap(), thread::current().id());
}

/// A user-defined environment: a token, a scheduler and a value of its own, the rest from the inner one.
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
    let said = aborts("a_clone_that_panics_where_nobody_can_be_told_ends_the_process", || {
        let _ = sync_wait(never::<(), ()>().write_env(With(Unclonable)));
    });
    assert!(said.contains("panicked inside a job"), "{said}");
}

/// An environment that answers differently each time, and forwards hidden queries to the inner one.
#[derive(Clone)]
struct Fickle<E> {
    inside: E,
    asked: Arc<AtomicUsize>,
    pools: Arc<[ThreadPool; 2]>,
}

impl<E: Env> Fickle<E> {
    fn turn(&self) -> usize {
        self.asked.fetch_add(1, SeqCst)
    }
}

impl<E: Env> Env for Fickle<E> {
    type StopToken = E::StopToken;
    type Scheduler = TaskScheduler<'static>;

    fn stop_token(&self) -> E::StopToken {
        self.inside.stop_token()
    }

    fn scheduler(&self) -> TaskScheduler<'static> {
        match self.turn() % 3 {
            0 => TaskScheduler::new(InlineScheduler),
            1 => TaskScheduler::new(self.pools[0].scheduler()),
            _ => TaskScheduler::new(self.pools[1].scheduler()),
        }
    }

    fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
        for _ in 0..self.turn() % 3 {
            // Not of the requested type, and more than once.
            found(&Name("what was not asked for"));
            found(&Depth(u32::try_from(self.turn()).unwrap()));
        }
        self.inside.visit(id, found);
    }

    fn priority(&self) -> Option<Priority> {
        [None, Some(Priority::Background), Some(Priority::UserInteractive)][self.turn() % 3]
    }

    fn door(&self) -> bowline::sender::EnvDoor<'_> {
        if self.turn().is_multiple_of(2) {
            self.inside.door()
        } else {
            EmptyEnv.door()
        }
    }
}

#[test]
fn an_environment_that_answers_differently_each_time_is_harmless() {
    let env = Fickle {
        inside: Patched::new(With(Depth(7)), EmptyEnv),
        asked: Arc::default(),
        pools: Arc::new([ThreadPool::new(2), ThreadPool::new(1)]),
    };
    for _ in 0..50 {
        let (receiver, reports) = Record::in_env(env.clone());
        let task = Task::new(async {
            let Ok(depth) = read_env(Get::<Depth>::new()).await;
            task::yield_now().await;
            let Ok(boxed) = read_env(Get::<Depth>::new()).boxed().await;
            let spread = just(()).bulk(8, |_, ()| ()).await;
            assert!(spread.is_ok());
            let inner = Task::new(async {
                let Ok(there) = just(1).boxed().await;
                there
            });
            let sum = task::group(async |group| {
                group.spawn(async { 1 });
                group.spawn(async { 2 });
                let mut sum = 0;
                while let Some(one) = group.next().await {
                    sum += one;
                }
                sum
            })
            .await;
            (depth.is_some(), boxed.is_some(), inner.await.unwrap() + sum)
        });
        let work = when_all((task, just(1).boxed().affine(), just(2).on(InlineScheduler)));
        submit(work, receiver);
        let Ok(Recorded::Value(((depth, boxed, four), 1, 2))) = reports.recv() else {
            panic!("it did not complete");
        };
        assert!(depth && boxed && four == 4);
    }
}

#[test]
fn a_wrapper_that_forwards_what_is_hidden_is_seen_through() {
    /// An environment that adds nothing.
    #[derive(Clone)]
    struct Plain<E>(E);
    impl<E: Env> Env for Plain<E> {
        type StopToken = E::StopToken;
        type Scheduler = E::Scheduler;
        fn stop_token(&self) -> E::StopToken {
            self.0.stop_token()
        }
        fn scheduler(&self) -> E::Scheduler {
            self.0.scheduler()
        }
        fn visit(&self, id: TypeId, found: &mut dyn FnMut(&dyn Any)) {
            self.0.visit(id, found);
        }
        fn door(&self) -> bowline::sender::EnvDoor<'_> {
            self.0.door()
        }
    }
    let env = Plain(Patched::new(
        With(Depth(1)),
        Plain(Patched::new(With(Name("deep")), EmptyEnv)),
    ));
    let (receiver, reports) = Record::in_env(env);
    let asks = || when_all((read_env(Get::<Depth>::new()), read_env(Get::<Name>::new())));
    submit(asks().boxed().boxed(), receiver);
    assert!(matches!(
        reports.try_recv(),
        Ok(Recorded::Value((Some(Depth(1)), Some(Name("deep")))))
    ));
}

#[test]
fn a_value_is_found_through_a_great_many_boxes_in_constant_stack() {
    with_stack(SMALL_STACK, || {
        let mut work = read_env(Get::<Depth>::new()).boxed();
        for level in 0..1_000 {
            work = work.write_env(With(Name("on the way"))).boxed();
            if level == 500 {
                work = work.write_env(With(0u8)).boxed();
            }
        }
        let (receiver, reports) = Record::in_env(Patched::new(With(Depth(3)), EmptyEnv));
        submit(work, receiver);
        assert!(matches!(reports.try_recv(), Ok(Recorded::Value(Some(Depth(3))))));
    });
}

#[test]
fn a_panic_in_an_environment_where_a_task_starts_is_its_completion() {
    #[derive(Clone, Copy)]
    struct Panics(&'static str);
    impl Panics {
        fn call(self, method: &str) {
            assert!(self.0 != method, "in {method}");
        }
    }
    impl Env for Panics {
        type StopToken = NeverStop;
        type Scheduler = InlineScheduler;
        fn stop_token(&self) -> NeverStop {
            self.call("stop_token");
            NeverStop
        }
        fn scheduler(&self) -> InlineScheduler {
            self.call("scheduler");
            InlineScheduler
        }
        fn visit(&self, _: TypeId, _: &mut dyn FnMut(&dyn Any)) {}
        fn priority(&self) -> Option<Priority> {
            self.call("priority");
            None
        }
        fn door(&self) -> bowline::sender::EnvDoor<'_> {
            self.call("door");
            EmptyEnv.door()
        }
    }
    let census = Census::new();
    for method in ["stop_token", "scheduler", "priority", "door"] {
        let (receiver, reports) = Record::<(), Infallible, _>::in_env(Panics(method));
        let value = census.value();
        submit(Task::new(async move { drop(value) }), receiver);
        assert!(matches!(reports.try_recv(), Ok(Recorded::Panicked(_))), "{method}");
        assert_eq!(census.alive(), 0);
    }
}
