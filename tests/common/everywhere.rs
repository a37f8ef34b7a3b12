//! The schedulers on which task tests run.

use bowline::scheduler::{RunLoop, ThreadPool};
use bowline::{Outcome, Sender, starts_on, sync_wait};

/// A scheduler on which tasks run.
#[derive(Debug)]
pub enum Place {
    /// A run loop, driven by the calling thread.
    Loop(RunLoop),
    Pool(ThreadPool),
}

impl Place {
    /// Runs a sender there and waits for it.
    pub fn run<S>(&self, sender: S) -> Outcome<S::Value, S::Error>
    where
        S: Sender<Value: Send, Error: Send> + Send,
    {
        match self {
            Place::Loop(run_loop) => run_loop.run_until(sender),
            Place::Pool(pool) => sync_wait(starts_on(pool.scheduler(), sender)),
        }
    }
}

/// Runs a test on a run loop, and on pools of one, two and eight workers.
pub fn everywhere(test: impl Fn(&Place)) {
    test(&Place::Loop(RunLoop::new()));
    for workers in [1, 2, 8] {
        test(&Place::Pool(ThreadPool::new(workers)));
    }
}
