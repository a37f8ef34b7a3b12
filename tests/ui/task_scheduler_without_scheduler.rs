//! An environment without a scheduler has nothing to erase.
use bowline::NoScheduler;
use bowline::scheduler::TaskScheduler;

fn main() {
    let _ = TaskScheduler::new(NoScheduler);
}
