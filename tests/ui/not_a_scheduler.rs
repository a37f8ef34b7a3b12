//! A run loop is not itself a scheduler: its handle is.
use bowline::prelude::*;
use bowline::scheduler::RunLoop;

fn main() {
    let run_loop = RunLoop::new();
    let _ = sync_wait(starts_on(&run_loop, just(1)));
}
