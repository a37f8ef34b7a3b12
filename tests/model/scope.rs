//! Scopes: spawns, closes, joins, stops and drops at the same time.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bowline::prelude::*;
use bowline::scheduler::InlineScheduler;
use bowline::scope::{Kind, Scope, WithStop, WithoutStop};
use bowline::stop::StopSource;
use bowline::{Completion, Panic};

use crate::support::{Ended, Root, World, explore, explore_both_ways, race};

/// Returns work that ends on a thread of its own.
fn remote(world: &World) -> impl Sender<Value = (), Error = Infallible> + use<> {
    world.remote_of(Completion::Value(world.census.value(4))).then(drop)
}

/// Returns a join, which completes on the thread where the last work has ended.
fn join<K: Kind>(scope: &Scope<K>, root: Root) {
    submit(scope.join().write_env(WithScheduler(InlineScheduler)), root);
}

/// Covers work coming before the scope is closed, and after, when it is refused and never runs.
#[test]
fn spawning_races_with_closing() {
    explore_both_ways(3, &["taken", "refused"], |seen, order| {
        let world = World::default();
        let (root, report) = world.root();
        let scope = SimpleCountingScope::new();
        let token = scope.token();
        let value = world.census.value(4);
        let ran = Arc::new(Mutex::new(false));
        let (run, taken) = (ran.clone(), Arc::new(Mutex::new(None)));
        let noted = taken.clone();
        world.threads.run(
            order,
            [
                Box::new(move || {
                    let work = just(value).then(move |value| {
                        drop(value);
                        *run.lock().expect("nobody panicked") = true;
                    });
                    *noted.lock().expect("nobody panicked") = Some(token.spawn(work));
                }),
                Box::new(move || {
                    scope.close();
                    join(&scope, root);
                    assert!(!scope.spawn(just(())));
                }),
            ],
        );
        world.end();
        assert_eq!(report.get(), Ended::Value(0));
        let taken = taken.lock().expect("nobody panicked").expect("it was tried");
        assert_eq!(*ran.lock().expect("nobody panicked"), taken);
        seen.note(if taken { "taken" } else { "refused" });
    });
}

/// Covers the join finding the work ended, and waiting for it. The work happens before the join in both cases. The scope is
/// dropped meanwhile.
#[test]
fn the_last_association_races_with_the_join() {
    race(3, &["at once", "later"], |world, root, report| {
        let scope = CountingScope::new();
        let written = loom::sync::Arc::new(world.census.value(4));
        let work = written.clone();
        assert!(scope.spawn(remote(&world).then(move |()| work.touch())));
        let joined = scope.join().then(move |()| written.touch());
        submit(joined.write_env(WithScheduler(InlineScheduler)), root);
        drop(scope);
        world.end();
        assert_eq!(report.get(), Ended::Value(0));
        if report.here() { "at once" } else { "later" }
    });
}

/// Covers either of two being the last to end, and both ending before a join.
#[test]
fn two_associations_end_while_somebody_joins() {
    race(
        2,
        &["at once", "by the first", "by the second"],
        |world, root, report| {
            let scope = SimpleCountingScope::new();
            let by = Arc::new(Mutex::new(Vec::new()));
            for number in 0..2 {
                let by = by.clone();
                assert!(scope.spawn(remote(&world).then(move |()| {
                    let end = (number, loom::thread::current().id());
                    by.lock().expect("nobody panicked").push(end);
                })));
            }
            join(&scope, root);
            world.end();
            assert_eq!(report.get(), Ended::Value(0));
            let by = by.lock().expect("nobody panicked");
            let last = by.iter().find(|(_, thread)| report.by(*thread));
            match last {
                None => "at once",
                Some((0, _)) => "by the first",
                Some(_) => "by the second",
            }
        },
    );
}

/// Covers work coming while the last one ends and a join starts. It is accepted and awaited, or refused because the scope is
/// joined already.
#[test]
fn spawning_races_with_the_end_that_a_join_waits_for() {
    race(3, &["taken", "refused"], |world, root, report| {
        let scope = SimpleCountingScope::new();
        let held = scope.associate(just(()));
        let written = loom::sync::Arc::new(world.census.value(4));
        let work = written.clone();
        let joined = scope.join().then(move |()| written.touch());
        submit(joined.write_env(WithScheduler(InlineScheduler)), root);
        world.threads.spawn(move || drop(held));
        let taken = scope.spawn(just(work).then(|work| work.touch()));
        drop(scope);
        world.end();
        assert_eq!(report.get(), Ended::Value(0));
        if taken { "taken" } else { "refused" }
    });
}

/// Covers a join leaving before the last work has ended, when the scope stays open, and after, when it is joined.
#[test]
fn leaving_a_join_races_with_the_last_association() {
    race(3, &["left", "joined"], |world, root, report| {
        let scope = SimpleCountingScope::new();
        let held = scope.associate(just(()));
        let source = StopSource::new();
        let stopping = scope.join().write_env(WithStopToken(source.token()));
        submit(stopping.write_env(WithScheduler(InlineScheduler)), root);
        world.threads.spawn(move || drop(held));
        assert!(source.request_stop());
        world.end();
        let open = scope.spawn(just(()));
        match (report.get(), open) {
            (Ended::Stopped, true) => "left",
            (Ended::Value(0), false) => "joined",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers a join leaving while a second join stays.
#[test]
fn one_join_leaves_and_another_stays() {
    explore(2, &["left", "joined"], |seen| {
        let world = World::default();
        let ((leaves, of_leaves), (stays, of_stays)) = (world.root(), world.root());
        let scope = SimpleCountingScope::new();
        let held = scope.associate(just(()));
        let source = StopSource::new();
        join(&scope, stays);
        let stopping = scope.join().write_env(WithStopToken(source.token()));
        submit(stopping.write_env(WithScheduler(InlineScheduler)), leaves);
        world.threads.spawn(move || drop(held));
        assert!(source.request_stop());
        world.end();
        assert!(!scope.spawn(just(())));
        seen.note(match (of_leaves.get(), of_stays.get()) {
            (Ended::Stopped, Ended::Value(0)) => "left",
            (Ended::Value(0), Ended::Value(0)) => "joined",
            other => panic!("{other:?}"),
        });
    });
}

/// Covers an end that looks like the last one being it, and not being it because more work came. The join to be notified leaves
/// meanwhile. The last reference frees the memory.
#[test]
fn an_end_that_a_join_waits_for_is_not_the_last() {
    explore_both_ways(3, &["left", "joined"], |seen, order| {
        let world = World::default();
        let (root, report) = world.root();
        let scope = SimpleCountingScope::new();
        let held = scope.associate(just(()));
        let source = StopSource::new();
        let stopping = scope.join().write_env(WithStopToken(source.token()));
        submit(stopping.write_env(WithScheduler(InlineScheduler)), root);
        world.threads.run(
            order,
            [
                Box::new(move || drop(held)),
                Box::new(move || {
                    let one_more = scope.associate(just(()));
                    drop(scope);
                    assert!(source.request_stop());
                    drop(one_more);
                }),
            ],
        );
        world.end();
        seen.note(match report.get() {
            Ended::Stopped => "left",
            Ended::Value(0) => "joined",
            other => panic!("{other:?}"),
        });
    });
}

/// Covers the work of a future ending normally, and because the future was dropped. The scope is notified in both cases.
#[test]
fn dropping_a_future_races_with_its_completion() {
    race(2, &["completed", "stopped"], |world, root, report| {
        let scope = Scope::<WithStop>::new();
        let ended = Arc::new(Mutex::new(None));
        let note = |end: &'static str| {
            let ended = ended.clone();
            move || assert!(ended.lock().expect("nobody panicked").replace(end).is_none())
        };
        let (completed, stopped) = (note("completed"), note("stopped"));
        let work = world
            .stoppable(4)
            .then(move |value| {
                completed();
                Some(value)
            })
            .upon_stopped(move || {
                stopped();
                None
            });
        let future = scope.spawn_future(work);
        drop(future);
        join(&scope, root);
        world.end();
        assert_eq!(report.get(), Ended::Value(0));
        ended.lock().expect("nobody panicked").expect("it ended")
    });
}

/// Covers the receiver of a future coming before the result and after.
#[test]
fn waiting_for_a_future_races_with_its_completion() {
    explore(2, &["before", "after"], |seen| {
        let world = World::default();
        let ((result, of_result), (joined, of_join)) = (world.root(), world.root());
        let scope = Scope::<WithoutStop>::new();
        let future = scope.spawn_future(world.remote(4));
        join(&scope, joined);
        submit(future, result);
        world.end();
        assert_eq!((of_result.get(), of_join.get()), (Ended::Value(4), Ended::Value(0)));
        seen.note(if of_result.here() { "before" } else { "after" });
    });
}

/// Covers an associated sender completing before the scope's stop, and because of it.
#[test]
fn a_stop_of_the_scope_races_with_the_completion() {
    race(3, &["stopped", "completed"], |world, root, report| {
        let scope = CountingScope::new();
        submit(scope.associate(world.stoppable(4)), root);
        assert!(scope.request_stop());
        drop(scope);
        world.end();
        match report.get() {
            Ended::Stopped => "stopped",
            Ended::Value(4) => "completed",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers the receiver's stop and the scope's coming together, before the completion and after.
#[test]
fn two_stops_race_with_the_completion() {
    race(2, &["stopped", "completed"], |world, root, report| {
        let scope = CountingScope::new();
        let source = StopSource::new();
        let work = scope
            .associate(world.stoppable(4))
            .write_env(WithStopToken(source.token()));
        submit(work, root);
        world.threads.spawn(move || assert!(source.request_stop()));
        // The last handle is dropped, which is a stop.
        drop(scope);
        world.end();
        match report.get() {
            Ended::Stopped => "stopped",
            Ended::Value(4) => "completed",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers either of two panics being the first. Both joins receive one.
#[test]
fn two_panics_race_for_the_joins() {
    race(2, &["the first", "the second"], |world, root, report| {
        let scope = SimpleCountingScope::new();
        for payload in ["the first", "the second"] {
            let panic = Completion::Panicked(Panic::new(Box::new(payload)));
            assert!(scope.spawn(world.remote_of::<Infallible>(panic).then(drop)));
        }
        let later = scope.join();
        join(&scope, root);
        world.end();
        assert_eq!(report.get(), Ended::Panicked);
        let (root, report) = world.root();
        submit(later.write_env(WithScheduler(InlineScheduler)), root);
        assert_eq!(report.get(), Ended::Panicked);
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sync_wait(scope.join())));
        let payload = unwound.expect_err("it unwinds").downcast::<String>().expect("a copy");
        if *payload == "the first" {
            "the first"
        } else {
            "the second"
        }
    });
}
