//! `split` and `ensure_started`: one run, and receivers that wait for it, come late, leave early or never come.

use bowline::prelude::*;
use bowline::stop::StopSource;

use crate::support::{Ended, Watched, World, explore, race};

/// Covers a second receiver coming before the completion, which delivers to it, and after, when it finds the result.
#[test]
fn a_late_receiver_finds_the_result() {
    explore(3, &["in time", "late"], |seen| {
        let world = World::default();
        let ((first, of_first), (second, of_second)) = (world.root(), world.root());
        let shared = world.remote(4).split();
        submit(shared.clone(), first);
        submit(shared, second);
        world.end();
        assert_eq!((of_first.get(), of_second.get()), (Ended::Value(4), Ended::Value(4)));
        seen.note(if of_second.here() { "late" } else { "in time" });
    });
}

/// Covers either of two threads starting the run: there is one run, and both get its result.
#[test]
fn two_receivers_start_one_run() {
    explore(2, &["by the first", "by the second"], |seen| {
        let world = World::default();
        let ((first, of_first), (second, of_second)) = (world.root(), world.root());
        let started = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let shared = just_from({
            let started = started.clone();
            move || {
                started
                    .lock()
                    .expect("nobody panicked")
                    .push(loom::thread::current().id())
            }
        })
        .then({
            let value = world.census.value(4);
            move |()| value
        })
        .split();
        world.threads.spawn({
            let shared = shared.clone();
            move || submit(shared, second)
        });
        submit(shared, first);
        world.end();
        assert_eq!((of_first.get(), of_second.get()), (Ended::Value(4), Ended::Value(4)));
        let started = started.lock().expect("nobody panicked");
        assert_eq!(started.len(), 1);
        let here = started[0] == loom::thread::current().id();
        seen.note(if here { "by the first" } else { "by the second" });
    });
}

/// Covers a receiver's stop coming before the completion, when it leaves, and after. The other receiver gets the result in any
/// case.
#[test]
fn a_receiver_leaves_while_the_run_completes() {
    explore(3, &["left", "too late"], |seen| {
        let world = World::default();
        let ((first, of_first), (second, of_second)) = (world.root(), world.root());
        let source = StopSource::new();
        let shared = world.remote(4).split();
        submit(shared.clone(), first);
        submit(shared.write_env(WithStopToken(source.token())), second);
        assert!(source.request_stop());
        world.end();
        assert_eq!(of_first.get(), Ended::Value(4));
        seen.note(match of_second.get() {
            Ended::Stopped => "left",
            Ended::Value(4) => "too late",
            other => panic!("{other:?}"),
        });
    });
}

/// Covers one receiver leaving or not, and the next one coming in time or late, before or after the end of the run.
#[test]
fn one_receiver_leaves_and_the_next_comes_late() {
    explore(3, &["left, in time", "left, late", "too late, late"], |seen| {
        let world = World::default();
        let ((first, of_first), (second, of_second)) = (world.root(), world.root());
        let source = StopSource::new();
        let shared = world.remote(4).split();
        submit(shared.clone().write_env(WithStopToken(source.token())), first);
        assert!(source.request_stop());
        submit(shared, second);
        world.end();
        assert_eq!(of_second.get(), Ended::Value(4));
        seen.note(match (of_first.get(), of_second.here()) {
            (Ended::Stopped, false) => "left, in time",
            (Ended::Stopped, true) => "left, late",
            (Ended::Value(4), true) => "too late, late",
            other => panic!("{other:?}"),
        });
    });
}

/// Covers a stop before and after the start of the only receiver of a run that never ends by itself. The stop is never lost.
#[test]
fn a_stop_while_it_starts_is_not_lost() {
    race(
        3,
        &["on this thread", "on the stopping thread"],
        |world, root, report| {
            let source = StopSource::new();
            let forever = never::<Watched, &'static str>().split();
            let receive = forever.write_env(WithStopToken(source.token()));
            world.threads.spawn(move || assert!(source.request_stop()));
            submit(receive, root);
            world.end();
            assert_eq!(report.get(), Ended::Stopped);
            if report.here() {
                "on this thread"
            } else {
                "on the stopping thread"
            }
        },
    );
}

/// Covers a stop before the start of the only receiver, when nothing runs. Also after it, when the run is stopped too, and
/// after the completion.
#[test]
fn a_receiver_is_stopped_while_it_starts() {
    race(3, &["never ran", "left", "too late"], |world, root, report| {
        let source = StopSource::new();
        let ran = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let work = just_from({
            let ran = ran.clone();
            move || ran.store(true, std::sync::atomic::Ordering::SeqCst)
        })
        .infallible_into()
        .let_value({
            let inside = world.stoppable(4);
            move |()| inside
        });
        let receive = work.split().write_env(WithStopToken(source.token()));
        world.threads.spawn(move || assert!(source.request_stop()));
        submit(receive, root);
        world.end();
        let ran = ran.load(std::sync::atomic::Ordering::SeqCst);
        match (report.get(), ran) {
            (Ended::Stopped, false) => "never ran",
            (Ended::Stopped, true) => "left",
            (Ended::Value(4), true) => "too late",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers the run ending normally, and because the last handle was dropped. No receiver exists, and nothing leaks.
#[test]
fn dropping_the_handle_races_with_the_completion() {
    explore(3, &["completed", "stopped"], |seen| {
        let world = World::default();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(None));
        let note = |end: &'static str| {
            let ended = ended.clone();
            move || assert!(ended.lock().expect("nobody panicked").replace(end).is_none())
        };
        let (completed, stopped) = (note("completed"), note("stopped"));
        let started = world
            .stoppable(4)
            .then(move |value| {
                completed();
                Some(value)
            })
            .upon_stopped(move || {
                stopped();
                None
            })
            .ensure_started();
        drop(started);
        world.end();
        seen.note(ended.lock().expect("nobody panicked").expect("it ended"));
    });
}

/// Covers the two handles of a run being dropped by two threads while it completes.
#[test]
fn the_last_of_two_handles_to_go_stops_the_run() {
    race(2, &["completed", "stopped"], |world, root, report| {
        let source = StopSource::new();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(None));
        let note = |end: &'static str| {
            let ended = ended.clone();
            move || assert!(ended.lock().expect("nobody panicked").replace(end).is_none())
        };
        let (completed, stopped) = (note("completed"), note("stopped"));
        let placeholder = world.census.value(9);
        let shared = world
            .stoppable(4)
            .then(move |value| {
                completed();
                value
            })
            .upon_stopped(move || {
                stopped();
                placeholder
            })
            .split();
        submit(shared.clone().write_env(WithStopToken(source.token())), root);
        world.threads.spawn(move || drop(shared));
        assert!(source.request_stop());
        world.end();
        let ended = ended.lock().expect("nobody panicked").expect("it ended");
        assert!(matches!(
            (report.get(), ended),
            (Ended::Stopped, _) | (Ended::Value(4), "completed")
        ));
        ended
    });
}

/// Covers the receiver of `ensure_started` coming before the completion and after. The value is moved, not cloned.
#[test]
fn what_was_started_completes_before_or_after_it_is_waited_for() {
    race(3, &["before", "after"], |world, root, report| {
        let started = world.remote(4).then(|value| (value,)).ensure_started();
        submit(started.then(|(value,)| value), root);
        world.end();
        assert_eq!(report.get(), Ended::Value(4));
        if report.here() { "before" } else { "after" }
    });
}

/// Covers the receiver of `ensure_started` stopped before the completion, which stops the run too, and after.
#[test]
fn a_stop_of_who_waits_races_with_the_completion() {
    race(3, &["stopped", "completed"], |world, root, report| {
        let source = StopSource::new();
        let started = world.stoppable(4).ensure_started();
        submit(started.write_env(WithStopToken(source.token())), root);
        assert!(source.request_stop());
        world.end();
        match report.get() {
            Ended::Stopped => "stopped",
            Ended::Value(4) => "completed",
            other => panic!("{other:?}"),
        }
    });
}
