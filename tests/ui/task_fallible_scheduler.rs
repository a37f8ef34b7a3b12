//! A task must come back to its scheduler, so that must not fail.
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler};
use bowline::task::Task;

#[derive(Clone, PartialEq)]
struct MayFail;

impl Scheduler for MayFail {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = false;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }
}

fn main() {
    let _ = sync_wait(Task::new(async {}).write_env(WithScheduler(MayFail)));
}
