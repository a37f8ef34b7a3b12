//! A value that moves to another thread must be `Send`.
use bowline::prelude::*;
use bowline::scheduler::RunLoop;
use std::rc::Rc;

fn main() {
    let run_loop = RunLoop::new();
    let _ = run_loop.run_until(just(Rc::new(1)).continues_on(run_loop.scheduler()).then(|one| *one));
}
