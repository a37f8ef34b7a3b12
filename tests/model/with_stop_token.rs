//! `with_stop_token`: two stops against the completion.

use bowline::prelude::*;
use bowline::stop::StopSource;

use crate::support::{Ended, race};

/// Covers the given token's stop coming too late, and ending the work on the stopping thread. The source is dropped
/// meanwhile: the slot keeps the registry alive.
#[test]
fn a_stop_of_the_given_token_races_with_the_completion() {
    race(3, &["value", "stopped"], |world, root, report| {
        let source = StopSource::new();
        submit(world.stoppable(4).with_stop_token(source.token()), root);
        assert!(source.request_stop());
        drop(source);
        world.end();
        match report.get() {
            Ended::Value(4) => "value",
            Ended::Stopped if report.here() => "stopped",
            other => panic!("{other:?}"),
        }
    });
}

/// Covers both tokens stopping at once, before the completion and after.
#[test]
fn two_stops_race_with_the_completion() {
    race(2, &["stopped", "value"], |world, root, report| {
        let (given, outer) = (StopSource::new(), StopSource::new());
        let work = world
            .stoppable(4)
            .with_stop_token(given.token())
            .write_env(WithStopToken(outer.token()));
        submit(work, root);
        world.threads.spawn(move || assert!(outer.request_stop()));
        assert!(given.request_stop());
        drop(given);
        world.end();
        match report.get() {
            Ended::Stopped => "stopped",
            Ended::Value(4) => "value",
            other => panic!("{other:?}"),
        }
    });
}
