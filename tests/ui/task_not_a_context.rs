//! A task's third parameter is a context, which a plain type is not.
use bowline::prelude::*;
use bowline::task::Task;

struct Settings;

fn main() {
    let task = Task::builder().context::<Settings>().task(async { 1 });
    let _ = sync_wait(task);
}
