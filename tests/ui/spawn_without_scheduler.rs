//! A task runs on a scheduler; a scope has none.
use bowline::prelude::*;
use bowline::task::Task;

fn main() {
    CountingScope::new().spawn(Task::new(async {}));
}
