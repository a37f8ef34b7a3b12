//! A task runs on a scheduler; a detached sender has none.
use bowline::prelude::*;
use bowline::task::Task;

fn main() {
    start_detached(Task::new(async {}));
}
