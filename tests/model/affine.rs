//! `affine`: the child's completion against the return of `start`.

use bowline::Completion;
use bowline::prelude::*;
use bowline::scheduler::{InlineScheduler, RunLoop};
use loom::thread;

use crate::support::{Ended, World, explore, race};

/// Covers `start` delivering a completion that came before its return, and the trip delivering a later one. The scheduler is
/// inline, so the delivering thread tells the two apart.
#[test]
fn either_start_or_the_trip_delivers() {
    for (completion, expected) in [(true, Ended::Value(6)), (false, Ended::Error("failed"))] {
        race(3, &["start", "the trip"], move |world, root, report| {
            let work = if completion {
                world.remote(6)
            } else {
                world.remote_of(Completion::Error("failed"))
            };
            submit(work.affine().write_env(WithScheduler(InlineScheduler)), root);
            world.end();
            assert_eq!(report.get(), expected);
            if report.here() { "start" } else { "the trip" }
        });
    }
}

/// Covers a child that completes during its start, and later. Either way the completion arrives on the loop's thread.
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
