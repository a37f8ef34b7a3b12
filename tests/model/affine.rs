//! `affine`: the child's completion against the return of `start`.

use bowline::Completion;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use loom::thread;

use crate::support::{Ended, World, explore};

/// Sees `start` deliver what was there when it returned, and the trip deliver what came later. The scheduler is inline,
/// so the trip ends where it began, and tells the two apart.
#[test]
fn either_start_or_the_trip_delivers() {
    for (completion, expected) in [(true, Ended::Value(6)), (false, Ended::Error("failed"))] {
        explore(3, &["start", "the trip"], move |seen| {
            let world = World::default();
            let (root, report) = world.root();
            let work = if completion {
                world.remote(6)
            } else {
                world.remote_of(Completion::Error("failed"))
            };
            submit(work.affine().write_env(WithScheduler(InlineScheduler)), root);
            world.end();
            assert_eq!(report.get(), expected);
            seen.note(if report.here() { "start" } else { "the trip" });
        });
    }
}

/// Sees the child complete while it is being started and later. It comes back to the loop's thread in any case.
#[test]
fn it_comes_back_to_the_loop() {
    explore(2, &["early", "late"], |seen| {
        let world = World::default();
        let here = thread::current().id();
        let run_loop = RunLoop::new();
        let started = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let early = {
            let started = started.clone();
            move |value| {
                assert_ne!(thread::current().id(), here);
                (value, !started.load(std::sync::atomic::Ordering::SeqCst))
            }
        };
        let work = world.remote(6).then(early).affine().then(move |(value, early)| {
            assert_eq!(thread::current().id(), here);
            (value.read(), early)
        });
        let beside = just_from(move || started.store(true, std::sync::atomic::Ordering::SeqCst)).infallible_into();
        let ((number, early), ()) = run_loop.run_until(when_all((work, beside))).unwrap();
        assert_eq!(number, 6);
        seen.note(if early { "early" } else { "late" });
        drop(run_loop);
        world.end();
    });
}
