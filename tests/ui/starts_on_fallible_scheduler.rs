//! `starts_on` has no error of its own to report, so its scheduler must not fail.
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
    let _ = sync_wait(starts_on(MayRefuse, just(1)));
}
