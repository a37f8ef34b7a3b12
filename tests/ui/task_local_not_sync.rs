//! Readers of a task-local value may run on any thread, so its type must be `Sync`.
use std::cell::Cell;

bowline::task_local! {
    static COUNTER: Cell<u32>;
}

fn main() {
    COUNTER.sync_scope(Cell::new(1), || ());
}
