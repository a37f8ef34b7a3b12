//! `when_all`: the countdown of the children against a failure and against a stop from outside.

use std::sync::{Arc, Mutex};

use bowline::Completion;
use bowline::prelude::*;
use bowline::stop::StopSource;

use crate::support::{Ended, World, explore, race};

/// Covers either child being the last: the whole completes on its thread.
#[test]
fn the_last_child_ends_the_whole() {
    race(3, &["the first child", "the second child"], |world, root, report| {
        let second = Arc::new(Mutex::new(None));
        let both = when_all((
            world.remote(1),
            world.remote(2).then({
                let second = second.clone();
                move |value| {
                    *second.lock().expect("nobody panicked") = Some(loom::thread::current().id());
                    value
                }
            }),
        ));
        submit(both, root);
        world.end();
        assert_eq!(report.get(), Ended::Value(3));
        let second = second.lock().expect("nobody panicked").expect("it completed");
        if report.by(second) {
            "the second child"
        } else {
            "the first child"
        }
    });
}

/// Covers the sibling being stopped by the error, and completing all the same. The error arrives in any case, after the sibling
/// has ended.
#[test]
fn an_error_stops_a_sibling_that_may_complete_all_the_same() {
    race(3, &["stopped", "completed"], |world, root, report| {
        let sibling = Arc::new(Mutex::new(None));
        let note = |ended| {
            let sibling = sibling.clone();
            move || *sibling.lock().expect("nobody panicked") = Some(ended)
        };
        let (stopped, completed) = (note("stopped"), note("completed"));
        let placeholder = world.census.value(0);
        let all = when_all((
            world.remote_of(Completion::Error("failed")),
            world
                .stoppable(2)
                .then(move |value| {
                    completed();
                    value
                })
                .upon_stopped(move || {
                    stopped();
                    placeholder
                }),
        ));
        submit(all, root);
        world.end();
        assert_eq!(report.get(), Ended::Error("failed"));
        sibling
            .lock()
            .expect("nobody panicked")
            .expect("it ended before the whole")
    });
}

/// Covers two errors in either order: one of them is reported, the other dropped.
#[test]
fn one_of_two_errors_is_reported() {
    explore(3, &["one", "two"], |seen| {
        let world = World::default();
        let (root, report) = world.root();
        submit(
            when_all((
                world.remote_of(Completion::Error("one")),
                world.remote_of(Completion::Error("two")),
            )),
            root,
        );
        world.end();
        match report.get() {
            Ended::Error(error) => seen.note(error),
            other => panic!("{other:?}"),
        }
    });
}

/// Covers the stop coming too late for both children, being the last to leave, and leaving the end to a child. The whole
/// completes once, and is not touched afterwards.
#[test]
fn a_stop_from_outside_races_with_the_countdown() {
    race(
        2,
        &["values", "stopped here", "stopped by a child"],
        |world, root, report| {
            let source = StopSource::new();
            let all = when_all((world.stoppable(1), world.stoppable(2))).write_env(WithStopToken(source.token()));
            submit(all, root);
            assert!(source.request_stop());
            drop(source);
            world.end();
            match report.get() {
                Ended::Value(3) => "values",
                Ended::Stopped if report.here() => "stopped here",
                Ended::Stopped => "stopped by a child",
                other => panic!("{other:?}"),
            }
        },
    );
}

/// Covers the whole ending on the stopping thread and on a child's, while the stop and a failure stop the same sibling. The
/// stop never hides the error.
#[test]
fn a_stop_from_outside_meets_a_failure() {
    race(
        2,
        &["on a child's thread", "on the stopping thread"],
        |world, root, report| {
            let source = StopSource::new();
            let all = when_all((world.remote_of(Completion::Error("failed")), world.stoppable(2)));
            submit(all.write_env(WithStopToken(source.token())), root);
            assert!(source.request_stop());
            drop(source);
            world.end();
            assert_eq!(report.get(), Ended::Error("failed"));
            if report.here() {
                "on the stopping thread"
            } else {
                "on a child's thread"
            }
        },
    );
}
