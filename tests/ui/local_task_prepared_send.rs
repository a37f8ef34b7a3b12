//! A local task that was prepared stays on its thread, as the task does.
use bowline::task::LocalTask;
use bowline::{WaitSlot, prepare};

fn main() {
    let mut slot = WaitSlot::new();
    let prepared = prepare(LocalTask::new(async { 1 }), &mut slot);
    std::thread::scope(|scope| {
        scope.spawn(move || prepared.wait());
    });
}
