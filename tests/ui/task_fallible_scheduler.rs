//! A task always returns to its scheduler, which therefore must not fail.
use bowline::factories::JustError;
use bowline::prelude::*;
use bowline::task::Task;

#[derive(Clone, PartialEq)]
struct MayRefuse;

impl Scheduler for MayRefuse {
    type Schedule = JustError<(), &'static str>;
    const INFALLIBLE: bool = false;

    fn schedule(&self) -> Self::Schedule {
        just_error("full")
    }
}

fn main() {
    let _ = sync_wait(Task::new(async { 1 }).write_env(WithScheduler(MayRefuse)));
}
