//! A task runs on the scheduler of its receiver's environment; a detached one has none.
use bowline::prelude::*;
use bowline::task::Task;

fn main() {
    start_detached(Task::new(async {}));
}
