//! A prepared local task stays on its thread, like the task.
use bowline::task::LocalTask;
use bowline::{WaitSlot, prepare};

fn main() {
    let mut slot = WaitSlot::new();
    let prepared = prepare(LocalTask::new(async { 1 }), &mut slot);
    std::thread::scope(|scope| {
        scope.spawn(move || prepared.wait());
    });
}
