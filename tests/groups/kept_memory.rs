//! The memory that threads keep for the next children: it is reused, bounded, and passed on when a thread ends.
//!
//! Bytes are counted for the whole process, so those tests run in processes of their own.

use std::cell::RefCell;

use bowline::prelude::*;
use bowline::scheduler::ThreadPool;
use bowline::task::{self, Task};

use crate::common::tasks::hops;
use crate::common::*;

const INSIDE: &str = "BOWLINE_KEPT_MEMORY";
const MIB: usize = 1024 * 1024;
/// The children of a burst: tens of mebibytes.
const MANY: usize = if cfg!(sanitized) { 10_000 } else { 100_000 };

/// More than any machine takes for what the tests wait for.
const TOO_LONG: std::time::Duration = std::time::Duration::from_secs(60);

/// Returns whether this is the process of the test. Otherwise runs the test in a process of its own.
fn is_inside(test: &str) -> bool {
    let inside = std::env::var_os(INSIDE).is_some();
    if !inside {
        passes_in_own_process(test, &[(INSIDE, "1")]);
    }
    inside
}

/// Spawns children that wait, cancels them, and returns how many bytes were allocated while they waited.
async fn burst() -> usize {
    task::group(async |group| {
        for _ in 0..MANY {
            group.spawn(async { never::<(), ()>().await });
        }
        hops(1).await;
        let peak = allocated_bytes();
        group.cancel_all();
        while group.next().await.is_some() {}
        peak
    })
    .await
}

#[test]
fn the_memory_of_a_burst_is_kept_for_the_next_and_freed_by_workers_that_rest() {
    if !is_inside("the_memory_of_a_burst_is_kept_for_the_next_and_freed_by_workers_that_rest") {
        return;
    }
    let pool = ThreadPool::new(2);
    let before = allocated_bytes();
    let mut first = 0;
    for round in 0..5 {
        let peak = sync_wait(starts_on(pool.scheduler(), Task::new(burst()))).unwrap() - before;
        assert!(peak > MANY * 200, "{peak}");
        match round {
            0 => first = peak,
            _ => assert!(peak <= first + first / 8 + 4 * MIB, "{round}: {peak} after {first}"),
        }
    }
    // The workers rest now. They wake up a few times to free what no task needs.
    let begun = std::time::Instant::now();
    while allocated_bytes().saturating_sub(before) > 8 * MIB {
        assert!(begun.elapsed() < TOO_LONG, "{} of {first}", allocated_bytes() - before);
        thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_thread_that_waits_for_long_frees_the_memory_of_a_burst() {
    if !is_inside("a_thread_that_waits_for_long_frees_the_memory_of_a_burst") {
        return;
    }
    let before = allocated_bytes();
    // The tasks run on this thread alone: there is no pool.
    let work = Task::new(async move {
        let (peak, mut kept) = (burst().await - before, usize::MAX);
        let begun = std::time::Instant::now();
        while kept > 8 * MIB && begun.elapsed() < TOO_LONG {
            // No worker of a pool rests meanwhile.
            let (woken, waits) = async_channel::bounded::<()>(1);
            thread::spawn(move || {
                thread::sleep(std::time::Duration::from_millis(500));
                drop(woken);
            });
            _ = waits.recv().await;
            kept = allocated_bytes().saturating_sub(before);
        }
        (peak, kept)
    });
    let (peak, kept) = sync_wait::<Task<(usize, usize)>>(work).unwrap();
    assert!(kept <= 8 * MIB, "{kept} of {peak}");
}

#[test]
fn a_pool_that_ends_frees_the_memory_of_a_burst() {
    if !is_inside("a_pool_that_ends_frees_the_memory_of_a_burst") {
        return;
    }
    let before = allocated_bytes();
    let pool = ThreadPool::new(2);
    sync_wait(starts_on(pool.scheduler(), Task::new(burst()))).unwrap();
    drop(pool);
    let kept = allocated_bytes().saturating_sub(before);
    assert!(kept <= 8 * MIB, "{kept}");
}

#[test]
fn threads_that_end_pass_their_memory_on() {
    if !is_inside("threads_that_end_pass_their_memory_on") {
        return;
    }
    let mut first = 0;
    for round in 0..200 {
        // The tasks outlive the thread that made them, and are freed by this one.
        let tasks: Vec<_> = thread::spawn(|| (0..50).map(|number| Task::new(async move { number })).collect())
            .join()
            .unwrap();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(sync_wait::<Task<usize>>(task).unwrap(), number);
        }
        match round {
            0..10 => first = first.max(allocated_bytes()),
            _ => assert!(
                allocated_bytes() <= first + MIB,
                "{round}: {} {first}",
                allocated_bytes()
            ),
        }
    }
}

#[test]
fn a_thread_that_ends_may_still_run_and_free_tasks() {
    /// Runs a group when it is dropped, and drops a task that was made before.
    struct Last(RefCell<Option<Task<u32>>>);
    impl Drop for Last {
        fn drop(&mut self) {
            assert_eq!(sync_wait(Task::new(sum_of_children(10))).unwrap(), 45);
            self.0.borrow_mut().take();
        }
    }
    async fn sum_of_children(children: u32) -> u32 {
        task::group(async move |group| {
            for number in 0..children {
                group.spawn(async move { number });
            }
            let mut sum = 0;
            while let Some(number) = group.next().await {
                sum += number;
            }
            sum
        })
        .await
    }
    thread_local! {
        static LAST: Last = const { Last(RefCell::new(None)) };
    }
    for used_before in [false, true] {
        thread::spawn(move || {
            // The order in which thread-locals are dropped depends on the order of their first use.
            if used_before {
                LAST.with(|last| assert!(last.0.borrow().is_none()));
            }
            let task = Task::new(async { 7 });
            assert_eq!(sync_wait(Task::new(sum_of_children(3))).unwrap(), 3);
            LAST.with(|last| *last.0.borrow_mut() = Some(task));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn tasks_are_freed_on_other_threads_while_their_own_makes_more() {
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<Task<usize>>>(2);
    thread::scope(|scope| {
        scope.spawn(move || {
            for (round, tasks) in receive.into_iter().enumerate() {
                for (number, task) in tasks.into_iter().enumerate() {
                    // Some are run, and some dropped.
                    if number % 3 == 0 {
                        assert_eq!(sync_wait(task).unwrap(), round + number);
                    }
                }
            }
        });
        for round in 0..100 {
            let mut tasks: Vec<_> = (0..300)
                .map(|number| Task::new(async move { round + number }))
                .collect();
            // This thread frees some of its own as well.
            tasks.truncate(200);
            send.send(tasks).unwrap();
        }
        drop(send);
    });
}
