//! A context names the erased scheduler or the inline one; a pool's scheduler comes from the environment.
use allocator_api2::alloc::Global;
use bowline::prelude::*;
use bowline::scheduler::PoolScheduler;
use bowline::task::TaskContext;

struct OnPool;

impl TaskContext for OnPool {
    type Allocator = Global;
    type Scheduler = PoolScheduler;

    fn new<N: Env>(_: &N) -> Self {
        OnPool
    }
}

fn main() {}
