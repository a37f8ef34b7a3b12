//! A scheduler forwards the queue of its inner scheduler, not that of a value dropped at the end of the call.
use bowline::prelude::*;
use bowline::scheduler::{InlineSchedule, InlineScheduler, PoolScheduler, RunLoop};
use bowline::sender::Native;
use std::sync::Mutex;

#[derive(Clone)]
struct Shifting(&'static Mutex<PoolScheduler>);

impl PartialEq for Shifting {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Scheduler for Shifting {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }

    fn native(&self) -> Option<Native<'_>> {
        self.0.lock().unwrap().native()
    }
}

#[derive(Clone, PartialEq)]
struct Fresh;

impl Scheduler for Fresh {
    type Schedule = InlineSchedule;
    const INFALLIBLE: bool = true;

    fn schedule(&self) -> InlineSchedule {
        InlineScheduler.schedule()
    }

    fn native(&self) -> Option<Native<'_>> {
        let run_loop = RunLoop::new();
        run_loop.scheduler().native()
    }
}

fn main() {
    let _ = Fresh;
}
