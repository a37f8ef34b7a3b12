//! A `TaskScheduler` never fails, so the scheduler it erases must not fail either.
use bowline::factories::JustError;
use bowline::prelude::*;
use bowline::scheduler::TaskScheduler;

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
    let _ = TaskScheduler::new(MayRefuse);
}
