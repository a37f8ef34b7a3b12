//! A child with a name has a record, which is linked to that of its parent when the child is spawned.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, SpawnOptions};

use crate::common::{has_paused, pause_in_allocation};

static PAUSES: AtomicBool = AtomicBool::new(false);
static CONTINUES: AtomicBool = AtomicBool::new(false);

/// Pauses a thread until the test lets it continue.
fn pause() {
    PAUSES.store(true, SeqCst);
    wait_for(&CONTINUES);
}

fn wait_for(flag: &AtomicBool) {
    let begun = Instant::now();
    while !flag.load(SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the test has not gone on");
        thread::yield_now();
    }
}

/// A spawn pauses in each of its allocations in turn. Meanwhile one thread raises the task, and another one looks at its tree. The three
/// need the locks of the group, of the child's queue and of the task's record: none waits for another one for ever.
#[test]
fn a_raise_and_a_look_at_the_tree_meet_the_spawn_of_a_named_child() {
    let pool = ThreadPool::new(1);
    let mut after = 0;
    while spawn_that_pauses(&pool, after) {
        after += 1;
    }
    assert!(after > 0, "a record is allocated");
}

/// Returns whether the spawn paused, which it does if it allocates more often than `after` times.
fn spawn_that_pauses(pool: &ThreadPool, after: usize) -> bool {
    PAUSES.store(false, SeqCst);
    CONTINUES.store(false, SeqCst);
    let (tell, told) = mpsc::channel();
    let (spawned, has_spawned) = mpsc::channel();
    let handle = task::detach_with(SpawnOptions::new().scheduler(pool.scheduler()), async move {
        task::group(async move |group| {
            // The first child of the thread may allocate more.
            group.spawn_with(SpawnOptions::new().name("first"), async { 1 });
            tell.send(task::current().expect("a task")).unwrap();
            let options = SpawnOptions::new().name("second");
            pause_in_allocation(after, pause);
            group.spawn_with(options, async { 2 });
            spawned.send(has_paused()).unwrap();
            // Also tells the test that there is no pause.
            PAUSES.store(true, SeqCst);
            let mut sum = 0;
            while let Some(number) = group.next().await {
                sum += number;
            }
            sum
        })
        .await
    });
    let parent = told.recv().unwrap();
    wait_for(&PAUSES);
    let (done, are_done) = mpsc::channel();
    let mut ended = true;
    thread::scope(|scope| {
        let done = &done;
        let handle = &handle;
        scope.spawn(move || {
            handle.raise(Priority::UserInteractive);
            done.send(()).unwrap();
        });
        // The raise comes first, if it can.
        thread::sleep(Duration::from_millis(20));
        scope.spawn(move || {
            _ = parent.tree();
            done.send(()).unwrap();
        });
        thread::sleep(Duration::from_millis(20));
        CONTINUES.store(true, SeqCst);
        for _ in 0..2 {
            ended &= are_done.recv_timeout(Duration::from_secs(20)).is_ok();
        }
        if !ended {
            // None of the threads can be joined.
            eprintln!("a raise, a look at the tree and a spawn wait for one another");
            std::process::exit(1);
        }
    });
    let paused = has_spawned.recv().unwrap();
    assert_eq!(task::block_on(handle).unwrap(), 3);
    paused
}
