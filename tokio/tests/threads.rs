//! The threads of an `IoPool` end with it. The only test of its process: it counts the threads of all pools.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::sync::mpsc;

use bowline::prelude::*;
use bowline_tokio::{IoPool, block_on};

use common::*;

/// Returns the names of the pools' threads in this process.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread that ends meanwhile has no name.
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    let names = names.map(|name| name.trim().to_owned());
    names.filter(|name| name.starts_with("bowline-")).collect()
}

/// Makes a pool whose runtime has a blocking thread as well, and has run a task.
fn used() -> IoPool {
    let pool = IoPool::new(2).unwrap();
    let work = Task::new(async {
        tokio::task::yield_now().await;
        tokio::spawn(async { 6 * 7 }).await.unwrap()
    });
    assert_eq!(sync_wait(starts_on(pool.scheduler(), work)).unwrap(), 42);
    // Two workers and the reserve. A thread has its name soon after its start.
    eventually("all threads", || threads().len() == 3);
    pool
}

#[test]
fn all_threads_end_with_the_pool() {
    in_time(|| {
        assert_eq!(threads(), [""; 0]);
        let gone = |how: &str| eventually(how, || threads().is_empty());
        for _ in 0..5 {
            drop(used());
            gone("the end after a drop");

            let pool = used();
            let scheduler = pool.scheduler();
            execute(scheduler, move || drop(pool));
            gone("the end after a drop by a task");

            let pool = used();
            let handle = pool.handle().clone();
            handle.spawn(async move { drop(pool) });
            gone("the end after a drop by a future of the runtime");

            let pool = used();
            let (send, receive) = mpsc::channel();
            let scheduler = pool.scheduler();
            let closure = task::spawn_blocking(move |_| {
                drop(pool);
                send.send(()).unwrap();
            });
            start_detached(starts_on(scheduler, closure));
            receive.recv_timeout(PATIENCE).unwrap();
            gone("the end after a drop by a blocking closure");

            let pool = used();
            current_thread().block_on(async move { drop(pool) });
            gone("the end after a drop in another runtime");

            assert!(IoPool::new(0).is_err());
            gone("the end after a pool that could not be built");
        }
        // The tasks of another runtime use no pool.
        let runtime = multi_thread(1);
        block_on(&runtime, async { drop(used_elsewhere().await) });
        gone("the end after a drop in a task on another runtime");
    });
}

async fn used_elsewhere() -> IoPool {
    let pool = IoPool::new(2).unwrap();
    let sleep = Task::new(async { tokio::time::sleep(std::time::Duration::from_millis(1)).await });
    starts_on(pool.scheduler(), sleep).await.unwrap();
    pool
}
