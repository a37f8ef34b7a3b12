//! An erased scheduler borrows what the original borrows.
use bowline::scheduler::{RunLoop, TaskScheduler};

fn main() {
    let erased = {
        let run_loop = RunLoop::new();
        TaskScheduler::new(run_loop.scheduler())
    };
    let _ = erased.clone();
}
