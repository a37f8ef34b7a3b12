//! A local task needs a run loop.
use bowline::prelude::*;
use bowline::task::LocalTask;

fn main() {
    start_detached(LocalTask::new(async {}));
}
