//! A local task does not run on a pool.
use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::LocalTask;

fn main() {
    let pool = ThreadPool::new(1);
    let _ = sync_wait(starts_on(pool.scheduler(), LocalTask::new(async { 1 })));
}
