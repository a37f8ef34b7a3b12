//! A local task is not awaited by a task that may run on any thread.
use bowline::task::{LocalTask, Task};

fn main() {
    let _ = Task::new(async { LocalTask::new(async { 1 }).await });
}
