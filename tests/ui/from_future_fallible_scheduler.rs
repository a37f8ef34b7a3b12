//! A wake-up must not be lost, so the scheduler that polls a future must not fail.
use bowline::factories::JustError;
use bowline::prelude::*;

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
    let _ = sync_wait(from_future(async { 1 }).write_env(WithScheduler(MayRefuse)));
}
